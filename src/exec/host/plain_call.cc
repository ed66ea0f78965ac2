#include "src/exec/host/plain_call.h"

namespace axccl::exec {

PlainCall::PlainCall(const Binding& binding, uint32_t signature, uint32_t at)
    : host_(binding.host),
      channel_(binding.channel),
      call_(&binding.call),
      binding_(call_->scaling != Scaling::kNone || call_->callback != nullptr ? &binding : nullptr),
      prepared_(binding.prepared),
      sequence_(binding.sequence),
      turn_(host_->turns().next()),
      copy_(turn_ % plan::kRotation),
      signature_(signature),
      at_(at) {
  TakeBases(*call_);
}

// Including those that Run would wait for next: what they do does not depend on this rank before its next signal.
bool PlainCall::AwaitsNeighbour() const {
  const std::vector<PlainStep>& steps = prepared_->plain_program.steps;
  const std::vector<Step>& named = prepared_->program->lanes[0];
  for (size_t at = at_; at < steps.size() && steps[at].kind != plan::OpKind::kSignal; ++at) {
    if (steps[at].kind != plan::OpKind::kWait || !Handover::IsNeighbour(channel_->members(), named[at].peer)) continue;
    if (!Passed(steps[at])) return true;
  }
  return false;
}

}  // namespace axccl::exec
