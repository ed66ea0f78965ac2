// The CUDA side of a rank: its device memory, what it maps of its peers, its channels there, and the programs it has
// uploaded.
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
#include "src/exec/rank_device.h"
#include "transports/cuda_ipc/blocks.h"

namespace axccl::exec {

class CudaRank;

// Memory of the host and as much of the device, where kernels read what the host has written and enqueued a copy of.
struct Lent {
  std::byte* memory = nullptr;
  CUdeviceptr on_device = 0;

  Lent At(size_t offset) const { return {memory + offset, on_device + offset}; }
};

enum class CudaPlace : uint8_t {
  kDefault,
  kPair,     // for messages
  kSelf,     // for what a rank copies alone
  kCreated,  // by the rank, or for messages on such a one: in an area of the device
};

// Other channels belong to their communicator.
inline bool IsCreated(const Channel& channel) { return channel.weak_from_this().lock() != nullptr; }

// One channel on the device of one rank: the device's structure, the members as their devices have them, and the calls
// prepared for it. What ranks call is written down in the log of the channel on the host.
class CudaChannel {
 public:
  static Result<std::unique_ptr<CudaChannel>> Create(CudaRank* rank, Channel* on_host, CudaPlace place);
  ~CudaChannel();

  // The call as a task, in its place in the channel's order. Allocates when its plan is new. On views, the table of its
  // operands (CudaViewTableBytes) is made in the memory lent.
  // `captured`: it may run any number of times.
  Result<kernels::cuda::Task> MakeTask(const Call& call, const Lent& table, bool captured);

  // Created channels (cuda_meeting.cc). Looks for the members, unless they have met: the position of one that is
  // missing, -1 if none is.
  Result<int> Meet();
  // Likewise; an error when one will never come.
  Status CheckMeeting();
  const device::host::TimelinePtr& order() const { return on_host_->order(); }
  CudaPlace place() const { return place_; }
  // Nobody but this needs the channel any more.
  bool released() const;

 private:
  CudaChannel(CudaRank* rank, Channel* on_host, CudaPlace place) : rank_(rank), on_host_(on_host), place_(place) {}
  Status Upload();
  // `direct`: what PrepareDirect has prepared, which stays.
  Result<const Prepared*> Prepare(Call* call, const Prepared* direct);
  Result<const Prepared*> PrepareDirect(const Call& call);
  Status OfferDirect(const Call& call, const Prepared& direct, bool captured, kernels::cuda::Task* task);
  Status Settle();
  kernels::cuda::Member OnDevice(const Member& member) const;

  CudaRank* const rank_;
  Channel* const on_host_;
  const CudaPlace place_;
  std::unique_ptr<const Members> members_;  // their blocks are device memory
  std::unique_ptr<PlanCache> plans_;
  CUdeviceptr memory_ = 0, maps_ = 0;
  kernels::cuda::Wait* wait_ = nullptr;
  std::shared_ptr<Channel> hold_;              // created channels: `on_host`, while kernels may use it
  kernels::cuda::Meeting* meeting_ = nullptr;  // theirs
  bool met_ = true;
};

// Launches that follow each other: those on the default channel and for messages there, or those on a created channel.
struct CudaOrder {
  const device::host::Timeline* of = nullptr;  // null: of none at present
  CUevent done = nullptr;                      // of the last launch outside of graphs
  unsigned long long stream = 0;               // its id: a new stream may have the handle of one that was destroyed
  bool launched = false;
};

class CudaRank final : public RankDevice {
 public:
  CudaRank(const RankOptions& options, device::cuda::Device* device);
  // After Disconnect of all ranks that have connected.
  ~CudaRank() override;
  Status Allocate();

  const Platform& platform() const override { return Platform::Cuda(); }
  Status Share(Setup* setup, const std::vector<Member>& members) override;  // share.cc
  Result<StreamRef> FindStream(void* handle, const char* call) const override;
  Status CheckCall(const Call& call) const override;
  Status CheckMemory(const void* memory, size_t bytes, const char* name) const override;
  Status LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) override;
  Status CheckReport() override;
  bool runs_uneven() const override { return false; }
  bool needs_watch() const override { return true; }
  void Abort() override;
  void WaitIdle() override;
  void ReleaseChannels() override;
  void Disconnect() override;
  bool outlives_rank() const override { return true; }
  // Peers' memory is unmapped.
  bool slow_to_disconnect() const override { return !one_process_ || on_host(); }
  const char* LinkName(const Member& peer) const override;
  DeviceStatistics statistics() const override;
  void LetGoOf(const void* buffer) override;
  bool stages_in_block() const override { return false; }
  bool takes_areas() const override { return true; }
  bool wants_whole_programs() const override { return true; }

  // Steps of Share. The memory through which ranks meet: on the device, and otherwise on the host.
  cuda_ipc::BlockAddress address() const { return blocks_.address(); }
  bool on_host() const { return blocks_.on_host(); }
  // `addresses` and `members` of all ranks, in their order. An error says whose memory is out of reach, and why.
  Status Connect(const std::vector<cuda_ipc::BlockAddress>& addresses, const std::vector<Member>& members);
  // After Connect of all ranks: an error unless data arrive both ways.
  Status TestLinks() { return blocks_.Test(); }
  // At the end: what this rank allows, and then what each of all ranks does. They take what all allow.
  Protocols allowed() const;
  void Agree(const std::vector<Protocols>& allowed);

  // Whether a kernel has gone wrong, and with it all that the process has on the device.
  Status CheckDevice() const;
  // Whether all that was launched outside of graphs is done.
  bool Idle();

  int rank() const { return options_.rank; }
  device::cuda::Device* device() const { return device_; }
  kernels::cuda::Control* control() const { return control_; }
  CudaWaits& waits() { return *waits_; }
  // Null where ranks do not tell of their buffers.
  CudaBuffers* buffers() { return buffers_.get(); }
  uint64_t map_bytes() const { return options_.map_bytes; }
  const Protocols& protocols() const { return protocols_; }
  // Ranks of the communicator on this device.
  uint32_t neighbours() const { return neighbours_; }
  // What the members of `on_host` have on their devices, as mapped here. Of a created channel's members those that are
  // not known yet have something.
  std::vector<Member> MembersOf(const Channel& on_host, CudaPlace place) const;
  // Makes an area as good as new.
  Status ClearArea(int area);
  // The program in device memory; uploaded the first time.
  Result<CUdeviceptr> ProgramOnDevice(const std::shared_ptr<const Program>& program);

  // For whoever launches. Held while the calls of a group are made into tasks and enqueued.
  std::mutex& launching() { return launching_; }
  // `on_host`: of the communicator, where calls with others are made, or any of it.
  Result<CudaChannel*> ChannelFor(Channel* on_host, CudaPlace place);
  // How much of the device's blocks launches may take that run side by side, as one part of how many: those on the
  // default channel, and those on created ones.
  uint32_t Divisor(bool created) const;
  // Puts what follows on `stream` behind what this rank has launched in that order.
  Status Follow(const device::host::Timeline* order, CUstream stream);
  // Something was enqueued on `stream`.
  Status Launched(const device::host::Timeline* order, CUstream stream);
  // For ordering one stream behind another. A wait is for what was recorded last, so one event serves again and again.
  Result<CUevent> OrderingEvent();
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
  // Created channels: looks for members, and lets go of channels that were released.
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
  bool one_process_ = true;  // all ranks
  std::string no_rows_;      // why not, as far as this rank sees
  Protocols protocols_;      // that all ranks allow

  std::mutex launching_;
  std::map<const device::host::Timeline*, std::unique_ptr<Channel>> selves_;  // the only member; by order
  std::map<const Channel*, std::unique_ptr<CudaChannel>> channels_;
  std::map<const Program*, std::pair<std::shared_ptr<const Program>, CUdeviceptr>> programs_;
  std::vector<std::unique_ptr<CudaOrder>> orders_;
  bool creates_channels_ = false;
  CUevent ordering_ = nullptr;
  std::vector<Loan> loans_;
};

// Of a group (prepare.cc): an error unless the streams of all calls are part of one capture on each device, or none is
// of any (the calls say then which it is), and unless there is room for all channels. Nothing has been enqueued then.
Status PrepareOnGpus(std::vector<StreamCall>* calls);
// After that (launch.cc): in as few launches as there are devices and calls on a channel.
Status LaunchOnGpus(const std::vector<StreamCall>& calls);

// Memory of the calling thread's GPU (memory.cc). False when `memory` is not from there.
Result<void*> AllocateOnGpu(size_t bytes);
bool FreeOnGpu(void* memory);

}  // namespace axccl::exec
