#include "src/exec/cuda/rank.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/exec/cuda/packing.h"
#include "src/exec/cuda/pointers.h"
#include "src/exec/cuda/program.h"
#include "src/exec/cuda/rows.h"
#include "src/exec/cuda/views.h"

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
namespace cuda = kernels::cuda;

// ---- channels ----

Result<std::unique_ptr<CudaChannel>> CudaChannel::Create(CudaRank* rank, Channel* on_host, CudaPlace place) {
  std::unique_ptr<CudaChannel> channel(new CudaChannel(rank, on_host, place));
  if (place == CudaPlace::kCreated) AXCCL_RETURN_IF_ERROR(channel->Settle());
  const int self = place == CudaPlace::kSelf ? 0 : on_host->self();
  channel->members_ = std::make_unique<Members>(on_host->owner(), rank->MembersOf(*on_host, place), self);
  // Slots are packed in another way, and tasks find their buffers themselves.
  const PlanOptions options{.inline_bytes = 0, .by_runs = false};
  channel->plans_ = std::make_unique<PlanCache>(channel->members_.get(), options, nullptr);
  AXCCL_RETURN_IF_ERROR(channel->Upload());
  return channel;
}

CudaChannel::~CudaChannel() {
  if (wait_ != nullptr) rank_->waits().Leave(wait_);
  if (memory_ != 0) rank_->device()->Free(memory_);
  if (meeting_ != nullptr) Device::FreeHost(meeting_);
}

Status CudaChannel::Upload() {
  if (place_ != CudaPlace::kSelf) {  // such a channel never waits
    AXCCL_ASSIGN_OR_RETURN(wait_, rank_->waits().Enter(on_host_));
  }
  AXCCL_ASSIGN_OR_RETURN(const Prepared* barrier, plans_->PrepareBarrier());
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr barrier_program, rank_->ProgramOnDevice(barrier->program));
  const auto size = static_cast<uint32_t>(members_->size());
  const size_t members_at = RoundUp(sizeof(cuda::Channel), kCacheLine);
  const size_t bindings_at = RoundUp(members_at + size * sizeof(cuda::Member), kCacheLine);
  const size_t maps_at = RoundUp(bindings_at + size * sizeof(cuda::Binding), kCacheLine);
  std::vector<std::byte> bytes(maps_at + sizeof(uint64_t));  // a single map: the address space
  AXCCL_ASSIGN_OR_RETURN(memory_, rank_->device()->Allocate(bytes.size()));
  maps_ = memory_ + maps_at;

  cuda::Channel channel;
  channel.meeting = meeting_;
  channel.state.unmet = !met_;
  channel.control = rank_->control();
  channel.wait = wait_;
  channel.barrier = reinterpret_cast<const cuda::Program*>(barrier_program);
  channel.half_bytes = members_->own().layout.scratch_bytes / plan::kRotation;
  channel.endpoints = members_->own().layout.endpoints;
  channel.lanes = members_->own().layout.lanes;
  channel.size = size;
  channel.self = static_cast<uint32_t>(members_->self());
  channel.members_at = static_cast<uint32_t>(members_at);
  channel.bindings_at = static_cast<uint32_t>(bindings_at);
  channel.view_bytes = members_->own().layout.announcement_words * sizeof(uint64_t);
  std::memcpy(bytes.data(), &channel, sizeof(channel));
  for (uint32_t p = 0; p < size; ++p) {
    const cuda::Member on_device = OnDevice((*members_)[static_cast<int>(p)]);
    std::memcpy(bytes.data() + members_at + p * sizeof(on_device), &on_device, sizeof(on_device));
  }
  return rank_->device()->Upload(memory_, bytes.data(), bytes.size());
}

cuda::Member CudaChannel::OnDevice(const Member& member) const {
  auto* block = reinterpret_cast<uint8_t*>(member.block);
  cuda::Member on_device;
  on_device.lines = block + member.layout.lines;
  on_device.packed = block + member.layout.packed;
  on_device.rows = block + member.layout.rows;
  on_device.announcements = block + member.layout.announcements;
  on_device.scratch = block + member.layout.scratch;
  const bool shared = rank_->buffers() != nullptr && member.rank != rank_->rank();
  on_device.maps =
      reinterpret_cast<const uint64_t*>(shared ? rank_->buffers()->maps_of(static_cast<size_t>(member.rank)) : maps_);
  return on_device;
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
  const uint64_t room = members_->own().layout.announcement_words * sizeof(uint64_t);
  const bool reached = members_->plain_access() == tune::Access::kMapped;
  const bool mapped = reached && (call->views == nullptr || CudaViewsFit(*call->views, room));
  const tune::Access access = mapped ? tune::Access::kMapped : tune::Access::kNone;
  return direct != nullptr ? plans_->PrepareBeside(*call, access) : plans_->Prepare(*call, access);
}

// Prepares the plan for ranks in several processes that have all mapped each other's buffers; returns null if that does
// not pay, which is the same on all ranks.
Result<const Prepared*> CudaChannel::PrepareDirect(const Call& call) {
  const bool between =
      rank_->buffers() != nullptr && place_ != CudaPlace::kSelf && members_->plain_access() != tune::Access::kMapped;
  const uint64_t bytes = call.count * ElementSize(call.type) * static_cast<uint64_t>(members_->size());
  const Prepared* direct = nullptr;
  if (!between || call.views != nullptr || bytes < std::max<uint64_t>(rank_->map_bytes(), 1)) return direct;
  AXCCL_ASSIGN_OR_RETURN(direct, plans_->Prepare(call, tune::Access::kMapped));
  return direct->program->plan->schedule.direct ? direct : nullptr;
}

Status CudaChannel::OfferDirect(const Call& call, const Prepared& direct, bool captured, cuda::Task* task) {
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr program, rank_->ProgramOnDevice(direct.program));
  task->staged = task->program;
  task->staged_cut = task->cut;
  task->program = reinterpret_cast<const cuda::Program*>(program);
  task->cut = MakeCudaCut(direct, cuda::Packing::kNone);
  task->signature += direct.signature;
  AXCCL_RETURN_IF_ERROR(rank_->buffers()->Place(call, *members_, captured, task));
  // The plan that will run if it depends on this rank alone.
  const bool mapped = task->input_map != cuda::kUnmapped && task->output_map != cuda::kUnmapped;
  if (mapped && place_ == CudaPlace::kDefault) on_host_->owner()->NoteAlgorithm(direct.program->algorithm);
  return Status();
}

Result<cuda::Task> CudaChannel::MakeTask(const Call& requested, const Lent& table, bool captured) {
  Call call = requested;
  const bool ordered = call.group_order || (on_host_ != nullptr && on_host_->group_order());
  call.group_order = ordered && call.OrderMatters();
  AXCCL_ASSIGN_OR_RETURN(const Prepared* direct, PrepareDirect(call));
  AXCCL_ASSIGN_OR_RETURN(const Prepared* prepared, Prepare(&call, direct));
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr program, rank_->ProgramOnDevice(prepared->program));
  if (call.views != nullptr) AXCCL_RETURN_IF_ERROR(CheckCudaViews(call, *prepared->program));
  if (place_ != CudaPlace::kSelf) on_host_->log().Record(call);
  if (captured && wait_ != nullptr) rank_->waits().Replays(wait_);
  if (place_ != CudaPlace::kSelf && requested.kind != plan::Kind::kSendRecv)
    on_host_->owner()->NoteAlgorithm(prepared->program->algorithm);
  cuda::Task task;
  task.channel = reinterpret_cast<cuda::Channel*>(memory_);
  task.program = reinterpret_cast<const cuda::Program*>(program);
  task.input = call.input;
  task.output = call.output;
  task.input_offset = reinterpret_cast<uint64_t>(call.input);
  task.output_offset = reinterpret_cast<uint64_t>(call.output);
  // Operands of views have gaps between them, where no words arrive.
  const uint64_t bytes = call.views == nullptr ? call.count * ElementSize(call.type) : 0;
  task.cut = MakeCudaCut(*prepared, ChoosePacking(*prepared, bytes, call.kind, rank_->protocols()));
  task.call = call.Named();
  task.scalar_pointer = call.scalar_pointer;
  task.scalar = call.scalar_bytes;
  task.signature = prepared->signature;
  task.type = call.type;
  task.combine = call.combine;
  task.scaling = static_cast<cuda::Scaling>(call.scaling);
  task.group_order = call.group_order;
  if (call.views != nullptr) {
    MakeCudaViewTable(call, plan::Contract{call.kind, members_->size(), call.root}, members_->self(), table.memory);
    task.views = reinterpret_cast<const cuda::ViewTable*>(table.on_device);
    task.signature += call.views->Hash();
  }
  if (direct != nullptr) AXCCL_RETURN_IF_ERROR(OfferDirect(call, *direct, captured, &task));
  return task;
}

// ---- ranks ----

CudaRank::CudaRank(const RankOptions& options, Device* device)
    : options_(options),
      device_(device),
      layout_(
          CudaLayout::Make(static_cast<uint32_t>(options.ranks), options.lanes, options.scratch_bytes, options.areas)),
      blocks_(*device, options.rank, layout_.bytes, layout_.channel.scratch) {}

Status CudaRank::Allocate() {
  AXCCL_RETURN_IF_ERROR(blocks_.Allocate());
  const size_t channels = 1 + 2 * static_cast<size_t>(options_.ranks) + options_.areas;
  AXCCL_ASSIGN_OR_RETURN(void* control, device_->AllocateHost(sizeof(cuda::Control) + channels * sizeof(cuda::Wait)));
  control_ = static_cast<cuda::Control*>(control);
  waits_ = std::make_unique<CudaWaits>(reinterpret_cast<cuda::Wait*>(control_ + 1), channels, options_.timeout_seconds,
                                       options_.notice_seconds);
  return Status();
}

// While work is running, the buffer in it may still be announced to peers. Its number is then released when it is
// freed.
void CudaRank::LetGoOf(const void* buffer) {
  const Scope scope(*device_);
  std::lock_guard lock(launching_);
  if (buffers_ == nullptr) return;
  if (std::all_of(orders_.begin(), orders_.end(), [this](const auto& order) { return IsDone(*order); }))
    buffers_->LetGo(buffer);
}

void CudaRank::Disconnect() {
  channels_.clear();
  selves_.clear();
  buffers_ = nullptr;
  blocks_.Unmap();
}

CudaRank::~CudaRank() {
  Disconnect();
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  for (const auto& [program, uploaded] : programs_) device_->Free(uploaded.second);
  for (const Loan& loan : loans_) {
    device_->FreeHost(loan.what.memory);
    if (loan.what.on_device != 0) device_->Free(loan.what.on_device);
    if (loan.done != nullptr) driver.cuEventDestroy(loan.done);
  }
  for (const auto& order : orders_) driver.cuEventDestroy(order->done);
  if (ordering_ != nullptr) driver.cuEventDestroy(ordering_);
  if (control_ != nullptr) device_->FreeHost(control_);
}

Status CudaRank::Connect(const std::vector<cuda_ipc::BlockAddress>& addresses, const cuda_ipc::Blocks::Hosts& hosts) {
  neighbours_ = 0;
  for (const cuda_ipc::BlockAddress& other : addresses) neighbours_ += other.uuid == address().uuid;
  if (!options_.direct) return MakeStatus(Code::kInvalidUsage, "NCCL_P2P_DISABLE=1 on rank %d", options_.rank);
  no_rows_ = WhyNoRows(*device_, addresses);
  return blocks_.Map(addresses, hosts);
}

Protocols CudaRank::allowed() const {
  Protocols allowed = options_.protocols;
  if (on_host() || !no_rows_.empty()) allowed.ll128 = 0;
  return allowed;
}

void CudaRank::Agree(const std::vector<Protocols>& allowed) {
  protocols_ = allowed[0];
  for (const Protocols& other : allowed) protocols_ = protocols_ & other;
  const std::string reason = on_host() ? "ranks meet in memory of the host" : no_rows_;
  const bool tells = protocols_.ll128 == 0 && !reason.empty();
  AXCCL_INFO(kInit, "rank %d: blocks of up to %zu bytes go by LL (%s), of up to %zu bytes by LL128 (%s%s%s)",
             options_.rank, cuda::kPackedBytes, protocols_.ll != 0 ? "yes" : "no", cuda::kRowedBytes,
             protocols_.ll128 != 0 ? "yes" : "no", tells ? ": " : "", tells ? reason.c_str() : "");
}

std::vector<Member> CudaRank::MembersOf(const Channel& on_host, CudaPlace place) const {
  const bool alone = place == CudaPlace::kSelf;
  const int first = alone ? on_host.self() : 0, last = alone ? first : on_host.size() - 1;
  const auto src = static_cast<uint32_t>(on_host.member(first).rank);
  const auto dst = static_cast<uint32_t>(on_host.member(last).rank);
  std::vector<Member> members;
  for (int p = first; p <= last; ++p) {
    Member member = on_host.member(p);
    member.reach = &blocks_.of(static_cast<size_t>(member.rank));
    member.block = member.reach->block();
    const int area = member.area >= 0 ? member.area : on_host.own().area;
    member.layout = place == CudaPlace::kDefault   ? layout_.channel
                    : place == CudaPlace::kCreated ? layout_.Area(static_cast<uint32_t>(area))
                                                   : layout_.Pair(src, dst, static_cast<uint32_t>(member.rank));
    members.push_back(member);
  }
  return members;
}

Result<CUdeviceptr> CudaRank::ProgramOnDevice(const std::shared_ptr<const Program>& program) {
  const auto it = programs_.find(program.get());
  if (it != programs_.end()) return it->second.second;
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, MakeCudaProgram(*program));
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr memory, device_->Allocate(bytes.size()));
  programs_[program.get()] = {program, memory};
  AXCCL_RETURN_IF_ERROR(device_->Upload(memory, bytes.data(), bytes.size()));
  return memory;
}

Result<CudaChannel*> CudaRank::ChannelFor(Channel* on_host, CudaPlace place) {
  if (place == CudaPlace::kSelf) {
    std::unique_ptr<CudaChannel>& self = selves_[on_host->order().get()];
    if (self == nullptr) {
      AXCCL_ASSIGN_OR_RETURN(self, CudaChannel::Create(this, on_host, place));
    }
    return self.get();
  }
  const auto it = channels_.find(on_host);
  if (it != channels_.end()) return it->second.get();
  if (place == CudaPlace::kCreated) {
    creates_channels_ = true;
    Sweep();
  }
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<CudaChannel> channel, CudaChannel::Create(this, on_host, place));
  return channels_.emplace(on_host, std::move(channel)).first->second.get();
}

// The driver knows whether the handle is a CUDA stream.
Result<StreamRef> CudaRank::FindStream(void* handle, const char* call) const {
  if (device::host::Streams().Peek(handle) == nullptr) return StreamRef{nullptr, handle};
  return MakeStatus(Code::kInvalidArgument,
                    "%s: argument stream (%p) is a host stream, and the communicator's rank is on CUDA device %d; pass "
                    "a stream of CUDA, or make the communicator with AXCCL_DEVICE=host",
                    call, handle, options_.device.ordinal);
}

Status CudaRank::LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) {
  return LaunchGroup({StreamCall{owner->shared_from_this(), this, channel, call, stream, nullptr, channel->Hold()}});
}

const char* CudaRank::LinkName(const Member& peer) const {
  return peer.rank == rank() ? "self" : blocks_.of(static_cast<size_t>(peer.rank)).Name();
}

DeviceStatistics CudaRank::statistics() const {
  DeviceStatistics statistics = waits_->packed();
  statistics.mapped = __atomic_load_n(&control_->mapped, __ATOMIC_RELAXED);
  return statistics;
}

Status CudaRank::CheckCall(const Call& call) const {
  if (call.callback != nullptr)
    return MakeStatus(Code::kInvalidUsage, "%s: argument op is a callback, and callbacks run on host ranks only",
                      DescribeCall(call).c_str());
  if (call.views != nullptr) return CheckViews(*call.views);
  if (call.count == 0) return Status();
  const bool message = call.kind == plan::Kind::kSendRecv;
  const plan::Contract contract{call.kind, options_.ranks, call.root};
  const bool reads = message ? call.input != nullptr : plan::InputBlocks(contract, options_.rank) != 0;
  const bool writes = message ? call.output != nullptr : plan::OutputBlocks(contract, options_.rank) != 0;
  if (reads) AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, call.input, "argument sendbuff"));
  if (writes) AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, call.output, "argument recvbuff"));
  return Status();
}

// Checks the first and the last byte: several allocations may lie side by side in between (virtual memory management).
Status CudaRank::CheckMemory(const void* memory, size_t bytes, const char* name) const {
  AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, memory, name));
  return CheckPointer(*device_, static_cast<const std::byte*>(memory) + bytes - 1, name);
}

Status CudaRank::CheckViews(const ViewList& views) const {
  for (const ViewOperand& operand : views.operands) {
    if (operand.block_bytes == 0) continue;
    if (operand.input != nullptr) AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, operand.input, "data of an input"));
    if (operand.output != nullptr) AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, operand.output, "data of an output"));
  }
  return Status();
}

Status CudaRank::CheckDevice() const {
  const Status health = device_->CheckHealth();
  if (health.ok()) return health;
  return MakeStatus(health.code(), "rank %d: %.*s", options_.rank, static_cast<int>(health.message().size()),
                    health.message().data());
}

Status CudaRank::CheckReport() {
  const auto report = static_cast<cuda::Report>(__atomic_load_n(&control_->report, __ATOMIC_ACQUIRE));
  if (report != cuda::Report::kMismatch) {
    AXCCL_RETURN_IF_ERROR(waits_->Check(launching_));
    AXCCL_RETURN_IF_ERROR(CheckMeetings());
    return CheckDevice();
  }
  // The host records the calls, except those of replayed graphs.
  {
    std::lock_guard lock(launching_);
    for (const auto& [on_host, channel] : channels_) AXCCL_RETURN_IF_ERROR(on_host->log().FindMismatch());
  }
  return MakeStatus(
      Code::kInvalidUsage,
      "mismatch at operation %llu: rank %d and the member at position %u of its group made different calls; all "
      "ranks of a communicator must make the same calls in the same order",
      static_cast<unsigned long long>(control_->sequence), options_.rank, control_->position);
}

void CudaRank::Abort() { __atomic_store_n(&control_->abort, 1u, __ATOMIC_RELEASE); }

bool CudaRank::Idle() {
  const Scope scope(*device_);  // the caller may have no context yet
  std::lock_guard lock(launching_);
  return std::all_of(orders_.begin(), orders_.end(), [this](const auto& order) { return IsDone(*order); });
}

void CudaRank::WaitIdle() {
  if (Idle()) return;
  const Scope scope(*device_);
  std::vector<CUevent> events;
  {
    std::lock_guard lock(launching_);
    for (const auto& order : orders_) events.push_back(order->done);
  }
  for (const CUevent event : events) Driver::Loaded().cuEventSynchronize(event);
}

uint32_t CudaRank::Divisor(bool created) const {
  if (!creates_channels_) return 1;
  return created ? 2 * layout_.num_areas : 2;
}

bool CudaRank::IsDone(const CudaOrder& order) const {
  return !order.launched || Driver::Loaded().cuEventQuery(order.done) != CUDA_ERROR_NOT_READY;
}

// Finished entries are reused.
Result<CudaOrder*> CudaRank::OrderOf(const device::host::Timeline* timeline) {
  CudaOrder* free = nullptr;
  for (const auto& order : orders_) {
    if (order->of == timeline) return order.get();
    if (order->of == nullptr) free = order.get();
  }
  if (free == nullptr) {
    auto order = std::make_unique<CudaOrder>();
    AXCCL_RETURN_IF_CUDA_ERROR(
        Driver::Loaded().cuEventCreate(&order->done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    free = orders_.emplace_back(std::move(order)).get();
  }
  free->of = timeline;
  free->launched = false;
  return free;
}

Status CudaRank::Follow(const device::host::Timeline* timeline, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(const CudaOrder* order, OrderOf(timeline));
  unsigned long long id = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &id));
  if (!order->launched || id == order->stream) return Status();
  return Check(driver.cuStreamWaitEvent(stream, order->done, 0), "cuStreamWaitEvent");
}

Status CudaRank::Launched(const device::host::Timeline* timeline, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(CudaOrder * order, OrderOf(timeline));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(order->done, stream));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &order->stream));
  order->launched = true;
  return Status();
}

Result<CUevent> CudaRank::OrderingEvent() {
  if (ordering_ == nullptr)
    AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&ordering_, CU_EVENT_DISABLE_TIMING));
  return ordering_;
}

Result<Lent> CudaRank::Lend(size_t bytes, bool captured) {
  const Driver& driver = Driver::Loaded();
  if (!captured) {
    for (Loan& old : loans_) {
      if (old.lent || old.done == nullptr || old.bytes < bytes || driver.cuEventQuery(old.done) != CUDA_SUCCESS)
        continue;
      old.lent = true;
      return old.what;
    }
  }
  AXCCL_ASSIGN_OR_RETURN(void* const memory, device_->AllocateHost(bytes));
  Loan& loan = loans_.emplace_back(Loan{{static_cast<std::byte*>(memory), 0}, bytes, nullptr});
  AXCCL_ASSIGN_OR_RETURN(loan.what.on_device, device_->Allocate(bytes));
  if (!captured) AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&loan.done, CU_EVENT_DISABLE_TIMING));
  return loan.what;
}

Status CudaRank::Return(const Lent& lent, CUstream stream) {
  const auto loan =
      std::find_if(loans_.begin(), loans_.end(), [&](const Loan& l) { return l.what.memory == lent.memory; });
  if (loan->done == nullptr) return Status();
  loan->lent = false;
  return Check(Driver::Loaded().cuEventRecord(loan->done, stream), "cuEventRecord");
}

}  // namespace axccl::exec
