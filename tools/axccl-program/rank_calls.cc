#include "tools/axccl-program/rank_calls.h"

#include <time.h>

#include <algorithm>
#include <string>

#include "src/program/facts.h"
#include "src/program/kinds.h"

namespace axccl::tools {

using program::Attr;
using program::Groups;
using program::Ints;
using program::Operation;
using program::OpKind;
using program::Tensor;

namespace {

void SetEndOf(void* event) { static_cast<RankEvent*>(event)->end = MonotonicNanoseconds(); }

}  // namespace

uint64_t MonotonicNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

RankCalls::RankCalls(int ranks, int rank, ncclComm_t comm, axcclStream_t stream)
    : rank_(rank), comm_(comm), stream_(stream), channels_(ranks, rank, comm) {}

RankCalls::~RankCalls() {
  for (const auto& [channel, sending] : sending_) {
    if (sending.stream == nullptr) continue;
    (void)axcclStreamSynchronize(sending.stream);  // it may still write the end of an event
    (void)axcclStreamDestroy(sending.stream);
  }
}

Status RankCalls::Collect(const Operation& operation, const std::vector<Shared>& operands,
                          std::vector<Tensor>* results) {
  const Ints ranks = program::GroupOf(operation, rank_);
  if (ranks.empty()) return Status();
  std::vector<axcclView_t> in, out;
  for (const Shared& operand : operands) in.push_back(ViewOf(operand->type, operand->bytes.data()));
  for (const Tensor& result : *results) out.push_back(ViewOf(result.type, result.bytes.data()));
  AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, channels_.ChannelOf(ranks, RankChannels::kCollectives));
  AXCCL_RETURN_IF_ERROR(channels_.Call(operation, ranks, in, out, channel, axcclStreamToCuda(stream_)));
  return channels_.Check(axcclStreamSynchronize(stream_), operation);
}

// Those of a channel go one after the other, so what is sent is known when all of them are.
Status RankCalls::DropSent() {
  for (auto& [channel, sending] : sending_) {
    if (sending.values.empty()) continue;
    const ncclResult_t state = axcclStreamQuery(sending.stream);
    if (state == ncclInProgress) continue;
    if (state != ncclSuccess)
      return MakeStatus(Code::kRemoteError, "rank %d, in a send: %s", rank_, ncclGetLastError(comm_));
    sending.values.clear();
  }
  return Status();
}

// A send does not wait for its recv, so each channel of messages has a stream.
Status RankCalls::Send(const Operation& operation, const Shared& value, RankEvent* event) {
  AXCCL_RETURN_IF_ERROR(DropSent());
  const auto number = program::Get<int64_t>(operation, Attr::kChannel);
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    if (pair[0] != rank_) continue;
    if (pair[1] == rank_) {
      to_itself_[number].push_back(value);
      if (event != nullptr) SetEndOf(event);
      continue;
    }
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, channels_.ChannelOf(pair, number));
    Sending& sending = sending_[channel];
    if (sending.stream == nullptr)
      AXCCL_RETURN_IF_ERROR(channels_.Check(axcclStreamCreate(&sending.stream, axcclStreamNonBlocking), operation));
    const axcclView_t view = ViewOf(value->type, value->bytes.data());
    sending.values.push_back(value);
    AXCCL_RETURN_IF_ERROR(
        channels_.Check(axcclSend(1, &view, 1, channel, nullptr, axcclStreamToCuda(sending.stream)), operation));
    if (event != nullptr)
      AXCCL_RETURN_IF_ERROR(channels_.Check(axcclLaunchHostFunc(sending.stream, SetEndOf, event), operation));
  }
  return Status();
}

Result<RankCalls::Shared> RankCalls::Receive(const Operation& operation, Tensor* result) {
  AXCCL_RETURN_IF_ERROR(DropSent());
  const auto number = program::Get<int64_t>(operation, Attr::kChannel);
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    if (pair[1] != rank_) continue;
    if (pair[0] == rank_) {
      std::deque<Shared>& sent = to_itself_[number];
      Shared value = std::move(sent.front());
      sent.pop_front();
      return value;
    }
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, channels_.ChannelOf(pair, number));
    const axcclView_t view = ViewOf(result->type, result->bytes.data());
    AXCCL_RETURN_IF_ERROR(
        channels_.Check(axcclRecv(1, &view, 0, channel, nullptr, axcclStreamToCuda(stream_)), operation));
    AXCCL_RETURN_IF_ERROR(channels_.Check(axcclStreamSynchronize(stream_), operation));
  }
  return Shared();
}

Status RankCalls::Finish() {
  for (auto& [channel, sending] : sending_) {
    if (axcclStreamSynchronize(sending.stream) != ncclSuccess)
      return MakeStatus(Code::kRemoteError, "rank %d, in a send: %s", rank_, ncclGetLastError(comm_));
    sending.values.clear();
  }
  return Status();
}

Status RankCalls::Meet() {
  int32_t in = 0, out = 0;
  if (ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm_, axcclStreamToCuda(stream_)) == ncclSuccess &&
      axcclStreamSynchronize(stream_) == ncclSuccess)
    return Status();
  return MakeStatus(Code::kRemoteError, "rank %d between rounds: %s", rank_, ncclGetLastError(comm_));
}

}  // namespace axccl::tools
