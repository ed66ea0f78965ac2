// A channel on the device of one rank: the device's structure, the members' addresses for the device, and the calls
// prepared for it. The channel that it belongs to records the calls in its log, except local copies: one CudaChannel
// makes those for all channels of an order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/device/host/timeline.h"
#include "src/exec/channel/channel.h"
#include "src/exec/cuda/layout.h"
#include "src/exec/cuda/links.h"
#include "src/exec/cuda/loans.h"
#include "src/exec/cuda/programs.h"
#include "src/exec/cuda/waits.h"
#include "src/exec/platform/pipeline.h"
#include "src/exec/platform/protocols.h"
#include "src/exec/prepared/plan_cache.h"

namespace axccl::exec {

// Other channels are owned by their communicator.
inline bool IsCreated(const Channel& channel) { return channel.weak_from_this().lock() != nullptr; }

// The parts of a rank that its channels use.
struct CudaParts {
  const device::cuda::Device* device;
  kernels::cuda::Control* control;
  CudaWaits* waits;
  CudaLinks* links;
  CudaPrograms* programs;
  uint64_t map_bytes, grow_bytes;  // of RankOptions
  bool addresses;                  // RankOptions::addresses
};

class CudaChannel {
 public:
  static Result<std::unique_ptr<CudaChannel>> Create(const CudaParts& parts, Channel* channel, CudaPlace place);
  // How such a channel of so many ranks plans its calls.
  static PlanOptions PlanOptionsOf(const CudaLinks& links, CudaPlace place, int ranks);
  ~CudaChannel();

  // Makes a task of the call, in its place in the channel's order. Allocates when its plan is new. For views, makes the
  // table of its operands (CudaViewTableBytes) in the lent memory. `captured`: the task may run any number of times.
  // `on_view`: null, or the call of which this is the FlatCall.
  Result<kernels::cuda::Task> MakeTask(const Call& call, const Lent& table, bool captured,
                                       const Call* on_view = nullptr);
  // Whether the call is made as a FlatCall, of whose buffers others use none. The same on all ranks.
  Result<bool> IsFlat(const Call& call);

  // Returns an error if other devices of the process would use a buffer that they may not access. Must precede
  // MakeTask.
  Status CheckBuffers(const Call& call);

  // Makes a task, in that place, for a stage of a call that copy engines make: a barrier that compares `signature`.
  Result<kernels::cuda::Task> MakeStageTask(const Call& call, uint32_t signature, bool captured);

  // For the channel of a pipeline: makes the task that each of its starts runs; `sliced`, the table and the stamps
  // stay where they are. kInvalidUsage if there is no room for the plan.
  Result<kernels::cuda::Task> MakeSlicedTask(const PipelinePart& part, const Lent& table, CUdeviceptr sliced,
                                             const StartStamps& stamps);

  // Reports a wait as kernels do (kernels::cuda::Wait): of operation `sequence`, for a member or an input chunk.
  void TellWait(uint64_t sequence, const Call& call, uint32_t position, uint64_t count);
  // From now on, the channel's operations are those of graphs, too.
  void Replays() { parts_.waits->Replays(wait_); }

  // For created channels and those of pipelines (meeting.cc): looks for the members, unless they have been found, and
  // for buffers that pipelines read. Returns the position of one that is missing, -1 if none is.
  Result<int> Meet();
  // The same; returns an error when a member will never come.
  Status CheckMeeting();
  const device::host::TimelinePtr& order() const { return order_; }
  // True once this object holds the only reference to the channel.
  bool released() const;

 private:
  CudaChannel(const CudaParts& parts, Channel* channel, CudaPlace place)
      : parts_(parts),
        channel_(place == CudaPlace::kSelf ? nullptr : channel),
        order_(channel->order()),
        place_(place) {}
  Status Upload();
  bool AdaptersReach() const;
  bool AddressesBuffers() const;
  uint64_t SharingDevices() const;
  Call Ordered(const Call& requested) const;
  // `direct`: the result of PrepareDirect, which stays in the cache.
  Result<const Prepared*> Prepare(Call* call, const Prepared* direct);
  Result<const Prepared*> PrepareDirect(const Call& call);
  Result<kernels::cuda::Task> TaskOf(const Call& call, const Prepared& prepared, const CudaPrograms::Uploaded& program,
                                     const Lent& table);
  bool AnnouncesViewsOf(const Call& call) const;
  Status OfferDirect(const Call& call, const Prepared& direct, const Lent& table, bool captured,
                     kernels::cuda::Task* task);
  Status OfferGrown(const Call& call, kernels::cuda::Task* task);
  Status Settle();
  Result<int> FindMissing();
  Status CheckMissing(int position) const;
  kernels::cuda::Member OnDevice(const Member& member) const;
  Result<const CudaPrograms::Uploaded*> UploadedOf(const Prepared& prepared);
  kernels::cuda::Packing ChoosePackingOf(const Call& call, const Prepared& prepared,
                                         const CudaPrograms::Uploaded& program) const;

  const CudaParts parts_;
  Channel* const channel_;  // null: kSelf
  const device::host::TimelinePtr order_;
  const CudaPlace place_;
  std::unique_ptr<const Members> members_;          // with blocks in device memory
  std::unique_ptr<PlanCache> plans_, grown_plans_;  // the second, for grown scratch; null if there will be none
  uint64_t sharing_ = 0;  // the other devices whose kernels use buffers at the addresses that the caller passes
  CUdeviceptr memory_ = 0, maps_ = 0;
  kernels::cuda::Wait* wait_ = nullptr;
  uint32_t looks_ = 0;                         // of TellWait
  std::optional<uint32_t> number_;             // for the proxy
  std::shared_ptr<Channel> hold_;              // for created channels: `channel_`, while kernels may use it
  kernels::cuda::Meeting* meeting_ = nullptr;  // for created channels
  bool met_ = true;
  std::shared_ptr<const PipelineBuffers> buffers_;  // PipelinePart::buffers
};

}  // namespace axccl::exec
