#include "tools/axccl-program/gpu_replay.h"

#include <cmath>
#include <string>

#include "src/program/facts.h"
#include "src/program/simulate/work.h"

namespace axccl::tools {

using program::Attr;
using program::Groups;
using program::Ints;
using program::Operation;
using program::OpKind;
using program::TensorType;

namespace {

constexpr size_t kMostTimed = size_t{1} << 16;  // calls of a round, each with two events

// What a buffer is for: an operand, or the result with a number from 1.
constexpr size_t kOperand = 0;

const Groups& PairsOf(const Operation& message) { return program::Get<Groups>(message, Attr::kPairs); }

}  // namespace

GpuReplay::GpuReplay(int ranks, std::vector<const CallSite*> sites, int rounds, int rank, ncclComm_t comm)
    : sites_(std::move(sites)), rounds_(rounds), rank_(rank), comm_(comm), channels_(ranks, rank, comm) {}

GpuReplay::~GpuReplay() {
  if (gpus_ == nullptr) return;
  for (const auto& [channel, stream] : sending_) gpus_->Drop(stream);
  for (const auto& [key, buffer] : buffers_) gpus_->DropMemory(buffer);
  for (const Timed& timed : timed_) {
    for (void* event : {timed.begin, timed.end}) {
      if (event != nullptr) gpus_->DropEvent(event);
    }
  }
  for (void* event : {base_, before_send_}) {
    if (event != nullptr) gpus_->DropEvent(event);
  }
  if (stream_ != nullptr) gpus_->Drop(stream_);
}

Result<RankResult> GpuReplay::Run() {
  const std::string call = "rank " + std::to_string(rank_);
  return CatchAll(call.c_str(), [this]() -> Result<RankResult> {
    AXCCL_RETURN_IF_ERROR(Prepare());
    for (int round = 0; round <= rounds_; ++round) {
      AXCCL_RETURN_IF_ERROR(Round());
      if (round == 0) result_.events.clear();
    }
    return result_;
  });
}

Status GpuReplay::Prepare() {
  if (sites_.size() > kMostTimed)
    return MakeStatus(Code::kInvalidUsage,
                      "rank %d has %zu calls in a round, and %zu can be timed on a GPU; let loops go round less often "
                      "(--trips), or replay on the host",
                      rank_, sites_.size(), kMostTimed);
  AXCCL_ASSIGN_OR_RETURN(gpus_, Gpus::Get());
  AXCCL_ASSIGN_OR_RETURN(stream_, gpus_->NewStream());
  AXCCL_ASSIGN_OR_RETURN(base_, gpus_->NewEvent());
  AXCCL_ASSIGN_OR_RETURN(before_send_, gpus_->NewEvent());
  timed_.resize(sites_.size());
  for (Timed& timed : timed_) {
    AXCCL_ASSIGN_OR_RETURN(timed.begin, gpus_->NewEvent());
    AXCCL_ASSIGN_OR_RETURN(timed.end, gpus_->NewEvent());
  }
  return Status();
}

Status GpuReplay::Round() {
  AXCCL_RETURN_IF_ERROR(Meet());
  AXCCL_RETURN_IF_ERROR(gpus_->Record(base_, stream_));
  AXCCL_RETURN_IF_ERROR(gpus_->Wait(stream_));
  const uint64_t base = MonotonicNanoseconds();
  for (size_t i = 0; i < sites_.size(); ++i) AXCCL_RETURN_IF_ERROR(Issue(*sites_[i], timed_[i]));
  AXCCL_RETURN_IF_ERROR(Finish());
  return AddTimes(base);
}

Status GpuReplay::Meet() {
  const TensorType number{DataType::kInt32, {}};
  AXCCL_ASSIGN_OR_RETURN(void* const in, BufferOf(number, kOperand));
  AXCCL_ASSIGN_OR_RETURN(void* const out, BufferOf(number, 1));
  if (ncclAllReduce(in, out, 1, ncclInt32, ncclSum, comm_, stream_) != ncclSuccess)
    return MakeStatus(Code::kRemoteError, "rank %d between rounds: %s", rank_, ncclGetLastError(comm_));
  return Finish();
}

Status GpuReplay::Issue(const CallSite& site, const Timed& timed) {
  const OpKind kind = site.operation->kind;
  if (kind == OpKind::kSend) return Send(site, timed);
  AXCCL_RETURN_IF_ERROR(gpus_->Record(timed.begin, stream_));
  AXCCL_RETURN_IF_ERROR(kind == OpKind::kRecv ? Receive(site) : Collect(site));
  return gpus_->Record(timed.end, stream_);
}

// What the rank sends to itself takes no time.
Status GpuReplay::Send(const CallSite& site, const Timed& timed) {
  const Operation& operation = *site.operation;
  AXCCL_RETURN_IF_ERROR(gpus_->Record(before_send_, stream_));
  AXCCL_RETURN_IF_ERROR(gpus_->Record(timed.begin, stream_));
  AXCCL_RETURN_IF_ERROR(gpus_->Record(timed.end, stream_));
  AXCCL_ASSIGN_OR_RETURN(void* const buffer, BufferOf(site.operands[0], kOperand));
  const axcclView_t view = ViewOf(site.operands[0], buffer);
  for (const Ints& pair : PairsOf(operation)) {
    if (pair[0] != rank_ || pair[1] == rank_) continue;
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel,
                           channels_.ChannelOf(pair, program::Get<int64_t>(operation, Attr::kChannel)));
    cudaStream_t& stream = sending_[channel];
    if (stream == nullptr) {
      AXCCL_ASSIGN_OR_RETURN(stream, gpus_->NewStream());
    }
    AXCCL_RETURN_IF_ERROR(gpus_->WaitFor(before_send_, stream));
    AXCCL_RETURN_IF_ERROR(gpus_->Record(timed.begin, stream));
    AXCCL_RETURN_IF_ERROR(channels_.Check(axcclSend(1, &view, 1, channel, nullptr, stream), operation));
    AXCCL_RETURN_IF_ERROR(gpus_->Record(timed.end, stream));
  }
  return Status();
}

Status GpuReplay::Receive(const CallSite& site) {
  const Operation& operation = *site.operation;
  AXCCL_ASSIGN_OR_RETURN(void* const buffer, BufferOf(operation.results[0].type, 1));
  const axcclView_t view = ViewOf(operation.results[0].type, buffer);
  for (const Ints& pair : PairsOf(operation)) {
    if (pair[1] != rank_ || pair[0] == rank_) continue;
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel,
                           channels_.ChannelOf(pair, program::Get<int64_t>(operation, Attr::kChannel)));
    AXCCL_RETURN_IF_ERROR(channels_.Check(axcclRecv(1, &view, 0, channel, nullptr, stream_), operation));
  }
  return Status();
}

Status GpuReplay::Collect(const CallSite& site) {
  const Operation& operation = *site.operation;
  const Ints ranks = program::GroupOf(operation, rank_);
  std::vector<axcclView_t> in, out;
  for (const TensorType& type : site.operands) {
    AXCCL_ASSIGN_OR_RETURN(void* const buffer, BufferOf(type, kOperand));
    in.push_back(ViewOf(type, buffer));
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const TensorType& type = operation.results[i].type;
    AXCCL_ASSIGN_OR_RETURN(void* const buffer, BufferOf(type, i + 1));
    out.push_back(ViewOf(type, buffer));
  }
  AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, channels_.ChannelOf(ranks, RankChannels::kCollectives));
  return channels_.Call(operation, ranks, in, out, channel, stream_);
}

// Waits for all that is under way. A failure is one of the communicator, as streams go on without it.
Status GpuReplay::Finish() {
  AXCCL_RETURN_IF_ERROR(gpus_->Wait(stream_));
  for (const auto& [channel, stream] : sending_) AXCCL_RETURN_IF_ERROR(gpus_->Wait(stream));
  ncclResult_t state = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &state) == ncclSuccess && (state == ncclSuccess || state == ncclInProgress))
    return Status();
  return MakeStatus(Code::kRemoteError, "rank %d: %s", rank_, ncclGetLastError(comm_));
}

Status GpuReplay::AddTimes(uint64_t base_nanoseconds) {
  const auto since_base = [&](void* event) -> Result<uint64_t> {
    AXCCL_ASSIGN_OR_RETURN(const double seconds, gpus_->SecondsBetween(base_, event));
    return base_nanoseconds + static_cast<uint64_t>(std::llround(seconds * 1e9));
  };
  for (size_t i = 0; i < sites_.size(); ++i) {
    RankEvent event;
    event.operation = sites_[i]->operation->id;
    event.communication = true;
    AXCCL_ASSIGN_OR_RETURN(event.begin, since_base(timed_[i].begin));
    AXCCL_ASSIGN_OR_RETURN(event.end, since_base(timed_[i].end));
    result_.events.push_back(event);
  }
  return Status();
}

// Calls share the memory of operands, and that of results with the same number.
Result<void*> GpuReplay::BufferOf(const TensorType& type, size_t use) {
  void*& buffer = buffers_[{{type.data_type, type.dims}, use}];
  if (buffer == nullptr) {
    const auto made = gpus_->NewZeros(static_cast<size_t>(program::BytesOf(type)));
    if (!made.ok()) buffers_.erase({{type.data_type, type.dims}, use});
    AXCCL_RETURN_IF_ERROR(made.status());
    buffer = made.value();
  }
  return buffer;
}

}  // namespace axccl::tools
