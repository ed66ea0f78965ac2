// A lock for critical sections of a few instructions. Must not be held across a call that can wait. BasicLockable.
#pragma once

#include <atomic>

#include "src/base/backoff.h"

namespace axccl {

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) AwaitRelease();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  void AwaitRelease() const {
    for (Backoff backoff; locked_.load(std::memory_order_relaxed);) backoff.Wait();
  }

  std::atomic<bool> locked_{false};
};

}  // namespace axccl
