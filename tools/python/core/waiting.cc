#include "tools/python/core/waiting.h"

#include <cxxabi.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace axccl::python {
namespace {

unsigned long g_main_thread = 0;  // NOLINT: the type of Python's

// The end of a thread's work.
class Flag {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  // Returns whether it is set, after kSecondsBetweenLooks at the latest.
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(kSecondsBetweenLooks), [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Whether a signal handler raised.
bool Interrupted() {
  if (PyThread_get_thread_ident() != g_main_thread) return false;
  const nb::gil_scoped_acquire locked;
  return PyErr_CheckSignals() != 0;
}

}  // namespace

Unlocked::~Unlocked() {
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {  // Python before 3.14 ends the thread when the interpreter has ended
    while (true) (void)pause();
  }
}

void FindMainThread() {
  const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  g_main_thread = nb::cast<unsigned long>(thread.attr("ident"));  // NOLINT
}

Outcome RunOnDevice(int device, const std::function<ncclResult_t()>& work, const std::function<void()>& abort) {
  Flag ended;
  Outcome outcome;
  bool interrupted = false;
  {
    const Unlocked unlocked;
    std::thread thread;
    try {
      thread = std::thread([&] {
        outcome = Take(axcclHostSetDevice(device));
        if (outcome.code == ncclSuccess) outcome = Take(work());
        ended.Set();
      });
    } catch (const std::system_error& error) {
      return {ncclSystemError,
              std::string("no thread can be started: ") + error.what() + "; raise the limit on threads (ulimit -u)"};
    }
    while (!ended.Wait()) {
      interrupted = interrupted || Interrupted();
      if (interrupted) abort();
    }
    thread.join();
  }
  if (interrupted) throw nb::python_error();
  return outcome;
}

bool Synchronize(axcclStream_t stream, Outcome* outcome) {
  ncclResult_t result = ncclSuccess;
  while ((result = axcclStreamSynchronizeFor(stream, kSecondsBetweenLooks)) == ncclInProgress) {
    if (Interrupted()) return false;
  }
  *outcome = Take(result);
  return true;
}

}  // namespace axccl::python
