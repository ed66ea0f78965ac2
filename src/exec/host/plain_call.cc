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

}  // namespace axccl::exec
