#include "src/exec/cuda/rank.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "src/base/service_fd.h"
#include "src/exec/cuda/flat_call.h"
#include "src/exec/cuda/interpreter.h"
#include "src/exec/cuda/pipeline.h"
#include "src/exec/cuda/pipeline_buffers.h"
#include "src/exec/cuda/pointers.h"
#include "src/exec/cuda/ranks.h"
#include "src/exec/cuda/shared_memory.h"
#include "src/exec/cuda/window.h"

namespace axccl::exec {
namespace {

using device::cuda::Current;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
namespace cuda = kernels::cuda;

}  // namespace

CudaRank::CudaRank(const RankOptions& options, const Device* device)
    : options_(options),
      device_(device),
      links_(options, device),
      programs_(device),
      loans_(device),
      orders_(device, options.mixes_graphs) {
  EnterCudaRank(this);
}

CudaRank::~CudaRank() {
  LeaveCudaRank(this);
  Disconnect();
  const Scope scope(*device_);
  if (control_ != nullptr) device_->ReturnHost(control_);
  if (reserved_) device_->Unreserve();
  if (shared_reserved_) SharedMemory::Unreserve(*device_);
}

// Whatever a driver may do only when all kernels have ended is done here, as far as it can be.
Status CudaRank::Allocate() {
  AXCCL_RETURN_IF_ERROR(CudaInterpreter::Of(*device_).status());
  AXCCL_RETURN_IF_ERROR(device_->Reserve());
  reserved_ = true;
  shared_reserved_ = SharedMemory::Reserve(*device_);  // where shared memory cannot be pinned, pipelines do without
  const size_t channels = 1 + 2 * static_cast<size_t>(options_.ranks) + options_.areas;
  AXCCL_ASSIGN_OR_RETURN(void* control, device_->TakeHost(sizeof(cuda::Control) + channels * sizeof(cuda::Wait)));
  control_ = static_cast<cuda::Control*>(control);
  AXCCL_ASSIGN_OR_RETURN(table_, CudaWindowTable::Create(*device_));
  waits_ = std::make_unique<CudaWaits>(reinterpret_cast<cuda::Wait*>(control_ + 1), channels, options_.notice_seconds);
  return Status();
}

const RankDevice::Traits& CudaRank::traits() const {
  static constexpr Traits traits = {.needs_watch = true,
                                    .outlives_rank = true,
                                    .takes_areas = true,
                                    .wants_whole_programs = true,
                                    .has_copy_engines = true,
                                    .makes_windows = true};
  return traits;
}

// While work is running, the buffer in it may still be announced to peers. Its number is then released when it is
// freed.
void CudaRank::LetGoOf(const void* buffer) {
  const Scope scope(*device_);
  std::lock_guard lock(launching_);
  if (links_.buffers() != nullptr && orders_.AreDone()) links_.buffers()->LetGo(buffer);
}

void CudaRank::ReleaseChannels() {
  std::lock_guard lock(launching_);
  windows_.Clear();
  channels_.Clear();
}

void CudaRank::Disconnect() {
  channels_.Clear();
  links_.Disconnect();
}

CudaParts CudaRank::Parts() {
  return {device_,    control_,           waits_.get(),        &links_,
          &programs_, options_.map_bytes, options_.grow_bytes, options_.addresses};
}

Result<CudaChannel*> CudaRank::ChannelOf(Channel* channel, CudaPlace place) {
  return channels_.Of(Parts(), channel, place);
}

void CudaRank::AddToQuery(const StreamCall& call, tune::Query* query) const {
  const std::optional<Call> flat = WithoutView(call.call);
  CudaChannel::PlanOptionsOf(links_, PlaceOf(call), call.channel->size())
      .AddTo(query, flat && IsSmall(*flat) ? *flat : call.call);
}

// Calls on the default channel have half of the blocks once channels have been created, and these the other half.
uint64_t CudaRank::ShareOf(uint64_t resident_blocks, size_t ranks, bool created) const {
  const uint64_t divisor = !channels_.any_created() ? 1 : created ? 2 * links_.num_areas() : 2;
  const uint64_t neighbours = std::max<uint64_t>(links_.neighbours(), ranks);
  return std::max<uint64_t>(resident_blocks / divisor * ranks / neighbours, 1);
}

// The driver knows whether the handle is a CUDA stream.
Status CudaRank::FindStream(void* handle, const char* call, StreamRef* stream) const {
  *stream = {nullptr, handle};
  if (device::host::Streams().Peek(handle) == nullptr) return Status();
  return MakeStatus(Code::kInvalidArgument,
                    "%s: argument stream (%p) is a host stream, and the communicator's rank is on CUDA device %d; pass "
                    "a stream of CUDA, or make the communicator with AXCCL_DEVICE=host",
                    call, handle, options_.device.ordinal);
}

Status CudaRank::LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(CheckCall(call));
  std::optional<Current> current;  // for all that follows
  if (device::cuda::IsOfCurrentContext(static_cast<CUstream>(stream.cuda))) current.emplace(*device_);
  return LaunchGroup({StreamCall{owner->shared_from_this(), this, channel, call, stream, nullptr, channel->Hold()}});
}

Status CudaRank::ReceiveAny(ChannelOwner*, AnySource, StreamRef) {
  return MakeStatus(Code::kInvalidUsage,
                    "argument peer is AXCCL_ANY_SOURCE, which ranks on GPUs do not have; name the rank");
}

// Those that other ranks of this process read where they are.
Status CudaRank::CheckSharedBuffers(const PipelinePart& part, std::span<const int32_t> ranks) const {
  uint64_t devices = 0;
  for (const int32_t rank : ranks) devices |= links_.of(rank).addresses() ? links_.SharingDevice(rank) : 0;
  const auto position = static_cast<int>(std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  const plan::Contract contract{part.call.kind, static_cast<int>(ranks.size()), part.call.root};
  const BlocksForOthers blocks{plan::InputBlocks(contract, position),
                               part.outputs_are_read ? plan::OutputBlocks(contract, position) : 0};
  return devices == 0 ? Status() : CheckShared(*device_, part.call, blocks, devices);
}

Status CudaRank::ShareBuffers(PipelinePart* part, std::span<const int32_t> ranks) {
  const auto reader = std::find_if(ranks.begin(), ranks.end(), [&](int32_t r) { return !links_.of(r).addresses(); });
  // If some do not read each other's memory, there will be no pipeline.
  const bool all_read = std::all_of(ranks.begin(), ranks.end(), [&](int32_t r) { return links_.ReadsBuffersOf(r); });
  if (all_read) AXCCL_RETURN_IF_ERROR(CheckSharedBuffers(*part, ranks));
  if (reader == ranks.end() || !all_read) return Status();
  const auto position = static_cast<int>(std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  const std::lock_guard lock(launching_);
  const Scope scope(*device_);
  AXCCL_ASSIGN_OR_RETURN(part->buffers, PipelineBuffers::Share(links_.buffers(), *part, ranks, position, *reader));
  return Status();
}

Result<std::shared_ptr<Pipeline>> CudaRank::MakePipeline(Channel* on, std::vector<PipelinePart> parts) {
  return CudaPipeline::Make(this, on, std::move(parts));
}

const char* CudaRank::LinkName(const Member& peer) const {
  return peer.rank == rank() ? "self" : links_.of(peer.rank).Name();
}

DeviceStatistics CudaRank::statistics() const {
  DeviceStatistics statistics = waits_->counts();
  if (links_.proxy() != nullptr) statistics.gpudirect = links_.proxy()->sent_from_device();
  return statistics;
}

Status CudaRank::CheckCall(const Call& call) const {
  if (call.callback != nullptr)
    return MakeStatus(Code::kInvalidUsage, "%s: argument op is a callback, and callbacks run on host ranks only",
                      DescribeCall(call).c_str());
  if (call.views != nullptr) return CheckPointers(*device_, *call.views);
  if (call.count == 0) return Status();
  const bool message = call.kind == plan::Kind::kSendRecv;
  const plan::Contract contract{call.kind, options_.ranks, call.root};
  const bool reads = message ? call.input != nullptr : plan::InputBlocks(contract, options_.rank) != 0;
  const bool writes = message ? call.output != nullptr : plan::OutputBlocks(contract, options_.rank) != 0;
  if (reads) AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, call.input, "argument sendbuff"));
  if (writes) AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, call.output, "argument recvbuff"));
  return Status();
}

Status CudaRank::CheckReadable(const void* memory, const char* name) const {
  return CheckPointer(*device_, memory, name);
}

// Checks the first and the last byte: several allocations may lie side by side in between (virtual memory management).
Status CudaRank::CheckMemory(const void* memory, size_t bytes, const char* name) const {
  AXCCL_RETURN_IF_ERROR(CheckPointer(*device_, memory, name));
  return CheckPointer(*device_, static_cast<const std::byte*>(memory) + bytes - 1, name);
}

Status CudaRank::Share(Setup* setup, const std::vector<Member>& members) {
  AXCCL_RETURN_IF_ERROR(links_.Share(setup, members));
  if (links_.windows_of_all()) space_ = std::make_shared<cuda_ipc::MulticastSpace>(*device_);
  return Status();
}

Status CudaRank::WhyNoWindows() const {
  if (links_.windows()) return Status();
  return MakeStatus(Code::kInvalidUsage, "%s",
                    links_.on_devices() ? "the device of a rank has no virtual memory that processes can share"
                                        : "ranks do not reach the memory of each other's devices");
}

Result<std::unique_ptr<Window>> CudaRank::MakeWindow(Gather* gather, const std::vector<Member>& members,
                                                     const OwnShare& share) {
  // What may fail on this rank alone comes before the exchange, in which all learn of it.
  OwnShare own = share;
  std::shared_ptr<void> memory;
  std::shared_ptr<CudaWindowTable::Entry> entry;
  const Status ready = [&]() -> Status {
    if (share.bytes == 0) return Status();
    if (share.made) {
      AXCCL_ASSIGN_OR_RETURN(memory, AllocateForPeers(*device_, share.bytes));
      own.memory = memory.get();
      return Status();
    }
    AXCCL_RETURN_IF_ERROR(CheckMemory(share.memory, share.bytes, "argument buff"));
    AXCCL_ASSIGN_OR_RETURN(entry, table_->Take());
    return Status();
  }();
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Window> window,
                         MakeCudaWindow(gather, *device_, members, rank(), ready, own, space_));
  if (entry != nullptr)
    CudaWindowTable::Fill(entry.get(), reinterpret_cast<uint64_t>(share.memory), share.bytes, window->places()->handle);
  window->Hold(std::move(memory));
  window->Hold(std::move(entry));
  const std::lock_guard lock(launching_);
  windows_.Add(share, *window);
  return window;
}

std::optional<CopiedCall> CudaRank::CopiedFor(const Call& call) const {
  const uint64_t bytes = call.count * ElementSize(call.type) * static_cast<uint64_t>(options_.ranks);
  if (bytes < links_.copy_bytes()) return std::nullopt;
  return CopiedCall::Of(call, options_.rank, options_.ranks, windows_);
}

Status CudaRank::CheckDevice() const {
  const Status health = device_->CheckHealth();
  if (health.ok()) return health;
  return MakeStatus(health.code(), "rank %d: %.*s", options_.rank, static_cast<int>(health.message().size()),
                    health.message().data());
}

bool CudaRank::has_report() const {
  return static_cast<cuda::Report>(__atomic_load_n(&control_->report, __ATOMIC_ACQUIRE)) == cuda::Report::kMismatch;
}

Status CudaRank::CheckReport() {
  if (!has_report()) {
    if (links_.proxy() != nullptr) AXCCL_RETURN_IF_ERROR(links_.proxy()->status());
    return waits_->Check(launching_);
  }
  // The host records the calls, except those of replayed graphs. Does without when the thread that launches waits for
  // the driver.
  constexpr std::chrono::seconds kPatience(1);
  std::unique_lock lock(launching_, std::defer_lock);
  const auto take = [&] { return lock.try_lock(); };
  if (service::PollUntil(-1, 0, service::Clock::now() + kPatience, take) == service::Wait::kStopped)
    AXCCL_RETURN_IF_ERROR(channels_.FindMismatch());
  return MakeStatus(
      Code::kInvalidUsage,
      "mismatch at operation %llu: rank %d and the member at position %u of its group made different calls; all "
      "ranks of a communicator must make the same calls in the same order, with buffers at the same offset where they "
      "are in symmetric windows",
      static_cast<unsigned long long>(control_->sequence), options_.rank, control_->position);
}

Status CudaRank::Attend() {
  std::vector<CudaWindows::Places> unused;  // released without the lock
  // Threads that enqueue meanwhile also look for the members, so there is nothing to wait for.
  if (const std::unique_lock lock(launching_, std::try_to_lock); lock.owns_lock()) {
    AXCCL_RETURN_IF_ERROR(channels_.CheckMeetings());
    if (windows_.keeps() && orders_.AreDone()) unused = windows_.TakeKept();
    // Releases memory that peers have freed: they may have other memory there now, also in other communicators.
    if (links_.buffers() != nullptr) AXCCL_RETURN_IF_ERROR(links_.buffers()->Look());
    AttendScratch();
    const std::lock_guard attended(attended_->mutex);
    for (CudaPipeline* pipeline : attended_->pipelines) AXCCL_RETURN_IF_ERROR(pipeline->Attend());
  }
  return CheckDevice();
}

void CudaRank::AttendScratch() {
  GrownScratch* const scratch = links_.grown_scratch();
  if (scratch == nullptr || links_.buffers() == nullptr) return;
  if (!scratch->IsDue(*links_.buffers(), waits_->counts().cramped)) return;
  const Scope scope(*device_);
  IfRanksAreIdle(this, [&] { scratch->Attend(links_.buffers()); });
}

bool CudaRank::idle() const {
  const std::unique_lock lock(attended_->mutex, std::try_to_lock);
  return lock.owns_lock() && attended_->pipelines.empty() && !windows_.any() && !orders_.overlooks_graphs() &&
         orders_.AreDone();
}

void CudaRank::Abort() { __atomic_store_n(&control_->abort, 1u, __ATOMIC_RELEASE); }

void CudaRank::Relieve() {
  const std::lock_guard lock(attended_->mutex);
  for (CudaPipeline* pipeline : attended_->pipelines) pipeline->Break();
}

// The rank may part from its peers next, so what its kernels have posted is sent.
void CudaRank::WaitIdle() {
  AwaitKernels();
  if (links_.proxy() != nullptr) (void)links_.proxy()->SendPosted();
}

void CudaRank::AwaitKernels() {
  const Scope scope(*device_);  // the caller may have no context yet
  std::vector<std::shared_ptr<const CudaOrders::End>> ends;
  {
    std::lock_guard lock(launching_);
    if (orders_.AreDone()) return;
    ends = orders_.Ends();
  }
  const Driver& driver = Driver::Loaded();
  for (const auto& end : ends) {
    const auto ended = [&] {
      if (driver.cuEventQuery(end->event) != CUDA_ERROR_NOT_READY) return true;
      Relieve();
      return false;
    };
    const bool aborted = __atomic_load_n(&control_->abort, __ATOMIC_ACQUIRE) != 0;
    aborted ? (void)service::PollUntil(-1, 0, service::Clock::time_point::max(), ended)
            : (void)driver.cuEventSynchronize(end->event);
  }
  if (__atomic_load_n(&control_->abort, __ATOMIC_ACQUIRE) != 0) Relieve();
}

}  // namespace axccl::exec
