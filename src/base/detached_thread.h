// Threads of the library that end by themselves, or with the process. They leave the application's signals alone, and may run
// where the application's may, though a thread starts them that was placed elsewhere (processors.h).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

#include "src/base/processors.h"

namespace axccl {

// std::system_error, and `fn` not run, where there is no thread to be had.
template <class Fn>
void StartDetached(Fn fn) {
  // A thread begins with the mask of the one that starts it.
  class AllBlocked {
   public:
    AllBlocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~AllBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

   private:
    sigset_t before_;
  };
  const AllBlocked blocked;
  std::thread([fn = std::move(fn), processors = ProcessorsAtStart()]() mutable {
    BindThisThread(processors);
    fn();
  }).detach();
}

}  // namespace axccl
