// A lock for critical sections of a few instructions. Must not be held across a call that can wait. BasicLockable.
#pragma once

#include <sched.h>

#include <atomic>

namespace axccl {

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      // The holder may have lost its processor, so let it run.
      while (locked_.load(std::memory_order_relaxed)) sched_yield();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace axccl
