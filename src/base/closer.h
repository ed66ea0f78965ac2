// Closes things on a thread of its own, in the order in which they were given up: those whose end may have to wait for
// what the calling thread does next. Such is memory of another process's device: to unmap it, drivers wait for all
// kernels of this process.
//
// There is one in a process, and it outlives every static object. Its thread is there as long as there is something to
// close, so none is left where a program ends in peace; what is not closed by then, the system closes. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace axccl {

class Closer {
 public:
  static Closer& Process();

  // Runs `close` after all that was added before, on the other thread. Where there is none to be had, with the next Add
  // or Await.
  void Add(std::function<void()> close);
  // Waits until nothing is left to close, but no longer than `patience`; says whether that came to pass. Where there is
  // no other thread to be had, this one closes, however long that takes. Not to be called from what is closed.
  bool Await(std::chrono::milliseconds patience);

 private:
  bool Start();
  void Run();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<std::function<void()>> waiting_;
  bool running_ = false;  // a thread that looks at `waiting_` once more before it ends
};

}  // namespace axccl
