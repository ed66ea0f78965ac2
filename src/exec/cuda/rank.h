// The CUDA side of a rank: its device memory, its mappings of peers' memory, its channels on the device, and the
// programs that it has uploaded.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/device/cuda/device.h"
#include "src/device/host/timeline.h"
#include "src/exec/cuda/buffers.h"
#include "src/exec/cuda/layout.h"
#include "src/exec/cuda/waits.h"
#include "src/exec/platform/rank_device.h"
#include "src/exec/prepared/plan_cache.h"
#include "transports/cuda_ipc/connect.h"

namespace axccl::exec {

class CudaRank;

// Memory of the host and the same amount on the device: kernels read there what the host has written and enqueued a
// copy of.
struct Lent {
  std::byte* memory = nullptr;
  CUdeviceptr on_device = 0;

  Lent At(size_t offset) const { return {memory + offset, on_device + offset}; }
};

enum class CudaPlace : uint8_t {
  kDefault,
  kPair,     // for messages
  kSelf,     // for local copies
  kCreated,  // created by the rank, or for messages of such a channel: in an area of the device
};

// Other channels are owned by their communicator.
inline bool IsCreated(const Channel& channel) { return channel.weak_from_this().lock() != nullptr; }

// One channel on the device of one rank: the device's structure, the members' addresses for the device, and the calls
// prepared for it. The host's channel records the calls in its log, except local copies: one CudaChannel makes those
// for all channels of an order.
class CudaChannel {
 public:
  static Result<std::unique_ptr<CudaChannel>> Create(CudaRank* rank, Channel* on_host, CudaPlace place);
  ~CudaChannel();

  // Makes a task of the call, in its place in the channel's order. Allocates when its plan is new. For views, makes the
  // table of its operands (CudaViewTableBytes) in the lent memory. `captured`: the task may run any number of times.
  Result<kernels::cuda::Task> MakeTask(const Call& call, const Lent& table, bool captured);

  // For created channels (meeting.cc): looks for the members, unless they have been found. Returns the position of one
  // that is missing, -1 if none is.
  Result<int> Meet();
  // The same; returns an error when a member will never come.
  Status CheckMeeting();
  const device::host::TimelinePtr& order() const { return order_; }
  // True once this object holds the only reference to the channel.
  bool released() const;

 private:
  CudaChannel(CudaRank* rank, Channel* on_host, CudaPlace place)
      : rank_(rank), on_host_(place == CudaPlace::kSelf ? nullptr : on_host), order_(on_host->order()), place_(place) {}
  Status Upload();
  // `direct`: the result of PrepareDirect, which stays in the cache.
  Result<const Prepared*> Prepare(Call* call, const Prepared* direct);
  Result<const Prepared*> PrepareDirect(const Call& call);
  Status OfferDirect(const Call& call, const Prepared& direct, bool captured, kernels::cuda::Task* task);
  Status Settle();
  kernels::cuda::Member OnDevice(const Member& member) const;

  CudaRank* const rank_;
  Channel* const on_host_;  // null: kSelf
  const device::host::TimelinePtr order_;
  const CudaPlace place_;
  std::unique_ptr<const Members> members_;  // with blocks in device memory
  std::unique_ptr<PlanCache> plans_;
  CUdeviceptr memory_ = 0, maps_ = 0;
  kernels::cuda::Wait* wait_ = nullptr;
  std::shared_ptr<Channel> hold_;              // for created channels: `on_host`, while kernels may use it
  kernels::cuda::Meeting* meeting_ = nullptr;  // for created channels
  bool met_ = true;
};

// The order of consecutive launches: those on the default channel and for its messages, or those on a created channel.
struct CudaOrder {
  const device::host::Timeline* of = nullptr;  // null: unused at present
  CUevent done = nullptr;                      // of the last launch outside of graphs
  unsigned long long stream = 0;               // its id: a new stream may have the handle of one that was destroyed
  bool launched = false;
};

class CudaRank final : public RankDevice {
 public:
  CudaRank(const RankOptions& options, device::cuda::Device* device);
  // Must follow Disconnect of all ranks that have connected.
  ~CudaRank() override;
  Status Allocate();

  const Platform& platform() const override { return Platform::Cuda(); }
  Status Share(Setup* setup, const std::vector<Member>& members) override;  // share.cc
  Result<StreamRef> FindStream(void* handle, const char* call) const override;
  Status CheckCall(const Call& call) const override;
  Status CheckMemory(const void* memory, size_t bytes, const char* name) const override;
  // Channels get their CudaChannel when they are first used (ChannelFor).
  std::unique_ptr<ChannelState> MakeState(const Members&) override { return nullptr; }
  Status LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) override;
  Status CheckReport() override;
  bool runs_uneven() const override { return false; }
  bool needs_watch() const override { return true; }
  void Abort() override;
  void WaitIdle() override;
  void ReleaseChannels() override;
  void Disconnect() override;
  bool outlives_rank() const override { return true; }
  // True if peers' memory has to be unmapped.
  bool slow_to_disconnect() const override { return !one_process_ || on_host(); }
  const char* LinkName(const Member& peer) const override;
  DeviceStatistics statistics() const override;
  size_t PreparedCalls(const Channel&) const override { return 0; }
  void LetGoOf(const void* buffer) override;
  bool stages_in_block() const override { return false; }
  bool takes_areas() const override { return true; }
  bool wants_whole_programs() const override { return true; }

  // Steps of Share. The memory through which ranks communicate is on the device, or otherwise on the host.
  cuda_ipc::BlockAddress address() const { return blocks_.address(); }
  bool on_host() const { return blocks_.on_host(); }
  // `addresses` and `hosts` of all ranks, in their order. An error names the rank whose memory is out of reach, and
  // why.
  Status Connect(const std::vector<cuda_ipc::BlockAddress>& addresses, const cuda_ipc::Blocks::Hosts& hosts);
  // Must follow Connect of all ranks. Returns an error unless data arrives both ways.
  Status TestLinks() { return blocks_.Test(); }
  // The last step: the protocols that this rank allows; then Use gets those of all ranks, and keeps what all allow.
  Protocols allowed() const;
  void Agree(const std::vector<Protocols>& allowed);

  // Returns an error if a kernel has failed, which stops all work of the process on the device.
  Status CheckDevice() const;
  // Whether everything that was launched outside of graphs is done.
  bool Idle();

  int rank() const { return options_.rank; }
  device::cuda::Device* device() const { return device_; }
  kernels::cuda::Control* control() const { return control_; }
  CudaWaits& waits() { return *waits_; }
  // Null if ranks do not announce their buffers.
  CudaBuffers* buffers() { return buffers_.get(); }
  uint64_t map_bytes() const { return options_.map_bytes; }
  const Protocols& protocols() const { return protocols_; }
  // The number of ranks of the communicator on this device.
  uint32_t neighbours() const { return neighbours_; }
  // The device memory of the members of `on_host`, as mapped here; for kSelf, of this rank alone. Members of a created
  // channel that have not been found yet get a placeholder.
  std::vector<Member> MembersOf(const Channel& on_host, CudaPlace place) const;
  // Resets an area.
  Status ClearArea(int area);
  // Returns the program in device memory; uploads it the first time.
  Result<CUdeviceptr> ProgramOnDevice(const std::shared_ptr<const Program>& program);

  // Held while the calls of a group are made into tasks and enqueued.
  std::mutex& launching() { return launching_; }
  // `on_host`: the channel of the communicator on which calls with others are made, or any of it.
  Result<CudaChannel*> ChannelFor(Channel* on_host, CudaPlace place);
  // The share of the device's blocks that simultaneous launches may use, as one part of how many: those on the default
  // channel, and those on created ones.
  uint32_t Divisor(bool created) const;
  // Makes what follows on `stream` wait for what this rank has launched in that order.
  Status Follow(const device::host::Timeline* order, CUstream stream);
  // Records that work was enqueued on `stream`.
  Status Launched(const device::host::Timeline* order, CUstream stream);
  // An event for ordering one stream behind another. A wait refers to the last record, so one event can be reused.
  Result<CUevent> OrderingEvent();
  // Lends memory until it is returned and everything on `stream` at that time is done. `captured`: for the rank's life.
  Result<Lent> Lend(size_t bytes, bool captured);
  Status Return(const Lent& lent, CUstream stream);

 private:
  struct Loan {
    Lent what;
    size_t bytes;
    CUevent done;      // null: lent forever
    bool lent = true;  // not returned
  };

  Status CheckViews(const ViewList& views) const;
  // Created channels: looks for members, and drops channels that were released.
  Status CheckMeetings();
  void Sweep();
  bool ReleaseOne();
  Result<CudaOrder*> OrderOf(const device::host::Timeline* order);
  bool IsDone(const CudaOrder& order) const;

  const RankOptions options_;
  device::cuda::Device* const device_;
  const CudaLayout layout_;
  cuda_ipc::Blocks blocks_;
  kernels::cuda::Control* control_ = nullptr;
  std::unique_ptr<CudaWaits> waits_;
  std::unique_ptr<CudaBuffers> buffers_;
  uint32_t neighbours_ = 1;
  bool one_process_ = true;  // all ranks are in one process
  std::string no_rows_;      // why this rank cannot use rows
  Protocols protocols_;      // allowed by all ranks

  std::mutex launching_;
  std::map<const Channel*, std::unique_ptr<CudaChannel>> channels_;
  std::map<const device::host::Timeline*, std::unique_ptr<CudaChannel>> selves_;  // kSelf, by order
  std::map<const Program*, std::pair<std::shared_ptr<const Program>, CUdeviceptr>> programs_;
  std::vector<std::unique_ptr<CudaOrder>> orders_;
  bool creates_channels_ = false;
  CUevent ordering_ = nullptr;
  std::vector<Loan> loans_;
};

// For a group (prepare.cc): returns an error unless the streams of all calls are part of one capture on each device, or
// none is captured (the calls then record which it is), and unless there is room for all channels. Enqueues nothing.
Status PrepareOnGpus(std::vector<StreamCall>* calls);
// Must follow PrepareOnGpus (launch.cc): launches as few kernels as the number of devices and of calls on a channel
// allows.
Status LaunchOnGpus(const std::vector<StreamCall>& calls);

// Memory of the calling thread's GPU (memory.cc). Free returns false when `memory` is from elsewhere.
Result<void*> AllocateOnGpu(size_t bytes);
bool FreeOnGpu(void* memory);

}  // namespace axccl::exec
