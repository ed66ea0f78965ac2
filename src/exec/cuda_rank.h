// The CUDA side of a rank: its device memory, what it maps of its peers, its channels there, and the programs it has uploaded.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/device/cuda/device.h"
#include "src/exec/cuda_layout.h"
#include "src/exec/gpu.h"

namespace axccl::exec {

class CudaRank;

// Memory of the host and as much of the device, where kernels read what the host has written and enqueued a copy of.
struct Lent {
  std::byte* memory = nullptr;
  CUdeviceptr on_device = 0;

  Lent At(size_t offset) const { return {memory + offset, on_device + offset}; }
};

// One channel on the device of one rank: the device's structure, and a channel on the host that prepares calls for it.
class CudaChannel {
 public:
  static Result<std::unique_ptr<CudaChannel>> Create(CudaRank* rank, Channel* on_host, bool pair);
  ~CudaChannel();

  // The call as a task, in its place in the channel's order. Allocates when its plan is new. On views, the table of its
  // operands (CudaViewTableBytes) is made in the memory lent.
  Result<kernels::cuda::Task> MakeTask(const Call& call, const Lent& table);

 private:
  CudaChannel(CudaRank* rank, Channel* on_host) : rank_(rank), on_host_(on_host) {}
  Status Upload();

  CudaRank* const rank_;
  Channel* const on_host_;
  std::shared_ptr<Channel> preparer_;  // its members' blocks are device memory
  CUdeviceptr memory_ = 0;
};

class CudaRank : public GpuRank {
 public:
  CudaRank(const GpuOptions& options, device::cuda::Device* device);
  ~CudaRank() override;
  Status Allocate();

  GpuAddress address() const override { return address_; }
  Status Connect(const std::vector<GpuAddress>& addresses, const std::vector<Member>& members) override;
  Status CheckCall(const Call& call) const override;
  Status CheckMemory(const void* memory, size_t bytes, const char* name) const override;
  Status TakeReport() override;
  void Abort() override;
  bool Idle() override;
  void WaitIdle() override;
  void Disconnect() override;

  device::cuda::Device* device() const { return device_; }
  kernels::cuda::Control* control() const { return control_; }
  // Ranks of the communicator on this device.
  uint32_t neighbours() const { return neighbours_; }
  // What the members of `on_host` have on their devices, as mapped here.
  std::vector<Member> MembersOf(const Channel& on_host, bool pair) const;
  // The program in device memory; uploaded the first time.
  Result<CUdeviceptr> ProgramOnDevice(const std::shared_ptr<const Program>& program);

  // For whoever launches. Held while the calls of a group are made into tasks and enqueued.
  std::mutex& launching() { return launching_; }
  // `pair`: for messages; else the default channel.
  Result<CudaChannel*> ChannelFor(Channel* on_host, bool pair);
  // Puts what follows on `stream` behind what this rank has launched before.
  Status Follow(CUstream stream);
  // Something was enqueued on `stream`.
  Status Launched(CUstream stream);
  // Until it is returned and what is on `stream` by then is done. `captured`: for the rank's life.
  Result<Lent> Lend(size_t bytes, bool captured);
  Status Return(const Lent& lent, CUstream stream);

 private:
  struct Loan {
    Lent what;
    size_t bytes;
    CUevent done;      // null: lent for good
    bool lent = true;  // not returned
  };

  Status CheckViews(const ViewList& views) const;

  const GpuOptions options_;
  device::cuda::Device* const device_;
  const CudaLayout layout_;
  GpuAddress address_;
  CUdeviceptr memory_ = 0;
  kernels::cuda::Control* control_ = nullptr;
  std::vector<std::byte*> blocks_;    // by rank
  std::vector<CUdeviceptr> opened_;   // of other processes
  uint32_t neighbours_ = 1;

  std::mutex launching_;
  std::map<const Channel*, std::unique_ptr<CudaChannel>> channels_;
  std::map<const Program*, std::pair<std::shared_ptr<const Program>, CUdeviceptr>> programs_;
  CUevent done_ = nullptr;  // of the last launch outside of graphs
  unsigned long long last_stream_ = 0;  // its id: a new stream may have the handle of one that was destroyed
  bool launched_ = false;
  std::vector<Loan> loans_;
};

}  // namespace axccl::exec
