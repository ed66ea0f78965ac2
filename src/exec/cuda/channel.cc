#include "src/exec/cuda/channel.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/exec/cuda/flat_call.h"
#include "src/exec/cuda/grown_scratch.h"
#include "src/exec/cuda/packing.h"
#include "src/exec/cuda/pipeline_buffers.h"
#include "src/exec/cuda/pointers.h"
#include "src/exec/cuda/program.h"
#include "src/exec/cuda/views.h"

namespace axccl::exec {

using device::cuda::Device;
namespace cuda = kernels::cuda;

PlanOptions CudaChannel::PlanOptionsOf(const CudaLinks& links, CudaPlace place, int ranks) {
  // Slots are packed in another way, and tasks find their buffers themselves.
  PlanOptions options{.inline_bytes = 0, .by_runs = false, .rotated_bytes = UINT64_MAX};
  const bool is_default = place == CudaPlace::kDefault;
  for (int kind = 0; kind < plan::kNumKinds; ++kind)
    options.flagged_bytes[static_cast<size_t>(kind)] =
        MostPackedBytes(static_cast<plan::Kind>(kind), static_cast<uint32_t>(ranks), is_default, links.protocols());
  if (const CudaMulticast* const multicast = links.multicast(); multicast != nullptr && is_default) {
    options.multicast_bytes = multicast->bytes();
    options.multicast_folds = CudaMulticast::Folds;
  }
  return options;
}

Result<std::unique_ptr<CudaChannel>> CudaChannel::Create(const CudaParts& parts, Channel* channel, CudaPlace place) {
  std::unique_ptr<CudaChannel> on_device(new CudaChannel(parts, channel, place));
  if (IsInArea(place)) AXCCL_RETURN_IF_ERROR(on_device->Settle());
  const int self = place == CudaPlace::kSelf ? 0 : channel->self();
  on_device->members_ = std::make_unique<Members>(channel->owner(), parts.links->MembersOf(*channel, place), self);
  PlanOptions options = PlanOptionsOf(*parts.links, place, on_device->members_->size());
  on_device->plans_ = std::make_unique<PlanCache>(on_device->members_.get(), options, nullptr);
  if (const GrownScratch* const grown = parts.links->grown_scratch();
      grown != nullptr && place == CudaPlace::kDefault) {
    options.scratch_bytes = grown->bytes();
    on_device->grown_plans_ = std::make_unique<PlanCache>(on_device->members_.get(), options, nullptr);
  }
  on_device->sharing_ = on_device->SharingDevices();
  AXCCL_RETURN_IF_ERROR(on_device->Upload());
  return on_device;
}

CudaChannel::~CudaChannel() {
  if (number_) parts_.links->proxy()->RemoveChannel(*number_);
  if (wait_ != nullptr) parts_.waits->Leave(wait_);
  if (memory_ != 0) parts_.device->Return(memory_);
  if (meeting_ != nullptr) parts_.device->ReturnHost(meeting_);
}

Status CudaChannel::Upload() {
  if (place_ != CudaPlace::kSelf) {  // such a channel never waits
    AXCCL_ASSIGN_OR_RETURN(wait_, parts_.waits->Enter(channel_));
  }
  const CudaPrograms::Uploaded* barrier_program = nullptr;
  if (place_ != CudaPlace::kPipeline) {  // whose only plan follows itself
    AXCCL_ASSIGN_OR_RETURN(const Prepared* barrier, plans_->PrepareBarrier());
    AXCCL_ASSIGN_OR_RETURN(barrier_program, UploadedOf(*barrier));
  }
  const auto size = static_cast<uint32_t>(members_->size());
  constexpr size_t members_at = cuda::Channel::MembersAt();
  const size_t bindings_at = RoundUp(members_at + size * sizeof(cuda::Member), kCacheLine);
  const size_t maps_at = RoundUp(bindings_at + size * sizeof(cuda::Binding), kCacheLine);
  std::vector<std::byte> bytes(maps_at + sizeof(uint64_t));  // a single map: the address space
  AXCCL_ASSIGN_OR_RETURN(memory_, parts_.device->Take(bytes.size()));
  maps_ = memory_ + maps_at;

  cuda::Channel channel;
  channel.meeting = meeting_;
  channel.state.unmet = !met_;
  channel.control = parts_.control;
  channel.wait = wait_;
  channel.barrier = barrier_program != nullptr ? barrier_program->on_device() : nullptr;
  if (CudaProxy* const proxy = parts_.links->proxy(); proxy != nullptr && members_->inbox() != nullptr) {
    channel.ring = parts_.links->ring();
    channel.posted = reinterpret_cast<uint32_t*>(parts_.links->posted());
    number_ = channel.number = proxy->AddChannel(channel_);
  }
  channel.half_bytes = members_->own().layout.scratch_bytes / plan::kRotation;
  if (grown_plans_ != nullptr) channel.grown_half_bytes = parts_.links->grown_scratch()->bytes() / plan::kRotation;
  channel.endpoints = members_->own().layout.endpoints;
  channel.lanes = members_->own().layout.lanes;
  channel.size = size;
  channel.self = static_cast<uint32_t>(members_->self());
  channel.bindings_at = static_cast<uint32_t>(bindings_at);
  channel.view_bytes = members_->own().layout.announcement_words * sizeof(uint64_t);
  if (const CudaMulticast* const multicast = parts_.links->multicast(); multicast != nullptr)
    channel.multicast = multicast->area();
  std::memcpy(bytes.data(), &channel, sizeof(channel));
  for (uint32_t p = 0; p < size; ++p) {
    const cuda::Member on_device = OnDevice((*members_)[static_cast<int>(p)]);
    std::memcpy(bytes.data() + members_at + p * sizeof(on_device), &on_device, sizeof(on_device));
  }
  return parts_.device->Upload(memory_, bytes.data(), bytes.size());
}

Result<const CudaPrograms::Uploaded*> CudaChannel::UploadedOf(const Prepared& prepared) {
  return parts_.programs->Upload(prepared.program, prepared.outbound.get(), members_->placement());
}

cuda::Member CudaChannel::OnDevice(const Member& member) const {
  auto* block = reinterpret_cast<uint8_t*>(member.block);
  cuda::Member on_device;
  on_device.lines = block + member.layout.lines;
  on_device.packed = block + member.layout.packed;
  on_device.rows = block + member.layout.rows;
  on_device.announcements = block + member.layout.announcements;
  on_device.scratch[0] = block + member.layout.scratch;
  on_device.scratch[1] = parts_.links->BetweenOf(member.rank) + member.layout.scratch;
  if (AdaptersReach())
    on_device.scratch[cuda::Member::kAdapters] =
        IsMirror(member)
            ? reinterpret_cast<uint8_t*>(parts_.links->adapter_slots()->ScratchOf(member.rank, member.layout))
            : on_device.scratch[0];
  on_device.block = block;
  on_device.rank = static_cast<uint32_t>(member.rank);
  on_device.is_far = IsMirror(member);
  const CudaBuffers* const buffers = parts_.links->buffers();
  on_device.maps = reinterpret_cast<const uint64_t*>(
      buffers != nullptr ? buffers->maps_of(static_cast<size_t>(member.rank)) : maps_);
  return on_device;
}

// What travels to other machines is published by lines. Operands of views have gaps between them, where no words
// arrive.
cuda::Packing CudaChannel::ChoosePackingOf(const Call& call, const Prepared& prepared,
                                           const CudaPrograms::Uploaded& program) const {
  if (members_->inbox() != nullptr || call.views != nullptr) return cuda::Packing::kNone;
  const bool has_rows = !program.beyond_first || place_ == CudaPlace::kDefault;
  const cuda::Packing most = has_rows ? program.packing : std::min(program.packing, cuda::Packing::kWords);
  const uint64_t bytes = call.count * ElementSize(call.type);
  return ChoosePacking(prepared, bytes, call.kind, static_cast<uint32_t>(members_->size()), most,
                       parts_.links->protocols());
}

// Whether adapters reach its slots between machines on the devices. The same on all ranks.
bool CudaChannel::AdaptersReach() const {
  return parts_.links->adapter_slots() != nullptr && !IsInArea(place_) && place_ != CudaPlace::kSelf;
}

// Whether members access each other's buffers at the addresses that the caller passes.
bool CudaChannel::AddressesBuffers() const {
  return members_->plain_access() == tune::Access::kMapped && (parts_.addresses || members_->size() == 1);
}

// A bit for the ordinal of each.
uint64_t CudaChannel::SharingDevices() const {
  uint64_t devices = 0;
  for (int p = 0; AddressesBuffers() && p < members_->size(); ++p)
    devices |= parts_.links->SharingDevice((*members_)[p].rank);
  return devices;
}

Status CudaChannel::CheckBuffers(const Call& requested) {
  if (sharing_ == 0) return Status();
  const Result<bool> is_flat = IsFlat(requested);
  if (is_flat.ok() && is_flat.value()) return Status();
  Call call = Ordered(requested);
  const Result<const Prepared*> prepared = Prepare(&call, nullptr);
  // What else is wrong is found where it also ends the communicator.
  if (!prepared.ok()) return Status();
  const BuffersForOthers used = prepared.value()->program->for_others;
  if (!used.input && !used.output) return Status();
  const plan::Contract contract{call.kind, members_->size(), call.root};
  const BlocksForOthers blocks{used.input ? plan::InputBlocks(contract, members_->self()) : 0,
                               used.output ? plan::OutputBlocks(contract, members_->self()) : 0};
  return CheckShared(*parts_.device, call, blocks, sharing_);
}

// As the channel folds, which is in the order of the ranks if that is asked for and matters.
Call CudaChannel::Ordered(const Call& requested) const {
  Call call = requested;
  const bool ordered = call.group_order || (channel_ != nullptr && channel_->group_order());
  call.group_order = ordered && call.OrderMatters();
  return call;
}

// A local copy is an all-gather of one rank; a call whose outputs are only filled with zeros is a barrier.
Result<const Prepared*> CudaChannel::Prepare(Call* call, const Prepared* direct) {
  if (place_ == CudaPlace::kSelf) {
    const std::vector<ViewOperand>& operands = call->views->operands;
    const bool copies = std::any_of(operands.begin(), operands.end(),
                                    [](const ViewOperand& operand) { return operand.input != nullptr; });
    call->kind = copies ? plan::Kind::kAllGather : plan::Kind::kBarrier;
    if (!copies) return plans_->PrepareBarrier();
  }
  const bool mapped = AddressesBuffers() && AnnouncesViewsOf(*call);
  const tune::Access access = mapped ? tune::Access::kMapped : tune::Access::kNone;
  return direct != nullptr ? plans_->PrepareBeside(*call, access) : plans_->Prepare(*call, access);
}

// Prepares the plan for ranks in several processes that have all mapped each other's buffers; returns null if that does
// not pay, which is the same on all ranks.
Result<const Prepared*> CudaChannel::PrepareDirect(const Call& call) {
  const bool between = parts_.links->buffers() != nullptr && place_ != CudaPlace::kSelf && !AddressesBuffers() &&
                       members_->inbox() == nullptr && AnnouncesViewsOf(call);
  const uint64_t bytes = call.count * ElementSize(call.type) * static_cast<uint64_t>(members_->size());
  const Prepared* direct = nullptr;
  if (!between || bytes < std::max<uint64_t>(parts_.map_bytes, 1)) return direct;
  AXCCL_ASSIGN_OR_RETURN(direct, plans_->Prepare(call, tune::Access::kMapped));
  const bool fits = call.views == nullptr || CheckCudaViews(call, *direct->program).ok();
  return fits && direct->program->plan->schedule.direct ? direct : nullptr;
}

// Whether there is room to announce the call's operands, if they are views.
bool CudaChannel::AnnouncesViewsOf(const Call& call) const {
  const uint64_t room = members_->own().layout.announcement_words * sizeof(uint64_t);
  return call.views == nullptr || CudaViewsFit(*call.views, room);
}

Status CudaChannel::OfferDirect(const Call& call, const Prepared& direct, const Lent& table, bool captured,
                                cuda::Task* task) {
  AXCCL_ASSIGN_OR_RETURN(const CudaPrograms::Uploaded* program, UploadedOf(direct));
  task->staged = task->program;
  task->staged_cut = task->cut;
  task->program = program->on_device();
  task->cut = MakeCudaCut(direct, cuda::Packing::kNone);
  task->signature += direct.signature;
  CudaBuffers* const buffers = parts_.links->buffers();
  if (call.views != nullptr) {
    auto* const operands = reinterpret_cast<cuda::ViewOperand*>(table.memory + sizeof(cuda::ViewTable));
    AXCCL_ASSIGN_OR_RETURN(const bool all, buffers->PlaceViews(call, *members_, captured, operands));
    if (!all) task->input_map = cuda::kUnmapped;
  } else {
    AXCCL_RETURN_IF_ERROR(buffers->Place(call, *members_, captured, task));
  }
  // The plan that will run if it depends on this rank alone.
  const bool mapped = task->input_map != cuda::kUnmapped && task->output_map != cuda::kUnmapped;
  if (mapped && place_ == CudaPlace::kDefault) channel_->owner()->NoteAlgorithm(direct.program->algorithm);
  return Status();
}

// Whether there is grown scratch or not: ranks count the calls that could use it.
Status CudaChannel::OfferGrown(const Call& call, cuda::Task* task) {
  const uint64_t bytes = call.count * ElementSize(call.type) * static_cast<uint64_t>(members_->size());
  if (grown_plans_ == nullptr || bytes < parts_.grow_bytes) return Status();
  AXCCL_ASSIGN_OR_RETURN(const Prepared* prepared, grown_plans_->Prepare(call, tune::Access::kNone));
  if (prepared->program->multicast) return Status();  // has more scratch of its own
  AXCCL_ASSIGN_OR_RETURN(const CudaPrograms::Uploaded* program, UploadedOf(*prepared));
  task->grown = program->on_device();
  task->grown_cut = MakeCudaCut(*prepared, cuda::Packing::kNone);
  task->signature += prepared->signature;
  task->scratch_map = parts_.links->grown_scratch()->Find(*parts_.links->buffers());
  const bool mapped = task->input_map != cuda::kUnmapped && task->output_map != cuda::kUnmapped;
  if (!mapped && task->scratch_map != cuda::kUnmapped) channel_->owner()->NoteAlgorithm(prepared->program->algorithm);
  return Status();
}

// One that packs its slots, or has those of all ranks. What makes a plan impossible does so on all ranks.
Result<bool> CudaChannel::IsFlat(const Call& requested) {
  const std::optional<Call> flat = WithoutView(requested);
  if (!flat || !IsSmall(*flat) || place_ == CudaPlace::kSelf) return false;
  Call call = Ordered(*flat);
  const Result<const Prepared*> direct = PrepareDirect(call);
  if (!direct.ok() || direct.value() != nullptr) return false;
  const Result<const Prepared*> prepared = Prepare(&call, nullptr);
  if (!prepared.ok()) return false;
  const Program& program = *prepared.value()->program;
  if (program.for_others.input || program.for_others.output) return false;
  AXCCL_ASSIGN_OR_RETURN(const CudaPrograms::Uploaded* uploaded, UploadedOf(*prepared.value()));
  return program.multicast || ChoosePackingOf(call, *prepared.value(), *uploaded) != cuda::Packing::kNone;
}

Result<cuda::Task> CudaChannel::MakeTask(const Call& requested, const Lent& table, bool captured, const Call* on_view) {
  Call call = Ordered(requested);
  const Call asked = on_view != nullptr ? Ordered(*on_view) : call;
  AXCCL_ASSIGN_OR_RETURN(const Prepared* direct, PrepareDirect(call));
  AXCCL_ASSIGN_OR_RETURN(const Prepared* prepared, Prepare(&call, direct));
  AXCCL_ASSIGN_OR_RETURN(const CudaPrograms::Uploaded* program, UploadedOf(*prepared));
  AXCCL_ASSIGN_OR_RETURN(cuda::Task task, TaskOf(call, *prepared, *program, table));
  if (on_view != nullptr) {
    task.call = asked.Named();
    task.signature += asked.views->Hash();
  }
  if (const double seconds = asked.views != nullptr ? asked.views->timeout_seconds : 0; seconds > 0 && wait_ != nullptr)
    parts_.waits->Allow(wait_, channel_->log().next(), seconds);
  if (place_ != CudaPlace::kSelf) channel_->log().Record(asked);
  if (captured && wait_ != nullptr) Replays();
  if (place_ != CudaPlace::kSelf && requested.kind != plan::Kind::kSendRecv)
    channel_->owner()->NoteAlgorithm(prepared->program->algorithm);
  task.cut = MakeCudaCut(*prepared, ChoosePackingOf(call, *prepared, *program));
  if (AdaptersReach() && prepared->slot_bytes >= parts_.links->adapter_bytes())
    task.cut.between = cuda::Member::kAdapters;
  if (direct != nullptr) {
    AXCCL_RETURN_IF_ERROR(OfferDirect(call, *direct, table, captured, &task));
    AXCCL_RETURN_IF_ERROR(OfferGrown(call, &task));
  }
  if (!number_) task.small = LowerTask(program->lowered, task);
  return task;
}

Result<cuda::Task> CudaChannel::MakeStageTask(const Call& call, uint32_t signature, bool captured) {
  AXCCL_ASSIGN_OR_RETURN(const Prepared* barrier, plans_->PrepareBarrier());
  AXCCL_ASSIGN_OR_RETURN(const CudaPrograms::Uploaded* program, UploadedOf(*barrier));
  AXCCL_ASSIGN_OR_RETURN(cuda::Task task, TaskOf(call, *barrier, *program, {}));
  task.signature = signature;
  task.cut = MakeCudaCut(*barrier, cuda::Packing::kNone);
  task.cut.partition.count = call.count;  // for a report that it waits
  channel_->log().Record(call);
  if (captured) Replays();
  channel_->owner()->NoteAlgorithm("copy_engines");
  return task;
}

// The plan's lanes and parts take the place of a partition.
Result<cuda::Task> CudaChannel::MakeSlicedTask(const PipelinePart& part, const Lent& table, CUdeviceptr sliced,
                                               const StartStamps& stamps) {
  const Call& call = part.call;
  AXCCL_ASSIGN_OR_RETURN(const Prepared prepared, plans_->PrepareSliced(call, part.program, part.slicing));
  AXCCL_ASSIGN_OR_RETURN(const CudaPrograms::Uploaded* program, UploadedOf(prepared));
  AXCCL_ASSIGN_OR_RETURN(cuda::Task task, TaskOf(call, prepared, *program, table));
  task.cut.partition.count = call.count;
  task.cut.partition.lanes = static_cast<uint32_t>(part.program->lanes.size());
  task.sliced = reinterpret_cast<const cuda::Sliced*>(sliced);
  parts_.waits->Shows(wait_, stamps);
  buffers_ = part.buffers;
  if (buffers_ != nullptr) buffers_->PutPlaces(table.memory);
  return task;
}

void CudaChannel::TellWait(uint64_t sequence, const Call& call, uint32_t position, uint64_t count) {
  __atomic_store_n(&wait_->call, call.Named(), __ATOMIC_RELAXED);
  __atomic_store_n(&wait_->count, count, __ATOMIC_RELAXED);
  __atomic_store_n(&wait_->look, cuda::Wait::Look(sequence, position, ++looks_), __ATOMIC_RELEASE);
}

// Everything but the cut.
Result<cuda::Task> CudaChannel::TaskOf(const Call& call, const Prepared& prepared,
                                       const CudaPrograms::Uploaded& program, const Lent& table) {
  if (call.views != nullptr) AXCCL_RETURN_IF_ERROR(CheckCudaViews(call, *prepared.program));
  cuda::Task task;
  task.channel = reinterpret_cast<cuda::Channel*>(memory_);
  task.program = program.on_device();
  task.input = call.input;
  task.output = call.output;
  task.input_offset = reinterpret_cast<uint64_t>(call.input);
  task.output_offset = reinterpret_cast<uint64_t>(call.output);
  task.call = call.Named();
  task.scalar_pointer = call.scalar_pointer;
  task.scalar = call.scalar_bytes;
  task.signature = prepared.signature;
  task.type = call.type;
  task.combine = call.combine;
  task.scaling = call.scaling;
  task.group_order = call.group_order;
  if (call.views != nullptr) {
    MakeCudaViewTable(call, plan::Contract{call.kind, members_->size(), call.root}, members_->self(), table.memory);
    task.views = reinterpret_cast<const cuda::ViewTable*>(table.on_device);
    task.signature += call.views->Hash();
    ScaleResults(*call.views, call.type, &task.scaling, &task.scalar);
  }
  return task;
}

}  // namespace axccl::exec
