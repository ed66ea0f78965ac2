#include "src/exec/host/factors.h"

namespace axccl::exec {

void StartScales(Binding* binding) {
  const Call& call = binding->call;
  const Channel& channel = *binding->channel;
  Scales& scales = binding->scales;
  if (call.scaling == Scaling::kPreMultiply) {
    const void* const scalar = call.scalar_pointer != nullptr ? call.scalar_pointer : &call.scalar_bytes;
    binding->workspace().BuffersOf(channel.self()).factor = LoadFactor(call.type, scalar);
  }
  if (call.scaling == Scaling::kAverage) {
    scales.averages = IsFloat(ScalarType(call.type));
    if (!scales.averages) scales.divisor = static_cast<uint64_t>(channel.size());
  }
  scales.inputs = scales.averages || call.scaling == Scaling::kPreMultiply;
}

void AnnounceFactor(const Binding& binding, OpRecord* record) {
  if (binding.call.scaling != Scaling::kPreMultiply) return;
  const Factor& factor = binding.workspace().BuffersOf(binding.channel->self()).factor;
  record->word[OpRecord::kFactor].store(factor.u64, std::memory_order_relaxed);
}

void BindFactor(const Binding& binding, int position) {
  if (binding.call.scaling != Scaling::kPreMultiply) return;
  const Member& member = binding.channel->member(position);
  const OpRecord* record = member.layout.RecordOf(member.block, binding.sequence);
  binding.workspace().BuffersOf(position).factor.u64 = record->word[OpRecord::kFactor].load(std::memory_order_relaxed);
}

// Raw contributions are scaled as they are read; contributions in scratch are scaled already.
void GatherFactors(const Binding& binding, const Step& step) {
  const Call& call = binding.call;
  const plan::Operand* sources = &binding.prepared->program->operands[step.operands + step.num_dst];
  Factor* const factors = binding.workspace().factors();
  const Factor one = FactorOf(call.type, 1), share = FactorOf(call.type, 1, binding.channel->size());
  for (int i = 0; i < step.num_src; ++i) {
    const bool raw = sources[i].buffer == plan::Buffer::kInput;
    if (raw && call.scaling == Scaling::kPreMultiply) {
      factors[i] = binding.workspace().BuffersOf(sources[i].rank).factor;
    } else {
      factors[i] = raw && binding.scales.averages ? share : one;
    }
  }
}

}  // namespace axccl::exec
