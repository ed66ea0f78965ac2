// The backend "axccl" of torch.distributed for tensors of the CPU: a communicator, a stream for its collectives, and
// streams for messages.
//
// Calls are made by one thread at a time, as of every c10d backend; works may be used by any.
#pragma once

#include <axccl/axccl.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tensors.h"
#include "work.h"

// PyTorch 2.8 splits groups of its own backends only.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR > 8
#define AXCCL_TORCH_SPLITS
#endif

namespace axccl::torch {

class AxcclBackend : public c10d::Backend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  // Collective: ranks find each other through the store.
  AxcclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
               std::string name);
  // Takes the communicator.
  AxcclBackend(ncclComm_t comm, int rank, int size, Milliseconds timeout, std::string name);
  ~AxcclBackend() override;

  const std::string getBackendName() const override { return "axccl"; }
  void shutdown() override;
  void abort() override;
  c10d::ErrorType getError() override;
  // Of torch.distributed.set_timeout; PyTorch 2.8 has none to override.
  virtual void setTimeout(Milliseconds timeout);
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  // Of torch.distributed.shrink_group; PyTorch before 2.10 has none to override.
  virtual bool supportsShrinking() const { return true; }
  virtual c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                             const c10::intrusive_ptr<Options>& options);

#ifdef AXCCL_TORCH_SPLITS
  // Of torch.distributed.split_group, which splits the groups of all devices. `options` may be another backend's.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
#endif

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  // Overrides what PyTorch 2.14 and newer call for gather_single.
  virtual WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options);
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // What a call adds to the library's options.
  struct Launch {
    axcclOptions_t options;
    axcclChannel_t channel;
    cudaStream_t stream;
    ncclComm_t comm;
    // Whether one dense tensor goes by NCCL's function, which is shorter than that for views and has no options. All
    // ranks must call the same one, so they pass a timeout all or none.
    bool plain() const { return options.timeout == 0; }
  };
  // Runs `launch`, from (const Launch&) to ncclResult_t, and makes its work.
  template <class Function>
  WorkPtr Run(const char* call, c10d::OpType type, Operands operands, Tensors outputs, Milliseconds timeout, bool async,
              const Function& launch);
  template <class Function>
  WorkPtr Message(const char* call, c10d::OpType type, Operands operands, Tensors outputs, int peer, int tag,
                  std::shared_ptr<int> source, const Function& launch);
  template <class Function>
  WorkPtr ThrownAtEnd(const Function& message);
  axcclStream_t StreamOf(int peer, bool sending, int tag);
  void CheckOpen(const char* call) const;
  WorkPtr Finished(const char* call, c10d::OpType type, axcclStream_t stream, Operands operands, Tensors outputs,
                   Milliseconds timeout);
  Launch LaunchOn(axcclStream_t stream, Milliseconds timeout) const;
  void Coalesce(Operands operands, Tensors outputs, std::function<ncclResult_t()> launch);
  WorkPtr Reduce(const char* call, c10d::OpType type, Tensors& tensors, const c10d::AllreduceOptions& options);

  const std::string name_;
  const std::shared_ptr<Group> group_;
  Milliseconds timeout_{};
  axcclStream_t stream_ = nullptr;
  std::map<std::tuple<int, bool, int>, axcclStream_t> streams_;  // by peer, whether sending, and tag
  uint64_t sequence_ = 0;
  uint8_t byte_ = 0;  // of barriers
  // Launched when the block of coalesced calls ends: an exception in it must leave no open group.
  struct Coalesced {
    Operands operands{"coalesced calls"};
    Tensors outputs;
    std::vector<std::function<ncclResult_t()>> launches;
    std::exception_ptr failure;  // of a message
  };
  bool coalescing_ = false;
  Coalesced coalesced_;
};

}  // namespace axccl::torch
