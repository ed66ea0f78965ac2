#include "src/exec/cuda_rank.h"

#include <algorithm>
#include <cstring>

#include "src/exec/cuda_pointers.h"
#include "src/exec/cuda_program.h"
#include "src/exec/cuda_views.h"

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
namespace cuda = kernels::cuda;

// ---- channels ----

Result<std::unique_ptr<CudaChannel>> CudaChannel::Create(CudaRank* rank, Channel* on_host, bool pair) {
  std::unique_ptr<CudaChannel> channel(new CudaChannel(rank, on_host));
  channel->preparer_ = std::make_shared<Channel>(on_host->host(), rank->MembersOf(*on_host, pair), on_host->self());
  channel->preparer_->group_order = on_host->group_order;
  channel->preparer_->minds_runs = false;
  AXCCL_RETURN_IF_ERROR(channel->Upload());
  return channel;
}

CudaChannel::~CudaChannel() {
  if (memory_ != 0) rank_->device()->Free(memory_);
}

Status CudaChannel::Upload() {
  AXCCL_ASSIGN_OR_RETURN(const Prepared* barrier, preparer_->PrepareBarrier());
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr barrier_program, rank_->ProgramOnDevice(barrier->program));
  const auto size = static_cast<uint32_t>(preparer_->size());
  const size_t members_at = RoundUp(sizeof(cuda::Channel), 64);
  const size_t bindings_at = RoundUp(members_at + size * sizeof(cuda::Member), 64);
  const size_t maps_at = RoundUp(bindings_at + size * sizeof(cuda::Binding), 64);
  std::vector<std::byte> bytes(maps_at + sizeof(uint64_t));  // a single map: the address space
  AXCCL_ASSIGN_OR_RETURN(memory_, rank_->device()->Allocate(bytes.size()));

  cuda::Channel channel;
  channel.control = rank_->control();
  channel.barrier = reinterpret_cast<const cuda::Program*>(barrier_program);
  channel.half_bytes = preparer_->own().layout.scratch_bytes / plan::kRotation;
  channel.endpoints = preparer_->own().layout.endpoints;
  channel.lanes = preparer_->own().layout.lanes;
  channel.size = size;
  channel.self = static_cast<uint32_t>(preparer_->self());
  channel.members_at = static_cast<uint32_t>(members_at);
  channel.bindings_at = static_cast<uint32_t>(bindings_at);
  channel.view_bytes = preparer_->own().layout.announcement_words * sizeof(uint64_t);
  std::memcpy(bytes.data(), &channel, sizeof(channel));
  for (uint32_t p = 0; p < size; ++p) {
    const Member& member = preparer_->member(static_cast<int>(p));
    auto* block = reinterpret_cast<uint8_t*>(member.block);
    cuda::Member on_device;
    on_device.lines = block + member.layout.lines;
    on_device.announcements = block + member.layout.announcements;
    on_device.scratch = block + member.layout.scratch;
    on_device.maps = reinterpret_cast<const uint64_t*>(memory_ + maps_at);
    std::memcpy(bytes.data() + members_at + p * sizeof(on_device), &on_device, sizeof(on_device));
  }
  return rank_->device()->Upload(memory_, bytes.data(), bytes.size());
}

Result<cuda::Task> CudaChannel::MakeTask(const Call& requested, const Lent& table) {
  Call call = requested;
  call.group_order = (call.group_order || preparer_->group_order) && call.OrderMatters();
  const uint64_t room = preparer_->own().layout.announcement_words * sizeof(uint64_t);
  const bool mapped = preparer_->all_same_process() && (call.views == nullptr || CudaViewsFit(*call.views, room));
  const tune::Access access = mapped ? tune::Access::kMapped : tune::Access::kNone;
  AXCCL_ASSIGN_OR_RETURN(const Prepared* prepared, preparer_->Prepare(call, access));
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr program, rank_->ProgramOnDevice(prepared->program));
  if (call.views != nullptr) AXCCL_RETURN_IF_ERROR(CheckCudaViews(call, *prepared->program));
  on_host_->RecordCall(call);
  if (call.kind != plan::Kind::kSendRecv)
    on_host_->host()->last_algorithm.store(prepared->program->plan->schedule.algorithm.c_str(), std::memory_order_relaxed);
  cuda::Task task;
  task.channel = reinterpret_cast<cuda::Channel*>(memory_);
  task.program = reinterpret_cast<const cuda::Program*>(program);
  task.input = call.input;
  task.output = call.output;
  task.input_offset = reinterpret_cast<uint64_t>(call.input);
  task.output_offset = reinterpret_cast<uint64_t>(call.output);
  task.cut = MakeCudaCut(*prepared);
  task.scalar_pointer = call.scalar_pointer;
  task.scalar = call.scalar_bytes;
  task.signature = prepared->signature;
  task.type = call.type;
  task.combine = call.combine;
  task.scaling = static_cast<cuda::Scaling>(call.scaling);
  task.group_order = call.group_order;
  if (call.views != nullptr) {
    MakeCudaViewTable(call, plan::Contract{call.kind, preparer_->size(), call.root}, preparer_->self(), table.memory);
    task.views = reinterpret_cast<const cuda::ViewTable*>(table.on_device);
    task.signature += call.views->Hash();
  }
  return task;
}

// ---- ranks ----

Result<int> NumGpus() { return Device::Count(); }
Result<int> CurrentGpu() { return Device::Current(); }

Result<int> GpuMultiprocessors(int device) {
  AXCCL_ASSIGN_OR_RETURN(const Device* found, Device::Get(device));
  return found->multiprocessors();
}

Result<std::unique_ptr<GpuRank>> GpuRank::Create(const GpuOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(Device * device, Device::Get(options.device));
  auto rank = std::make_unique<CudaRank>(options, device);
  AXCCL_RETURN_IF_ERROR(rank->Allocate());
  return std::unique_ptr<GpuRank>(std::move(rank));
}

CudaRank::CudaRank(const GpuOptions& options, Device* device)
    : options_(options),
      device_(device),
      layout_(CudaLayout::Make(static_cast<uint32_t>(options.ranks), options.lanes, options.scratch_bytes)) {}

Status CudaRank::Allocate() {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(memory_, device_->Allocate(layout_.bytes));
  AXCCL_ASSIGN_OR_RETURN(void* control, device_->AllocateHost(sizeof(cuda::Control)));
  control_ = static_cast<cuda::Control*>(control);
  const Scope scope(*device_);
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  address_.pointer = memory_;
  address_.device = options_.device;
  std::memcpy(address_.uuid.data(), device_->uuid().bytes, address_.uuid.size());
  // Where the driver shares no memory between processes, ranks of one process get along without.
  CUipcMemHandle handle{};
  static_assert(sizeof(handle) == sizeof(address_.handle));
  if (driver.cuIpcGetMemHandle(&handle, memory_) == CUDA_SUCCESS) std::memcpy(address_.handle.data(), &handle, sizeof(handle));
  return Status();
}

void CudaRank::Disconnect() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  channels_.clear();
  for (const CUdeviceptr memory : opened_) driver.cuIpcCloseMemHandle(memory);
  opened_.clear();
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
  if (done_ != nullptr) driver.cuEventDestroy(done_);
  if (control_ != nullptr) device_->FreeHost(control_);
  if (memory_ != 0) device_->Free(memory_);
}

Status CudaRank::Connect(const std::vector<GpuAddress>& addresses, const std::vector<Member>& members) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  neighbours_ = 0;
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    const GpuAddress& address = addresses[rank];
    neighbours_ += address.uuid == address_.uuid;
    CUdeviceptr block = address.pointer;
    if (members[rank].same_process) {
      AXCCL_ASSIGN_OR_RETURN(const Device* peer, Device::Get(address.device));
      AXCCL_RETURN_IF_ERROR(device_->EnablePeer(*peer));
    } else {
      CUipcMemHandle handle;
      std::memcpy(&handle, address.handle.data(), sizeof(handle));
      const CUresult result = driver.cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      if (result != CUDA_SUCCESS)
        return MakeStatus(Code::kUnhandledCudaError, "rank %d on CUDA device %d cannot map the memory of rank %zu (device %d of "
                          "another process): %.*s; put such ranks into one process, or set AXCCL_DEVICE=host", options_.rank,
                          options_.device, rank, address.device,
                          static_cast<int>(Check(result, "cuIpcOpenMemHandle").message().size()),
                          Check(result, "cuIpcOpenMemHandle").message().data());
      opened_.push_back(block);
    }
    blocks_.push_back(reinterpret_cast<std::byte*>(block));
  }
  return Status();
}

std::vector<Member> CudaRank::MembersOf(const Channel& on_host, bool pair) const {
  std::vector<Member> members;
  for (int p = 0; p < on_host.size(); ++p) {
    Member member = on_host.member(p);
    member.block = blocks_[static_cast<size_t>(member.rank)];
    member.layout = pair ? layout_.Pair(static_cast<uint32_t>(on_host.member(0).rank),
                                        static_cast<uint32_t>(on_host.member(1).rank), static_cast<uint32_t>(member.rank))
                         : layout_.channel;
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

Result<CudaChannel*> CudaRank::ChannelFor(Channel* on_host, bool pair) {
  std::unique_ptr<CudaChannel>& channel = channels_[on_host];
  if (channel == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(channel, CudaChannel::Create(this, on_host, pair));
  }
  return channel.get();
}

Status CudaRank::CheckCall(const Call& call) const {
  if (call.uneven())
    return MakeStatus(Code::kInvalidUsage, "%s: parts of different sizes on CUDA devices are not served yet; use host ranks",
                      DescribeCall(call).c_str());
  if (call.views != nullptr && call.kind == plan::Kind::kSendRecv)
    return MakeStatus(Code::kInvalidUsage, "%s: messages of views on CUDA devices are not served yet; use ncclSend and ncclRecv, "
                      "or host ranks", DescribeCall(call).c_str());
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

// Of the first and the last byte: what is between may be several allocations side by side (virtual memory management).
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

Status CudaRank::TakeReport() {
  const auto report = static_cast<cuda::Report>(__atomic_load_n(&control_->report, __ATOMIC_ACQUIRE));
  if (report != cuda::Report::kMismatch) return Status();
  // The calls are written down on the host; those of replayed graphs are not.
  {
    std::lock_guard lock(launching_);
    for (const auto& [on_host, channel] : channels_) AXCCL_RETURN_IF_ERROR(on_host->FindMismatch());
  }
  return MakeStatus(Code::kInvalidUsage,
                    "mismatch at operation %llu: rank %d and the member at position %u of its group made different calls; all "
                    "ranks of a communicator must make the same calls in the same order",
                    static_cast<unsigned long long>(control_->sequence), options_.rank, control_->position);
}

void CudaRank::Abort() { __atomic_store_n(&control_->abort, 1u, __ATOMIC_RELEASE); }

bool CudaRank::Idle() {
  const Scope scope(*device_);  // whoever asks may have no context yet
  std::lock_guard lock(launching_);
  return !launched_ || Driver::Loaded().cuEventQuery(done_) != CUDA_ERROR_NOT_READY;
}

void CudaRank::WaitIdle() {
  if (Idle()) return;
  const Scope scope(*device_);
  Driver::Loaded().cuEventSynchronize(done_);
}

Status CudaRank::Follow(CUstream stream) {
  const Driver& driver = Driver::Loaded();
  unsigned long long id = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &id));
  if (!launched_ || id == last_stream_) return Status();
  return Check(driver.cuStreamWaitEvent(stream, done_, 0), "cuStreamWaitEvent");
}

Status CudaRank::Launched(CUstream stream) {
  const Driver& driver = Driver::Loaded();
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(done_, stream));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &last_stream_));
  launched_ = true;
  return Status();
}

Result<Lent> CudaRank::Lend(size_t bytes, bool captured) {
  const Driver& driver = Driver::Loaded();
  if (!captured) {
    for (Loan& old : loans_) {
      if (old.lent || old.done == nullptr || old.bytes < bytes || driver.cuEventQuery(old.done) != CUDA_SUCCESS) continue;
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
  const auto loan = std::find_if(loans_.begin(), loans_.end(), [&](const Loan& l) { return l.what.memory == lent.memory; });
  if (loan->done == nullptr) return Status();
  loan->lent = false;
  return Check(Driver::Loaded().cuEventRecord(loan->done, stream), "cuEventRecord");
}

}  // namespace axccl::exec
