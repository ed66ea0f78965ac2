// Closes things on a thread of its own, in the order in which they were added. It is for things whose closing may have
// to wait for what the calling thread does next: to unmap another process's device memory, drivers wait for all kernels
// of this process.
//
// A process has one Closer, which outlives every static object. Its thread runs only while there is something to close,
// so a program that exits normally leaves no such thread. The system closes whatever is left at exit. Thread-safe.
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

  // Runs `close` on the closing thread, after everything that was added before. If that thread cannot be started, the
  // next Add or Await tries again.
  void Add(std::function<void()> close);
  // Waits until nothing is left to close, but no longer than `patience`; returns whether everything is closed. If no
  // closing thread can be started, the calling thread closes everything itself, however long that takes. Must not be
  // called from a closure.
  bool Await(std::chrono::milliseconds patience);

 private:
  bool Start();
  void Run();

  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<std::function<void()>> waiting_;
  bool running_ = false;  // a closing thread runs; it looks at `waiting_` once more before it ends
};

}  // namespace axccl
