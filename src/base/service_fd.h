// Descriptors of the library, their behaviour at a fork, and the one way to wait for them.
//
// Fd owns a descriptor and remembers it in a process-wide table. A forked child closes all of them before fork()
// returns in it, so that it neither hides the end of one of its parent's connections nor keeps an address bound. The
// child's copies of the Fd objects then close nothing. The code that opens a descriptor must open it close-on-exec. Fd
// is movable and not thread-safe; the free functions are thread-safe.
//
// Programs close descriptors that are not theirs (closefrom(3), as daemons do when they start), and the files that they
// open next get the same numbers. So Fd knows which file it was made for: it closes no other one, and who is about to
// change a file by a descriptor asks first whether it is still that one (IsOurs, Check). Descriptors that share the one
// inode of the kernel's anonymous files (epoll, eventfd) cannot be told apart.
//
// A process that has only made unique ids may fork ranks: a child starts afresh, with a service thread of its own if it
// needs one, while the parent goes on serving the ids. Everything else that a process does binds the library to it
// (BindToProcess), because threads, the heap and connections of ranks do not survive a fork. Children forked after that
// are refused.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "src/base/status.h"

namespace axccl::service {

using Clock = std::chrono::steady_clock;

// A number for the file that the descriptor is of: that of its device and inode. 0: there is none. Async-signal-safe.
uint64_t FileId(int fd);
uint64_t FileId(uint64_t device, uint64_t inode);

// Moves a descriptor out of the numbers 0 to 2: they belong to the standard streams even of a program that has closed
// these, and what it prints must not get into files of the library. Returns the new one, or -1 with errno; -1 stays -1.
int AboveStandardStreams(int fd);

class Fd {
 public:
  Fd() = default;
  // Takes ownership, and moves the descriptor above those of the standard streams. -1: none, and errno stays; so it is,
  // with its own errno, if the descriptor cannot be moved.
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Whether the descriptor is still that of the file for which this object was made. Costs a system call.
  bool IsOurs() const;
  uint64_t file() const { return file_; }  // the FileId of that file
  // Returns Lost if it is not.
  Status Check(const char* what) const { return IsOurs() ? Status() : Lost(what); }
  // kInvalidUsage: the program has closed the descriptor. `what` begins the message.
  Status Lost(const char* what) const;
  // Ends a connection in both directions, if the descriptor is still that of the connection.
  void ShutDown() const;
  void Close();

 private:
  int fd_ = -1;
  uint32_t generation_ = 0;  // of the process that opened the descriptor
  uint64_t file_ = 0;        // its FileId
};

namespace internal {
inline constinit std::atomic<bool> g_forked{false};
inline constinit std::atomic<uint32_t> g_generation{0};
}  // namespace internal

// From now on, children of this process cannot use the library. Call it before making anything that a child cannot take
// over.
void BindToProcess();
// True in a child that was forked from a bound process, and in that child's children. Costs one relaxed load.
inline bool Forked() { return internal::g_forked.load(std::memory_order_relaxed); }
// Returns kInvalidUsage in such a child; `call` is the function that the user called.
Status CheckNotForked(const char* call);
// The number of forks between this process and the first one that loaded the library. Objects made in another
// generation belong to a parent.
inline uint32_t Generation() { return internal::g_generation.load(std::memory_order_relaxed); }
// The lock that the service thread holds whenever it is awake, and that fork() takes if the process is not bound. It
// ensures that a child finds no lock of the library held by a thread that does not exist in it.
std::mutex& Serving();

// Returns kSystemError when fewer than `needed` descriptors are left to open for `what`. The message says how many are
// needed, how many are left and how to raise the limit. Racy by nature: other threads open and close descriptors.
Status CheckRoom(int64_t needed, const std::string& what);
// As SystemError, for a call that opens a descriptor. If the limit stopped the call, the message says what the limit is
// and how to raise it.
Status OpenError(int error, const std::string& what);

enum class Wait { kReady, kTimeout, kStopped, kError };

// Returns whether a wait is to end early. The waiting thread calls it every 10 ms. An empty function: never.
using Stop = std::function<bool()>;
// Returns a Stop that is true once *flag is. Null: never.
Stop StopOn(const std::atomic<bool>* flag);

// Waits until one of `events` (poll bits; errors and hang-ups count) holds on `fd`, the deadline has passed, or `stop`
// returns true. With fd < 0, it waits for the last two only. kError: poll failed, see errno.
Wait PollUntil(int fd, short events, Clock::time_point deadline, const Stop& stop);

}  // namespace axccl::service
