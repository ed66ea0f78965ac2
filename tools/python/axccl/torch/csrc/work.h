// The work of one call: what a program waits for, and what keeps its tensors alive.
#pragma once

#include <axccl/axccl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tensors.h"

namespace axccl::torch {

// A communicator with its streams, and what its works share with the backend. Thread-safe.
class Group {
 public:
  explicit Group(ncclComm_t comm) : comm_(comm) {}
  ~Group();
  ncclComm_t comm() const { return comm_; }
  // A stream of this group, which lives as long: works may outlive the backend.
  axcclStream_t AddStream(const char* call);
  // Ends the communicator, and returns when it has ended: after its work is done, or by an abort, which also ends a
  // close in another thread that waits. Returns the first error. `like_python`: it looks for signals while it waits,
  // and throws what a handler raises, after an abort.
  ncclResult_t Close(bool abort, bool like_python = false);
  bool closed() const;
  bool aborted() const;
  // The communicator's error, or what it was when it was closed.
  ncclResult_t Error();
  // Lets go of the communicator without ending it.
  void Release();
  // Keeps what a call uses that nobody waits for until it is done.
  void Retire(axcclEvent_t event, std::vector<at::Tensor> tensors, std::shared_ptr<int> source);

 private:
  enum class State { kOpen, kClosing, kClosed };
  struct Retired {
    axcclEvent_t event;
    std::vector<at::Tensor> tensors;
    std::shared_ptr<int> source;
  };

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  const ncclComm_t comm_;
  State state_ = State::kOpen;
  bool aborted_ = false;
  ncclResult_t error_ = ncclSuccess;  // when it was closed
  std::vector<Retired> retired_;
  std::vector<axcclStream_t> streams_;
};

// Waits until the communicator, which does not block, is no longer being made or finalized. Returns its error then;
// ncclInProgress after so long.
ncclResult_t WaitForComm(ncclComm_t comm, double seconds);

// Waits like Python: looks for signals now and then, and throws what a handler raises, after the communicator has been
// aborted (`group` is null where there is none yet). `wait(seconds)` returns ncclInProgress while it lasts. `limit`:
// c10d's kNoTimeout for none.
ncclResult_t WaitLikePython(Group* group, const char* call, std::chrono::milliseconds limit,
                            ncclResult_t (*wait)(void* what, double seconds), void* what);

class AxcclWork : public c10d::Work {
 public:
  // Work that has been enqueued on `stream`. `source`: where the library writes the rank that a message came from; null
  // if it is known.
  AxcclWork(std::shared_ptr<Group> group, int rank, c10d::OpType type, const char* call, axcclStream_t stream,
            Operands operands, std::vector<at::Tensor> outputs, std::shared_ptr<int> source = nullptr);
  // Work that is done.
  AxcclWork(int rank, c10d::OpType type, const char* call, std::vector<at::Tensor> outputs);
  ~AxcclWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { (void)wait(kNoTimeout); }
  void abort() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  // The work is done: copies outputs to where they belong, and finds out whether it failed. Once.
  void Finish();
  void Complete(const c10::intrusive_ptr<c10::ivalue::Future>& future);

  const std::shared_ptr<Group> group_;  // null: done from the start
  const char* const call_;
  const axcclStream_t stream_ = nullptr;
  axcclEvent_t event_ = nullptr;
  std::vector<at::Tensor> keep_, outputs_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
  std::shared_ptr<int> source_;
  std::mutex finishing_;      // one thread finishes, the others wait until it has
  mutable std::mutex mutex_;  // guards what follows
  bool finished_ = false;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace axccl::torch
