#include "src/exec/host/wait_monitor.h"

#include <string>

#include "src/base/log.h"
#include "src/device/host/waiting.h"

namespace axccl::exec {
namespace {

// Work that moves does so within this time.
constexpr std::chrono::milliseconds kStandstill(60);

// "rank 2 in ncclAllReduce count 100 float sum (operation 10)"
std::string DescribeWait(const Binding& binding, int position) {
  const Channel& channel = *binding.channel;
  const std::string rank = "rank " + std::to_string(channel.member(position).rank);
  if (const Connector* connector = channel.members().connector(); connector != nullptr)
    return rank + " to create and use " + connector->Name() + ", in " + DescribeCall(binding.call);
  return rank + " in " + DescribeCall(binding.call) + " (operation " + std::to_string(binding.sequence) + ")";
}

}  // namespace

Status WaitMonitor::Check(const Binding& binding, int position) {
  const Channel& channel = *binding.channel;
  const auto now = std::chrono::steady_clock::now();
  if (started_ == std::chrono::steady_clock::time_point()) {
    started_ = checked_ = now;
    return channel.members().Check(position);
  }
  if (now - checked_ < device::host::kCheckInterval) return Status();
  checked_ = now;
  const Connector* connector = channel.members().connector();
  AXCCL_RETURN_IF_ERROR(connector != nullptr ? channel.members().CheckMissing(position) : channel.log().FindMismatch());
  AXCCL_RETURN_IF_ERROR(channel.members().Check(position));
  if (connector == nullptr) AXCCL_RETURN_IF_ERROR(channel.members().CheckLeft(position));
  const ChannelOwner* const owner = channel.owner();
  const double waited = std::chrono::duration<double>(now - started_).count();
  stands_still_ = now - started_ >= kStandstill;
  if (const double limit = owner->timeout_seconds(); limit > 0 && waited > limit) {
    return MakeStatus(Code::kTimeout, "rank %d waited %.3g s for %s: deadline AXCCL_TIMEOUT passed; %s",
                      channel.own().rank, limit, DescribeWait(binding, position).c_str(),
                      connector != nullptr
                          ? "all ranks of a group must create its channel and take part in its operations"
                          : channel.log().LastCallOf(position).c_str());
  }
  if (const double patience = owner->notice_seconds();
      patience > 0 && waited > patience && !std::exchange(noticed_, true)) {
    log::WriteNotice("rank %d has waited %.3g s for %s%s%s; it goes on waiting (AXCCL_TIMEOUT, AXCCL_WAIT_NOTICE)",
                     channel.own().rank, patience, DescribeWait(binding, position).c_str(),
                     connector != nullptr ? "" : "; ",
                     connector != nullptr ? "" : channel.log().LastCallOf(position).c_str());
  }
  return Status();
}

}  // namespace axccl::exec
