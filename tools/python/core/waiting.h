// Waits that leave the interpreter's lock to other threads and let signals through: the handlers of the program run
// within a tenth of a second, and when one raises (KeyboardInterrupt), what is waited for is aborted. Python runs
// handlers on its main thread alone, so waits of other threads look for none.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

#include "axccl/axccl.h"
#include "tools/python/core/errors.h"

namespace axccl::python {

namespace nb = nanobind;

// Leaves the interpreter's lock to other threads while it lives. A daemon thread whose wait outlives the interpreter
// does not get the lock again, and stays in the destructor until the process ends.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

// Between looks at signals.
inline constexpr double kSecondsBetweenLooks = 0.1;

// Keeps which thread is Python's main one, for the waits. Called when the module is imported.
void FindMainThread();

// Runs `work` on a thread of its own, which has host device `device` as its current one, and waits for it. If a signal
// handler raises meanwhile, calls `abort` until the work ends, and raises that exception. Needs the GIL.
Outcome RunOnDevice(int device, const std::function<ncclResult_t()>& work, const std::function<void()>& abort);

// Waits for the stream, from a thread without the GIL. Returns false if a signal handler raised; the exception is set.
bool Synchronize(axcclStream_t stream, Outcome* outcome);

}  // namespace axccl::python
