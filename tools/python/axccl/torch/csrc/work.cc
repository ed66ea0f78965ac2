#include "work.h"

#include <Python.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "completer.h"

namespace axccl::torch {
namespace {

using Future = c10::ivalue::Future;
using Clock = std::chrono::steady_clock;

constexpr double kSecondsBetweenLooks = 0.1;

}  // namespace

// ---- group ----

Group::~Group() { (void)Close(true); }

ncclResult_t Group::Close(bool abort) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return ncclSuccess;
  }
  const ncclResult_t result = abort ? ncclCommAbort(comm_) : ncclCommDestroy(comm_);
  std::lock_guard lock(mutex_);
  for (const Retired& retired : retired_) (void)axcclEventDestroy(retired.event);
  retired_.clear();
  return result;
}

bool Group::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

void Group::Release() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

void Group::Sweep() {
  const auto done = [](const Retired& retired) {
    if (axcclEventQuery(retired.event) == ncclInProgress) return false;
    (void)axcclEventDestroy(retired.event);
    return true;
  };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), done), retired_.end());
}

void Group::Retire(axcclEvent_t event, std::vector<at::Tensor> tensors) {
  std::lock_guard lock(mutex_);
  Sweep();
  retired_.push_back({event, std::move(tensors)});
}

ncclResult_t WaitLikePython(Group* group, const char* call, std::chrono::milliseconds limit,
                            ncclResult_t (*wait)(void*, double), void* what) {
  const bool limited = limit != kNoTimeout && limit.count() >= 0;
  const auto end = Clock::now() + (limited ? limit : std::chrono::milliseconds(0));
  for (;;) {
    const double left = limited ? std::chrono::duration<double>(end - Clock::now()).count() : kSecondsBetweenLooks;
    const ncclResult_t result = wait(what, std::clamp(left, 0.0, kSecondsBetweenLooks));
    if (result != ncclInProgress) return result;
    if (limited && Clock::now() >= end) return result;
    const pybind11::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) continue;
    const pybind11::error_already_set raised;
    {
      // What the call reads and writes may go away now.
      const pybind11::gil_scoped_release unlocked;
      (void)group->Close(true);
    }
    throw raised;
  }
}

// ---- work ----

AxcclWork::AxcclWork(std::shared_ptr<Group> group, int rank, c10d::OpType type, const char* call, axcclStream_t stream,
                     Operands operands, std::vector<at::Tensor> outputs, std::shared_ptr<int> source)
    : Work(rank, type),
      group_(std::move(group)),
      call_(call),
      stream_(stream),
      keep_(std::move(operands.keep)),
      outputs_(std::move(outputs)),
      copies_(std::move(operands.copies)),
      source_(std::move(source)) {
  Check(axcclEventCreate(&event_), call);
  Check(axcclEventRecord(event_, stream_), call);
}

AxcclWork::AxcclWork(int rank, c10d::OpType type, const char* call, std::vector<at::Tensor> outputs)
    : Work(rank, type), call_(call), outputs_(std::move(outputs)), finished_(true) {}

AxcclWork::~AxcclWork() {
  if (event_ == nullptr) return;
  if (axcclEventQuery(event_) != ncclInProgress) {
    (void)axcclEventDestroy(event_);
    return;
  }
  // Nobody waited. The copies of strided outputs are not made then; nobody could tell when to read them.
  group_->Retire(event_, std::move(keep_));
}

void AxcclWork::Finish() {
  std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true)) return;
  try {
    ncclResult_t state = ncclSuccess;
    if (group_->closed())
      C10_THROW_ERROR(DistBackendError, std::string("axccl: ") + call_ +
                                            ": the group was aborted, or destroyed, "
                                            "before the call was done");
    Check(ncclCommGetAsyncError(group_->comm(), &state), call_);
    Check(state, call_, group_->comm());
    for (const auto& [to, from] : copies_) to.copy_(from);
  } catch (...) {
    error_ = std::current_exception();
  }
  keep_.clear();
  copies_.clear();
}

bool AxcclWork::isCompleted() {
  if (group_ == nullptr) return true;
  if (axcclEventQuery(event_) == ncclInProgress) {
    (void)axcclStreamQuery(stream_);  // which helps to do it
    if (axcclEventQuery(event_) == ncclInProgress) return false;
  }
  Finish();
  return true;
}

bool AxcclWork::isSuccess() const {
  std::lock_guard lock(mutex_);
  return error_ == nullptr;
}

std::exception_ptr AxcclWork::exception() const {
  std::lock_guard lock(mutex_);
  return error_;
}

int AxcclWork::sourceRank() const { return source_ != nullptr ? *source_ : Work::sourceRank(); }

bool AxcclWork::wait(std::chrono::milliseconds timeout) {
  if (group_ != nullptr) {
    const ncclResult_t result = WaitLikePython(
        group_.get(), call_, timeout,
        [](void* event, double seconds) { return axcclEventSynchronizeFor(static_cast<axcclEvent_t>(event), seconds); },
        event_);
    if (result == ncclInProgress)
      C10_THROW_ERROR(DistBackendError, std::string("axccl: ") + call_ + ": not done after " +
                                            std::to_string(timeout.count()) + " ms, which wait() was given");
    Check(result, call_);
    Finish();
  }
  std::lock_guard lock(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return true;
}

void AxcclWork::abort() {
  if (group_ != nullptr) (void)group_->Close(true);
}

void AxcclWork::Complete(const c10::intrusive_ptr<Future>& future) {
  if (const std::exception_ptr error = exception(); error != nullptr) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs_));
  }
}

c10::intrusive_ptr<Future> AxcclWork::getFuture() {
  {
    std::lock_guard lock(mutex_);
    if (future_ != nullptr) return future_;
    future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  }
  const c10::intrusive_ptr<Future> future = future_;
  if (isCompleted()) {
    Complete(future);
    return future;
  }
  // The stream's thread hands over to another one, because callbacks may wait for the stream.
  using Self = c10::intrusive_ptr<AxcclWork>;
  auto* const self = new Self(c10::intrusive_ptr<AxcclWork>::reclaim_copy(this));
  const auto done = [](void* argument) {
    Self* const work = static_cast<Self*>(argument);
    RunApart([work] {
      const std::unique_ptr<Self> owned(work);
      const c10::intrusive_ptr<Future> future = (*owned)->future_;
      (*owned)->Finish();
      (*owned)->Complete(future);
    });
  };
  const ncclResult_t launched = axcclLaunchHostFunc(stream_, done, self);
  if (launched != ncclSuccess) delete self;
  Check(launched, call_);
  return future;
}

}  // namespace axccl::torch
