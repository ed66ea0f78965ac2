// How an operation that failed gives the application its buffers back.
//
// Peers that mapped a buffer write into it, and a peer in the middle of a step continues to the end of the step. So a
// rank first publishes its failure, after which no peer begins a step on its buffers, and then waits for the steps
// under way: for those of its own process through the queues, for those of other processes through
// BlockHeader::writing. A step takes about a millisecond. A process that is stopped in the middle of one, or runs a
// callback of the application there, may take forever; so after kPatience the rank takes the pages of its outputs back,
// and later writes have no effect.
#include "src/base/log.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {

using device::host::Poll;

// A step moves at most 2 MiB, but a busy machine may not run its process at once.
constexpr std::chrono::milliseconds kPatience(500);

Poll Operation::Leave() {
  if (stage_ != Stage::kLeaving) {
    polling_.End(false);
    others_ = device::host::StepsUnderWay::InProcess();
    left_ = std::chrono::steady_clock::now();
    stage_ = Stage::kLeaving;
  }
  if (!others_.Ended() || !OthersHaveLeft()) return Poll::kBlocked;
  stage_ = Stage::kFinished;
  Expose(false);
  return Poll::kDone;
}

void Operation::Expose(bool exposed) {
  if (exposed != exposed_) channel_->owner()->CountExposed(exposed);
  exposed_ = exposed;
}

// Whether ranks of different processes write into each other's buffers in this plan.
bool Operation::OthersMayWrite() const {
  return !channel_->members().all_same_process() && prepared_->program->plan->pushes;
}

bool Operation::OthersHaveLeft() {
  if (!exposed_) return true;
  const Member* const writer = Writer();
  if (writer == nullptr) return true;
  if (std::chrono::steady_clock::now() - left_ < kPatience) return false;
  const Status taken = CatchAll("taking buffers back", [this] { return TakeBackOutputs(); });
  if (!taken.ok()) {
    log::Tell(
        "rank %d has given up %s while rank %d (process %u) was in the middle of it; do not use the output before that "
        "process has ended, which may still write there: %.*s",
        channel_->own().rank, DescribeCall(call_).c_str(), writer->rank, writer->process->pid(),
        static_cast<int>(taken.message().size()), taken.message().data());
  }
  return true;
}

// A member of another process that may be writing here; null if there is none. Steps that begin later see the failure.
const Member* Operation::Writer() const {
  for (int p = 0; p < channel_->size(); ++p) {
    const Member& peer = channel_->member(p);
    if (!peer.same_process && peer.header->writing.load(std::memory_order_seq_cst) != 0 && !peer.process->Died())
      return &peer;
  }
  return nullptr;
}

// Visits the memory that other ranks may write to. Stops at the first error.
template <class Visit>
Status Operation::ForEachOutput(Visit visit) const {
  if (call_.views != nullptr) {
    for (size_t i = 0; i < NumViews(); ++i) AXCCL_RETURN_IF_ERROR(visit(MemoryOf(Side::kOutput, i)));
    return Status();
  }
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const auto blocks = static_cast<uint64_t>(plan::OutputBlocks(contract, channel_->self()));
  return visit({static_cast<const std::byte*>(call_.output), call_.count * ElementSize(call_.type) * blocks});
}

Status Operation::TakeBackOutputs() {
  return ForEachOutput(
      [this](const Memory& output) { return channel_->owner()->TakeBack(output.lowest, output.bytes); });
}

// Call when the operation has finished its last step. Memory is taken back in whole pages, and two operations may have
// outputs in the same page: the peers' writes for this one may then be lost.
Status Operation::CheckOutputs() const {
  if (!exposed_) return Status();
  return ForEachOutput([this](const Memory& output) {
    if (!channel_->owner()->TakenBack(output.lowest, output.bytes)) return Status();
    return MakeStatus(
        Code::kSystemError,
        "rank %d: a page of the output of %s is not shared any more: a call that was given up while a process was "
        "in the middle of it had its output there, too; keep what several communicators work on at the same time "
        "in different pages of 4 KiB",
        channel_->own().rank, DescribeCall(call_).c_str());
  });
}

}  // namespace axccl::exec
