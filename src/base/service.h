// The service thread: the one background thread of a process, asleep in epoll unless somebody connects.
//
// It serves the rendezvous of the process's unique ids (src/boot), hands out the heap (transports/shm) and holds the
// liveness mutex. It starts at first use, blocks every signal, is detached and lives until the process ends, however it
// ends: nothing joins it, and it owns no object with a destructor. A forked child that may use the library starts
// another. Where an application closes descriptors that are not its own (closefrom, a daemon's start), it serves nobody
// any more, but stays: peers take its end for that of the process.
//
// Handlers and tasks run on it one at a time and must not block. When a handler throws, its connection is ended; a task
// of a timer runs again a little later; Run returns the error.
//
// Get and Run may be called from any thread; what follows them in the class only on the service thread (from a handler,
// a task or a function given to Run), which is what makes locks unnecessary there.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl::service {

class Loop {
 public:
  using Task = std::function<void()>;
  using Handler = std::function<void(uint32_t events)>;  // epoll bits

  // Starts the thread at the process's first call. kInvalidUsage where Forked(), and where the application has closed
  // the thread's descriptors; kSystemError when the thread or its descriptors cannot be had (a later call tries again).
  static Result<Loop*> Get();

  // Runs `task` on the service thread and returns once it has run; everything before happens before the task, and the
  // task before the return. On the service thread itself: runs it at once. kInvalidUsage as for Get, and in a forked
  // child that has another thread; it has not run then.
  Status Run(const Task& task);

  // False in a forked child, whose parent it is that has the thread.
  bool OfThisProcess() const { return generation_ == Generation(); }

  // Calls `handler` while any of `events` (level-triggered), an error or a hang-up holds on `fd`.
  Status Watch(int fd, uint32_t events, Handler handler);
  Status Modify(int fd, uint32_t events);
  // Must precede closing the descriptor. No-op when not watched. The handler may unwatch itself.
  void Unwatch(int fd);

  // Runs `task` once, not before `when`. The number is never 0.
  uint64_t CallAt(Clock::time_point when, Task task);
  // No-op when it has run or is 0.
  void Cancel(uint64_t timer);

  // Tasks the thread waits to run: descriptors watched and timers set (tests).
  size_t watched() const { return watches_.size(); }
  size_t timers() const { return timers_.size(); }

 private:
  struct Watched {
    uint32_t generation = 0;  // tells events of a closed descriptor from those of the one that reuses its number
    std::shared_ptr<Handler> handler;
    bool ended = false;  // its connection, since it threw
  };

  struct Posted;

  Loop() = default;
  Status Start();
  Status OpenWake();
  bool HasDescriptors() const;
  Status Lost() const;
  // Wakes the thread.
  Status Ring() const;
  void StayBehind();
  static void* ThreadMain(void* self);
  void Main();
  void Serve(std::span<const epoll_event> events);
  void EndConnection(uint64_t key, const Status& why);
  void RunPosted();
  void RunTimers();
  int TimeoutMs() const;

  const uint32_t generation_ = Generation();
  Fd epoll_;
  // A socket that is connected to itself: unlike an eventfd it can be told from what gets its number after it.
  Fd wake_;
  uint64_t wake_inode_ = 0;
  pthread_t thread_{};
  uint32_t next_generation_ = 1;
  uint64_t next_timer_ = 1;
  std::unordered_map<int, Watched> watches_;
  std::map<std::pair<Clock::time_point, uint64_t>, Task> timers_;
  std::unordered_map<uint64_t, Clock::time_point> timer_times_;

  std::mutex mutex_;
  // Under mutex_:
  Posted* first_posted_ = nullptr;  // the others follow it: who has no memory may have to give something back
  bool lost_ = false;               // its descriptors
};

}  // namespace axccl::service
