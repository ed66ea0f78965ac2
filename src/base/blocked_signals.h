// Keeps the application's signals from threads that are not its own.
#pragma once

#include <signal.h>

namespace axccl {

// While it exists, the calling thread has all signals blocked, and the threads that it starts have them blocked for
// good: a new thread inherits the mask of the thread that starts it, and a mask set before leaves no gap.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace axccl
