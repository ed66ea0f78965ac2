// A rank on a GPU: kernels that are launched on its device run its calls.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/device/cuda/device.h"
#include "src/exec/cuda/channels.h"
#include "src/exec/cuda/copied_calls.h"
#include "src/exec/cuda/links.h"
#include "src/exec/cuda/loans.h"
#include "src/exec/cuda/orders.h"
#include "src/exec/cuda/programs.h"
#include "src/exec/cuda/waits.h"
#include "src/exec/cuda/window_table.h"
#include "src/exec/platform/rank_device.h"
#include "transports/cuda_ipc/multicast_space.h"

namespace axccl::exec {

class CudaPipeline;

// Pipelines of a rank that threads have to look after, while the rank lives.
struct CudaAttended {
  std::mutex mutex;
  std::vector<CudaPipeline*> pipelines;
};

class CudaRank final : public RankDevice {
 public:
  CudaRank(const RankOptions& options, const device::cuda::Device* device);
  // Must follow Disconnect of all ranks that have connected.
  ~CudaRank() override;
  Status Allocate();

  const Platform& platform() const override { return Platform::Cuda(); }
  const Traits& traits() const override;
  Status Share(Setup* setup, const std::vector<Member>& members) override;
  Status FindStream(void* handle, const char* call, StreamRef* stream) const override;
  Status CheckCall(const Call& call) const override;
  Status CheckReadable(const void* memory, const char* name) const override;
  Status CheckMemory(const void* memory, size_t bytes, const char* name) const override;
  Status WhyNoWindows() const override;
  Result<std::unique_ptr<Window>> MakeWindow(Gather* gather, const std::vector<Member>& members,
                                             const OwnShare& share) override;
  uint64_t window_table() const override { return table_->address(); }
  bool has_multimem() const override { return space_ != nullptr; }
  // Channels get their CudaChannel when they are first used (ChannelOf).
  std::unique_ptr<ChannelState> MakeState(const Members&) override { return nullptr; }
  Status LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) override;
  void AddToQuery(const StreamCall& call, tune::Query* query) const override;
  Status CheckReport() override;
  Status Attend() override;
  bool has_report() const override;
  void Abort() override;
  void Relieve() override;
  void WaitIdle() override;
  void ReleaseChannels() override;
  void Disconnect() override;
  bool slow_to_disconnect() const override { return links_.slow_to_disconnect(); }
  Status ShareBuffers(PipelinePart* part, std::span<const int32_t> ranks) override;
  Status ReceiveAny(ChannelOwner* owner, AnySource any, StreamRef stream) override;
  Result<std::shared_ptr<Pipeline>> MakePipeline(Channel* on, std::vector<PipelinePart> parts) override;
  const char* LinkName(const Member& peer) const override;
  DeviceStatistics statistics() const override;
  size_t PreparedCalls(const Channel&) const override { return 0; }
  void LetGoOf(const void* buffer) override;

  // Returns an error if a kernel has failed, which stops all work of the process on the device.
  Status CheckDevice() const;

  int rank() const { return options_.rank; }
  uint32_t most_blocks() const { return options_.most_blocks; }  // of a launch, for this rank
  const device::cuda::Device* device() const { return device_; }
  // Held while the calls of a group are made into tasks and enqueued; guards what follows.
  std::mutex& launching() { return launching_; }
  Result<CudaChannel*> ChannelOf(Channel* channel, CudaPlace place);
  // How many of the blocks that are resident at a time a launch for `ranks` ranks may have: on created channels, or
  // also on the default one. Other ranks on the device need room for theirs, in launches of their own.
  uint64_t ShareOf(uint64_t resident_blocks, size_t ranks, bool created) const;
  // Whether no kernel of the rank is under way, and none of the application waits for others by what the rank has made.
  bool idle() const;
  CudaOrders& orders() { return orders_; }
  CudaLoans& loans() { return loans_; }
  const CudaLinks& links() const { return links_; }
  // What copy engines do for a call on the default channel; nothing if kernels make it.
  std::optional<CopiedCall> CopiedFor(const Call& call) const;
  // The window that it reads stays. Must precede its copies.
  void Keep(const CopiedCall& copied, bool captured) { windows_.Keep(copied.window, captured); }
  const std::shared_ptr<CudaAttended>& attended() const { return attended_; }

 private:
  CudaParts Parts();
  Status CheckSharedBuffers(const PipelinePart& part, std::span<const int32_t> ranks) const;
  void AwaitKernels();
  void AttendScratch();

  const RankOptions options_;
  const device::cuda::Device* const device_;
  bool reserved_ = false;         // memory of the device
  bool shared_reserved_ = false;  // SharedMemory
  kernels::cuda::Control* control_ = nullptr;
  std::unique_ptr<CudaWaits> waits_;
  CudaLinks links_;
  CudaPrograms programs_;
  CudaLoans loans_;
  CudaWindows windows_;
  std::shared_ptr<CudaWindowTable> table_;           // of windows
  std::shared_ptr<cuda_ipc::MulticastSpace> space_;  // of windows; null: kernels do not reach all ranks at once
  CudaOrders orders_;
  CudaChannels channels_{&orders_};
  std::mutex launching_;
  const std::shared_ptr<CudaAttended> attended_ = std::make_shared<CudaAttended>();
};

// The number of the capture that the stream of the device is part of, 0 if there is none (prepare.cc).
Result<uint64_t> CaptureOf(const device::cuda::Device& device, CUstream stream);
// kInvalidArgument for a stream of another context than the device's primary one (prepare.cc). Each thread remembers
// the streams that are of it.
Status CheckContextOf(const device::cuda::Device& device, const OrderedStream& stream);

// For a group (prepare.cc): returns an error unless the streams of all calls are part of one capture on each device, or
// none is captured (the calls then record which it is), and unless there is room for all channels. Enqueues nothing.
Status PrepareOnGpus(std::vector<StreamCall>* calls);
inline CudaPlace PlaceOf(const StreamCall& call) {
  if (call.local) return CudaPlace::kSelf;
  if (IsCreated(*call.channel)) return CudaPlace::kCreated;
  return call.call.kind == plan::Kind::kSendRecv ? CudaPlace::kPair : CudaPlace::kDefault;
}
// Must follow PrepareOnGpus (launch.cc): launches as few kernels as the number of devices and of calls on a channel
// allows.
Status LaunchOnGpus(const std::vector<StreamCall>& calls);

// Memory of the calling thread's GPU (memory.cc). Free returns false when `memory` is from elsewhere.
Result<void*> AllocateOnGpu(size_t bytes);
// The same, for the library itself. Nothing may use the memory any more when it goes.
Result<std::shared_ptr<void>> AllocateForPeers(const device::cuda::Device& device, size_t bytes);
bool FreeOnGpu(void* memory);

}  // namespace axccl::exec
