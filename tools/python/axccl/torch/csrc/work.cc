#include "work.h"

#include <Python.h>
#include <time.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>

#include "../../csrc/threads.h"

namespace axccl::torch {
namespace {

using Future = c10::ivalue::Future;
using Clock = std::chrono::steady_clock;

constexpr double kSecondsBetweenLooks = 0.1;

// What the handler of a signal raises, if one has come. Python runs handlers on its main thread only; the others of a
// program that ends must not ask for Python's lock.
std::optional<pybind11::error_already_set> RaisedBySignal() {
  if (gettid() != getpid()) return std::nullopt;
  const pybind11::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return std::nullopt;
  return pybind11::error_already_set();
}

}  // namespace

// ---- group ----

Group::~Group() {
  (void)Close(true);
  for (const axcclStream_t stream : streams_) (void)axcclStreamDestroy(stream);
}

axcclStream_t Group::AddStream(const char* call) {
  axcclStream_t stream = nullptr;
  Check(axcclStreamCreate(&stream, axcclStreamNonBlocking), call);
  std::lock_guard lock(mutex_);
  return streams_.emplace_back(stream);
}

ncclResult_t Group::Close(bool abort, bool like_python) {
  std::optional<pybind11::error_already_set> raised;
  std::vector<Retired> retired;  // tensors are dropped without the lock: that may need Python's
  {
    std::unique_lock lock(mutex_);
    if (state_ == State::kClosed) return ncclSuccess;
    if (state_ == State::kClosing) {
      if (abort && !std::exchange(aborted_, true)) {
        lock.unlock();
        (void)ncclCommAbort(comm_);  // ends the wait of the other thread
        lock.lock();
      }
      ended_.wait(lock, [&] { return state_ == State::kClosed; });
      return ncclSuccess;
    }
    state_ = State::kClosing;
    aborted_ = abort;
  }
  ncclResult_t error = ncclSuccess;
  if (!abort) {
    (void)ncclCommFinalize(comm_);
    while ((error = WaitForComm(comm_, kSecondsBetweenLooks)) == ncclInProgress) {
      if (!like_python || !(raised = RaisedBySignal())) continue;
      std::lock_guard lock(mutex_);
      abort = aborted_ = true;
      break;
    }
  }
  const ncclResult_t result = abort ? ncclCommAbort(comm_) : ncclCommDestroy(comm_);
  {
    std::lock_guard lock(mutex_);
    state_ = State::kClosed;
    error_ = error;
    retired.swap(retired_);
  }
  ended_.notify_all();
  for (const Retired& one : retired) (void)axcclEventDestroy(one.event);
  if (raised) throw *raised;
  return result;
}

bool Group::closed() const {
  std::lock_guard lock(mutex_);
  return state_ != State::kOpen;
}

bool Group::aborted() const {
  std::lock_guard lock(mutex_);
  return aborted_;
}

// While the group is being closed, calls may still fail; at its end there is no communicator to ask.
ncclResult_t Group::Error() {
  std::unique_lock lock(mutex_);
  if (state_ == State::kClosed) return error_;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess && state_ == State::kClosing) {
    ended_.wait(lock, [&] { return state_ == State::kClosed; });
    return error_;
  }
  return asked != ncclSuccess ? asked : state == ncclInProgress ? ncclSuccess : state;
}

void Group::Release() {
  std::lock_guard lock(mutex_);
  state_ = State::kClosed;
}

void Group::Retire(axcclEvent_t event, std::vector<at::Tensor> tensors, std::shared_ptr<int> source) {
  std::vector<Retired> done;
  {
    std::lock_guard lock(mutex_);
    const auto still_runs = [](const Retired& one) { return axcclEventQuery(one.event) == ncclInProgress; };
    const auto first = std::partition(retired_.begin(), retired_.end(), still_runs);
    std::move(first, retired_.end(), std::back_inserter(done));
    retired_.erase(first, retired_.end());
    retired_.push_back({event, std::move(tensors), std::move(source)});
  }
  for (const Retired& one : done) (void)axcclEventDestroy(one.event);
}

ncclResult_t WaitForComm(ncclComm_t comm, double seconds) {
  ncclResult_t state = ncclInProgress;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) return asked;
    if (state != ncclInProgress) return state;
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
  return state;
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
    const std::optional<pybind11::error_already_set> raised = RaisedBySignal();
    if (!raised) continue;
    // What the call reads and writes may go away now.
    if (group != nullptr) (void)group->Close(true);
    throw *raised;
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
  group_->Retire(event_, std::move(keep_), std::move(source_));
}

void AxcclWork::Finish() {
  // Dropped without the lock: that may need Python's.
  std::vector<at::Tensor> keep;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  std::lock_guard finishing(finishing_);
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    keep.swap(keep_);
    copies.swap(copies_);
  }
  std::exception_ptr error;
  try {
    if (group_->aborted())
      C10_THROW_ERROR(DistBackendError,
                      std::string("axccl: ") + call_ + ": the group was aborted before the call was done");
    Check(group_->Error(), call_, group_->closed() ? nullptr : group_->comm());
    CopyBack(copies);
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  error_ = error;
  finished_ = true;
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
  // On a stream of its own, so that later work of the group does not delay it; and its thread hands over to another
  // one, because callbacks may wait for the group.
  using Self = c10::intrusive_ptr<AxcclWork>;
  auto* const self = new Self(c10::intrusive_ptr<AxcclWork>::reclaim_copy(this));
  const auto done = [](void* argument) {
    Self* const work = static_cast<Self*>(argument);
    const auto complete = [work] {
      const std::unique_ptr<Self> owned(work);
      (*owned)->Finish();
      (*owned)->Complete((*owned)->future_);
    };
    // Where there is no thread, a callback that waits for the group is the lesser evil.
    if (!python::RunApart(complete)) complete();
  };
  axcclStream_t stream = nullptr;
  ncclResult_t launched = axcclStreamCreate(&stream, axcclStreamNonBlocking);
  if (launched == ncclSuccess) launched = axcclStreamWaitEvent(stream, event_);
  if (launched == ncclSuccess) launched = axcclLaunchHostFunc(stream, done, self);
  if (stream != nullptr) (void)axcclStreamDestroy(stream);  // its work is still done
  if (launched != ncclSuccess) {
    delete self;
    std::lock_guard lock(mutex_);
    future_ = nullptr;
  }
  Check(launched, call_);
  return future;
}

}  // namespace axccl::torch
