// How an operation that has failed gives the application its buffers back.
//
// Peers that have mapped a buffer write into it, and whoever is in the middle of a step goes on until its end. So a rank first
// says that it has failed, after which no step begins that would touch its buffers, and then waits for the steps under way:
// of its process by its queues, of others by what they tell in BlockHeader::writing. Those take a millisecond. A process that
// is stopped in the middle of one, or calls a function of the application there, may take for ever; so after a while the rank
// takes the pages of its outputs back, and what is written from then on goes nowhere.
#include "src/base/log.h"
#include "src/exec/operation.h"

namespace axccl::exec {

using device::host::Poll;

// A step of 2 MiB, for whose process a busy machine has no core at once.
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
  if (exposed != exposed_) channel_->host()->exposed.fetch_add(exposed ? 1 : -1, std::memory_order_acq_rel);
  exposed_ = exposed;
}

// Whether ranks of other processes write into each other's buffers.
bool Operation::OthersMayWrite() const {
  return !channel_->all_same_process() && prepared_->program->plan->pushes;
}

bool Operation::OthersHaveLeft() {
  if (!exposed_) return true;
  const Member* const writer = Writer();
  if (writer == nullptr) return true;
  if (std::chrono::steady_clock::now() - left_ < kPatience) return false;
  const Status taken = CatchAll("taking buffers back", [this] { return TakeBackOutputs(); });
  if (!taken.ok()) {
    log::Tell("rank %d has given up %s while rank %d (process %u) was in the middle of it; do not use the output before that "
              "process has ended, which may still write there: %.*s",
              channel_->own().rank, DescribeCall(call_).c_str(), writer->rank, writer->process->pid(),
              static_cast<int>(taken.message().size()), taken.message().data());
  }
  return true;
}

// One of another process that may be in the middle of writing here. Steps that begin later see the failure.
const Member* Operation::Writer() const {
  for (int p = 0; p < channel_->size(); ++p) {
    const Member& peer = channel_->member(p);
    if (!peer.same_process && peer.header->writing.load(std::memory_order_seq_cst) != 0 && !peer.process->Died()) return &peer;
  }
  return nullptr;
}

// Of the memory where other ranks may write; ends with the first error.
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
  return ForEachOutput([this](const Memory& output) { return channel_->host()->TakeBack(output.lowest, output.bytes); });
}

// Of an operation that has done all it has to do. Pages are the unit of what is taken back, and two operations may each have
// their outputs in a part of one.
Status Operation::CheckOutputs() const {
  if (!exposed_) return Status();
  return ForEachOutput([this](const Memory& output) {
    if (!channel_->host()->TakenBack(output.lowest, output.bytes)) return Status();
    return MakeStatus(Code::kSystemError,
                      "rank %d: a page of the output of %s is not shared any more: a call that was given up while a process was "
                      "in the middle of it had its output there, too; keep what several communicators work on at the same time "
                      "in different pages of 4 KiB",
                      channel_->own().rank, DescribeCall(call_).c_str());
  });
}

}  // namespace axccl::exec
