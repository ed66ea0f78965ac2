// Between two looks of a thread for what another one does in a few instructions, such as leaving a critical section.
//
// The other thread may have lost its processor, so the first waits give up this one's. That does not help where this
// thread has a real-time priority, and the other thread, on the same processor, a lower one: the kernel runs it only
// while this one sleeps. So later waits are short sleeps.
#pragma once

#include <sched.h>
#include <time.h>

namespace axccl {

class Backoff {
 public:
  void Wait() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    constexpr timespec kRest{0, 50'000};
    nanosleep(&kRest, nullptr);
  }

 private:
  static constexpr int kYields = 100;
  int yields_ = 0;
};

}  // namespace axccl
