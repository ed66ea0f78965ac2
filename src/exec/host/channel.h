// What the operations of a channel on a host rank keep from one to the next: their prepared calls, their turns, how
// their messages end, and their workspace.
//
// Each channel has one for its whole life. Only its running operation uses it, and so one thread at a time; any thread
// may ask how many calls are prepared.
#pragma once

#include "src/exec/channel/channel.h"
#include "src/exec/host/handover.h"
#include "src/exec/host/message_end.h"
#include "src/exec/host/turns.h"
#include "src/exec/host/workspace.h"
#include "src/exec/prepared/plan_cache.h"

namespace axccl::exec {

class HostChannel final : public ChannelState {
 public:
  explicit HostChannel(const Members& members, const PlanOptions& plans = {})
      : workspace_(static_cast<size_t>(members.size())), plans_(&members, plans, [this](const plan::Operand& operand) {
          const MemberBuffers& buffers = workspace_.BuffersOf(operand.rank);
          return operand.buffer == plan::Buffer::kInput ? &buffers.input : &buffers.output;
        }) {
    if (members.inbox() != nullptr) workspace_.MakeRoomForMessages();
  }

  // For channels of host ranks.
  static HostChannel* Of(const Channel& channel) { return static_cast<HostChannel*>(channel.state()); }

  PlanCache& plans() { return plans_; }
  const PlanCache& plans() const { return plans_; }
  Turns& turns() { return turns_; }
  const Turns& turns() const { return turns_; }
  Handover& handover() { return handover_; }
  MessageEnd& message_end() { return message_end_; }
  Workspace& workspace() { return workspace_; }

 private:
  Workspace workspace_;
  PlanCache plans_;
  Turns turns_;
  Handover handover_;
  MessageEnd message_end_;
};

}  // namespace axccl::exec
