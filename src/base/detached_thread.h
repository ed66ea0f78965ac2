// Threads of the library that end by themselves or with the process. They block all signals, so that the application's
// signals reach its own threads. They may run wherever the application's threads may, even if the thread that starts
// them is bound to fewer processors (processors.h).
#pragma once

#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/blocked_signals.h"
#include "src/base/processors.h"
#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl {

// The error of a thread that the system refused. `what` names the thread.
inline Status NoThread(int error, const char* what) {
  return SystemError(error,
                     "%s: no thread can be started; raise the limit of threads (ulimit -u, the pids limit of the "
                     "container), of address space (ulimit -v) or, after mlockall(MCL_FUTURE), of locked memory "
                     "(ulimit -l)",
                     what);
}

// Runs fn() on a new thread; `what` names the thread in an error. Returns an error, without running fn, when no thread
// can be started. Binds the library to the process (service_fd.h), because forked children would lack the thread.
template <class Fn>
Status StartDetached(const char* what, Fn fn) {
  service::BindToProcess();
  try {
    const BlockedSignals blocked;
    std::thread([fn = std::move(fn), processors = ProcessorsAtStart()]() mutable {
      BindThisThread(processors);
      fn();
    }).detach();
  } catch (const std::system_error& error) {
    return NoThread(error.code().value(), what);
  } catch (const std::bad_alloc&) {
    return MakeStatus(Code::kSystemError, "%s: no thread can be started: out of memory", what);
  }
  return Status();
}

}  // namespace axccl
