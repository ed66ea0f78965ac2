// The service thread: the one background thread of a process, which sleeps in epoll until an event arrives.
//
// It serves the rendezvous of the process's unique ids (src/boot), hands out the heap (transports/shm) and holds the
// liveness mutex. It starts at first use, blocks every signal, is detached and lives until the process ends, however it
// ends: no thread joins it, and it owns no object with a destructor. A forked child that may use the library starts a
// service thread of its own. When the application closes descriptors that are not its own (closefrom, a daemon's
// start), the thread stops serving but keeps running, because peers would take its end for that of the process.
//
// Handlers and tasks run on it one at a time and must not block. When a handler throws, the thread ends the handler's
// connection. When a timer's task throws, the task runs again a little later. When a task given to Run throws, Run
// returns the error.
//
// Get, Run and Post may be called from any thread. The functions below them may be called only on the service thread
// (from a handler, a task or a function given to them), and therefore need no locks.
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
  using Handler = std::function<void(uint32_t events)>;  // `events`: epoll bits

  // Returns the process's thread; the first call starts it. kInvalidUsage where Forked(), and after the application has
  // closed the thread's descriptors; kSystemError when the thread or its descriptors cannot be made (a later call tries
  // again).
  static Result<Loop*> Get();

  // Runs `task` on the service thread and returns once it has run. Everything before the call happens before the task,
  // and the task happens before the return. On the service thread itself, runs the task at once. Returns kInvalidUsage,
  // without running the task, as Get does, and in a forked child, to which this thread does not belong.
  Status Run(const Task& task);
  // The same, but returns at once, and takes locks of its own only: for threads that hold locks which tasks take.
  Status Post(Task task);

  // False in a forked child: only its parent has the thread.
  bool OfThisProcess() const { return generation_ == Generation(); }

  // Calls `handler` while any of `events` (level-triggered), an error or a hang-up holds on `fd`.
  Status Watch(int fd, uint32_t events, Handler handler);
  Status Modify(int fd, uint32_t events);
  // Must precede closing the descriptor. No-op when not watched. The handler may unwatch itself.
  void Unwatch(int fd);

  // Runs `task` once, not before `when`. The returned number is never 0.
  uint64_t CallAt(Clock::time_point when, Task task);
  // Does nothing when the task has run or the number is 0.
  void Cancel(uint64_t timer);

  // The number of descriptors watched and timers set (tests).
  size_t watched() const { return watches_.size(); }
  size_t timers() const { return timers_.size(); }

 private:
  struct Watched {
    uint32_t generation = 0;  // distinguishes events of a closed descriptor from those of one that reuses its number
    std::shared_ptr<Handler> handler;
    bool ended = false;  // the connection was shut down because the handler threw
  };

  struct Posted;

  Loop() = default;
  Status Start();
  Status CheckUsable() const;
  Status Enqueue(Posted* posted);
  Status OpenWake();
  Status Lost() const { return wake_.Lost("service thread"); }
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
  // A socket that is connected to itself. Unlike an eventfd, it can be distinguished from a descriptor that gets its
  // number after the application has closed it.
  Fd wake_;
  pthread_t thread_{};
  uint32_t next_generation_ = 1;
  uint64_t next_timer_ = 1;
  std::unordered_map<int, Watched> watches_;
  std::map<std::pair<Clock::time_point, uint64_t>, Task> timers_;
  std::unordered_map<uint64_t, Clock::time_point> timer_times_;

  std::mutex mutex_;
  // Under mutex_:
  Posted* first_posted_ =
      nullptr;         // head of a list, for Run inside the waiters' frames: a waiter may have no memory to allocate
  bool lost_ = false;  // the application closed the thread's descriptors
};

}  // namespace axccl::service
