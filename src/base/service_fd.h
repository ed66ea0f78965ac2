// Descriptors of the library, what a fork does to them, and the one way to wait on them.
//
// Fd owns a descriptor and remembers it in a process-wide bitmap. A forked child closes all of them before fork()
// returns there, so that it neither masks the end of a connection of its parent nor keeps an address bound; its copies
// of the Fd objects then close nothing. Descriptors must be opened close-on-exec by whoever opens them. Fd is movable,
// not thread-safe; the free functions are thread-safe.
//
// A process that has only made unique ids may fork ranks: a child begins afresh, with a service thread of its own where
// it needs one, while the parent goes on serving the ids. Whatever else a process does binds the library to it
// (BindToProcess), as threads, the heap and connections of ranks do not survive a fork; children forked then are
// refused.
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

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);  // takes ownership; -1: none
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
  uint32_t generation_ = 0;  // of the process that opened it
};

namespace internal {
inline constinit std::atomic<bool> g_forked{false};
inline constinit std::atomic<uint32_t> g_generation{0};
}  // namespace internal

// From now on children of this process cannot use the library. To be called before whatever a child cannot take over.
void BindToProcess();
// True in a child that was forked from a process so bound, and in its children. One relaxed load.
inline bool Forked() { return internal::g_forked.load(std::memory_order_relaxed); }
// kInvalidUsage in such a child; `call` is the function the user called.
Status CheckNotForked(const char* call);
// How many forks lie between this process and the first that used the library: what was made in another generation
// belongs to a parent.
inline uint32_t Generation() { return internal::g_generation.load(std::memory_order_relaxed); }
// What the service thread holds whenever it is awake, and fork() where the process is not bound: a child must find no
// lock of the library taken by a thread that it does not have.
std::mutex& Serving();

// kSystemError when fewer than `needed` descriptors are left to open for `what`: says how many are needed, how many
// there are and how to get more. Racy by nature: others open and close.
Status CheckRoom(int64_t needed, const std::string& what);
// As SystemError, for a call that opens a descriptor: where the limit is what stopped it, says the limit and how to
// raise it.
Status OpenError(int error, const std::string& what);

enum class Wait { kReady, kTimeout, kStopped, kError };

// Whether a wait is to end early; asked every 10 ms by the thread that waits. Empty: it is not.
using Stop = std::function<bool()>;
// Once *flag is true. Null: never.
Stop StopOn(const std::atomic<bool>* flag);

// Waits until one of `events` (poll bits; errors and hang-ups count) holds on `fd`, the deadline has passed, or `stop`
// says so. fd < 0 only waits. kError: poll failed, see errno.
Wait PollUntil(int fd, short events, Clock::time_point deadline, const Stop& stop);

}  // namespace axccl::service
