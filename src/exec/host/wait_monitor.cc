#include "src/exec/host/wait_monitor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/log.h"
#include "src/device/host/waiting.h"

namespace axccl::exec {
namespace {

// Work that moves does so within this time. It costs messages to all ranks of other machines to look for the reason
// (standstill.h): where ranks have many such peers, or share a core, those would make slow work slower, so they wait
// longer.
constexpr std::chrono::milliseconds kStandstill(60), kStandstillPerMirror(10);

// "rank 2 in ncclAllReduce count 100 float sum (operation 10)"
std::string DescribeWait(const Binding& binding, int position) {
  const Channel& channel = *binding.channel;
  if (position < 0)
    return "chunk " + std::to_string(-1 - position) + " of its input to be declared ready, in " +
           DescribeCall(binding.call);
  const std::string rank = "rank " + std::to_string(channel.member(position).rank);
  if (const Connector* connector = channel.members().connector(); connector != nullptr)
    return rank + " to create and use " + connector->Name() + ", in " + DescribeCall(binding.call);
  const uint64_t sequence = binding.sequence - binding.behind;
  const std::string call = binding.behind != 0 ? channel.log().TextOf(sequence) : DescribeCall(binding.call);
  return rank + " in " + call + " (operation " + std::to_string(sequence) + ")";
}

// What may explain the wait.
std::string Explain(const Binding& binding, int position) {
  const Channel& channel = *binding.channel;
  if (position < 0) return "axcclPipelineReady and axcclPipelineStreamReady do that";
  if (channel.members().connector() != nullptr)
    return "all ranks of a group must create its channel and take part in its operations";
  return channel.log().LastCallOf(position) + (channel.size() > 2 ? channel.log().Absent(binding.sequence) : "");
}

Deadline DeadlineOf(const Binding& binding) {
  const ViewList* const views = binding.call.views.get();
  if (views != nullptr && views->timeout_seconds > 0) return {views->timeout_seconds, "of the call's options"};
  return binding.channel->owner()->deadline();
}

}  // namespace

Status WaitMonitor::Check(const Binding& binding, int position) {
  const Channel& channel = *binding.channel;
  const auto now = std::chrono::steady_clock::now();
  const int peer = std::max(position, -1);
  const auto waited = waited_.At(now);
  if (now - checked_ < device::host::kCheckInterval) return Status();
  if (std::exchange(checked_, now) == std::chrono::steady_clock::time_point()) return channel.members().Check(peer);
  const Connector* connector = channel.members().connector();
  if (connector != nullptr && peer >= 0) AXCCL_RETURN_IF_ERROR(channel.members().CheckMissing(peer));
  AXCCL_RETURN_IF_ERROR(channel.log().FindMismatch());
  AXCCL_RETURN_IF_ERROR(channel.members().Check(peer));
  if (connector == nullptr && peer >= 0) AXCCL_RETURN_IF_ERROR(channel.members().CheckLeft(peer));
  const size_t mirrors = channel.members().Mirrored(plan::kAllPeers).size();
  stands_still_ = waited >= kStandstill + kStandstillPerMirror * mirrors * device::host::Crowding();
  return CheckTime(binding, position, std::chrono::duration<double>(waited).count());
}

Status WaitMonitor::CheckTime(const Binding& binding, int position, double waited) {
  const Channel& channel = *binding.channel;
  const ChannelOwner* const owner = channel.owner();
  if (const Deadline limit = DeadlineOf(binding); limit.seconds > 0 && waited > limit.seconds) {
    return MakeStatus(Code::kTimeout, "rank %d waited %.3g s for %s: deadline %s passed; %s", channel.own().rank,
                      limit.seconds, DescribeWait(binding, position).c_str(), limit.source,
                      Explain(binding, position).c_str());
  }
  if (const double patience = owner->notice_seconds();
      patience > 0 && waited > patience && !std::exchange(noticed_, true)) {
    const bool explained = channel.members().connector() == nullptr;
    log::WriteNotice("rank %d has waited %.3g s for %s%s%s; it goes on waiting (AXCCL_TIMEOUT, AXCCL_WAIT_NOTICE)",
                     channel.own().rank, patience, DescribeWait(binding, position).c_str(), explained ? "; " : "",
                     explained ? Explain(binding, position).c_str() : "");
  }
  return Status();
}

}  // namespace axccl::exec
