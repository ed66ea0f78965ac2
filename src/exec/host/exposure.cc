#include "src/exec/host/exposure.h"

#include "src/base/log.h"

namespace axccl::exec {
namespace {

// A step moves at most 2 MiB, but a busy machine may not run its process at once.
constexpr std::chrono::milliseconds kPatience(500);

// Returns a member of another process that may be writing here; null if there is none. Steps that begin later see the
// failure.
const Member* FindWriter(const Channel& channel) {
  for (int p = 0; p < channel.size(); ++p) {
    const Member& peer = channel.member(p);
    if (!peer.reach->same_process() && peer.header->writing.load(std::memory_order_seq_cst) != 0 && !peer.reach->Died())
      return &peer;
  }
  return nullptr;
}

Status TakeBackOutputs(const Binding& binding, const Operands& operands) {
  for (size_t i = 0; i < operands.NumOutputs(binding); ++i) {
    const Memory output = operands.OutputOf(binding, i);
    AXCCL_RETURN_IF_ERROR(binding.channel->owner()->TakeBack(output.lowest, output.bytes));
  }
  return Status();
}

}  // namespace

void Exposure::BeginLeaving() {
  others_ = device::host::StepsUnderWay::InProcess();
  left_ = std::chrono::steady_clock::now();
}

bool Exposure::HasLeft(const Binding& binding, const Operands& operands) {
  if (!others_.Ended()) return false;
  if (!exposed_) return true;
  const Channel& channel = *binding.channel;
  const Member* const writer = FindWriter(channel);
  if (writer == nullptr) return true;
  if (std::chrono::steady_clock::now() - left_ < kPatience) return false;
  const Status taken = CatchAll("taking buffers back", [&] { return TakeBackOutputs(binding, operands); });
  if (!taken.ok()) {
    log::WriteNotice(
        "rank %d has given up %s while rank %d (process %u) was in the middle of it; do not use the output before that "
        "process has ended, which may still write there: %.*s",
        channel.own().rank, DescribeCall(binding.call).c_str(), writer->rank, writer->reach->pid(),
        static_cast<int>(taken.message().size()), taken.message().data());
  }
  return true;
}

Status Exposure::FindTakenBack(const Binding& binding, const Operands& operands) {
  const Channel& channel = *binding.channel;
  for (size_t i = 0; i < operands.NumOutputs(binding); ++i) {
    const Memory output = operands.OutputOf(binding, i);
    if (!channel.owner()->TakenBack(output.lowest, output.bytes)) continue;
    return MakeStatus(
        Code::kSystemError,
        "rank %d: a page of the output of %s is not shared any more: a call that was given up while a process was "
        "in the middle of it had its output there, too; keep what several communicators work on at the same time "
        "in different pages of 4 KiB",
        channel.own().rank, DescribeCall(binding.call).c_str());
  }
  return Status();
}

}  // namespace axccl::exec
