// The data movement of operations: operands to addresses, addresses to the movers of kernels/.
#include <algorithm>

#include "kernels/host/mover.h"
#include "src/exec/operation.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::OpKind;
using plan::Operand;

// Bytes of one mover call: long enough to stream, short enough to come back for aborts.
constexpr uint64_t kMoveBytes = 512u << 10;
// Bytes fetched from plain memory of another process before they are worked on: stays in the second-level cache.
constexpr uint64_t kBounceBytes = 128u << 10;

}  // namespace

// Where element `element` of the operand's data for this part is. Scratch holds one part a slot, from its start.
std::byte* Operation::Address(const Operand& operand, uint32_t lane, uint64_t turn, uint32_t part, uint64_t element,
                              bool* by_call) const {
  const size_t size = ElementSize(call_.type);
  if (operand.buffer == Buffer::kScratch) {
    const Member& member = channel_->member(operand.rank);
    const uint32_t slot = operand.part + part;
    const int16_t endpoint = prepared_->program->inline_endpoint[slot];
    if (prepared_->inline_slots && endpoint >= 0)
      return member.layout.LineOf(member.block, lane, static_cast<uint32_t>(endpoint), turn)->data + element * size;
    // Each turn has its half of the scratch, whatever the plan and the size of its slots: what the next operation writes
    // does not lie across what members may still read of this one.
    const uint64_t half = turn % plan::kRotation * (member.layout.scratch_bytes / plan::kRotation);
    const uint64_t index = uint64_t{lane} * prepared_->program->plan->schedule.slots + slot;
    return member.block + member.layout.scratch + half + index * prepared_->slot_bytes + element * size;
  }
  const Channel::Binding& binding = channel_->bindings[operand.rank];
  const bool input = operand.buffer == Buffer::kInput;
  *by_call |= input ? binding.input_by_call : binding.output_by_call;
  return (input ? binding.input : binding.output) + (operand.block * call_.count + element) * size;
}

// Factors of the sources: raw contributions are scaled as they are read; what is in scratch has been.
void Operation::GatherFactors(const Step& step) {
  const Operand* sources = &prepared_->program->operands[step.operands + step.num_dst];
  for (int i = 0; i < step.num_src; ++i) {
    Factor& factor = channel_->factors[static_cast<size_t>(i)];
    const bool raw = sources[i].buffer == Buffer::kInput;
    const double mean = raw && averages_floats_ ? 1.0 / channel_->size() : 1.0;
    if (raw && call_.scaling == Scaling::kPreMultiply) {
      factor = channel_->bindings[sources[i].rank].factor;
    } else if (call_.type == DataType::kFloat64) {
      factor.f64 = mean;
    } else if (IsFloat(call_.type)) {
      factor.f32 = static_cast<float>(mean);
    } else {
      factor.i64 = 1;
    }
  }
}

Operation::Places Operation::Gather(const Step& step, uint32_t lane, uint64_t turn, uint32_t part, uint64_t range_begin,
                                    uint64_t offset) {
  const Operand* operand = &prepared_->program->operands[step.operands];
  Places places;
  auto resolve = [&](const Operand& o) {
    const uint64_t element = o.buffer == Buffer::kScratch ? offset : range_begin + offset;
    return Address(o, lane, turn, part, element, &places.by_call);
  };
  const bool scales = averages_floats_ || call_.scaling == Scaling::kPreMultiply;
  const void** src = channel_->src.data();
  for (int i = 0; i < step.num_src; ++i) {
    const Operand& o = operand[step.num_dst + i];
    src[i] = resolve(o);
    places.scaled |= scales && o.buffer == Buffer::kInput;
  }
  places.num_src = step.num_src;
  if (places.scaled) GatherFactors(step);
  const bool plain_copy = step.kind == OpKind::kCopy && !places.scaled && !(step.finish && post_divisor_ != 0);
  void** dst = channel_->dst.data();
  for (int i = 0; i < step.num_dst; ++i) {
    std::byte* where = resolve(operand[i]);
    places.to_user_only &= operand[i].buffer != Buffer::kScratch;
    // In place, a copy onto itself is nothing to do.
    if (!plain_copy || where != src[0]) dst[places.num_dst++] = where;
  }
  return places;
}

void Operation::MoveLocal(const Step& step, const Places& places, uint64_t count) {
  if (places.num_dst == 0) return;
  const uint64_t divisor = step.finish ? post_divisor_ : 0;
  const bool non_temporal = prepared_->around_cache && places.to_user_only;
  if (step.kind == OpKind::kCopy && !places.scaled && divisor == 0) {
    kernels::Copy(channel_->dst.data(), places.num_dst, channel_->src[0], count * ElementSize(call_.type), non_temporal);
    return;
  }
  kernels::ReduceRequest request;
  request.dst = channel_->dst.data();
  request.num_dst = places.num_dst;
  request.src = channel_->src.data();
  request.num_src = places.num_src;
  request.count = count;
  request.type = call_.type;
  request.combine = call_.combine;
  request.pre = places.scaled ? channel_->factors.data() : nullptr;
  request.post_divisor = divisor;
  request.non_temporal = non_temporal;
  kernels::Reduce(request);
}

// Some operands are plain memory of other processes: fetch those sources into bounce space, move, and send those
// destinations on.
Status Operation::MoveByCall(const Step& step, uint32_t lane, uint64_t turn, uint32_t part, uint64_t range_begin,
                             uint64_t offset, uint64_t count) {
  const Operand* operand = &prepared_->program->operands[step.operands];
  const uint64_t bytes = count * ElementSize(call_.type);
  const size_t stride = (bytes + 63) / 64 * 64;
  channel_->bounce.resize(std::max(channel_->bounce.size(), stride * (step.num_src + size_t{1})));
  Places places = Gather(step, lane, turn, part, range_begin, offset);
  Host* host = channel_->host();
  auto remote = [this](const Operand& o) {
    const Channel::Binding& binding = channel_->bindings[o.rank];
    return (o.buffer == Buffer::kInput && binding.input_by_call) || (o.buffer == Buffer::kOutput && binding.output_by_call);
  };
  for (int i = 0; i < step.num_src; ++i) {
    const Operand& o = operand[step.num_dst + i];
    if (!remote(o)) continue;
    std::byte* local = channel_->bounce.data() + stride * static_cast<size_t>(i + 1);
    AXCCL_RETURN_IF_ERROR(host->CallRead(channel_->member(o.rank).process->pid(), local,
                                         reinterpret_cast<uint64_t>(channel_->src[static_cast<size_t>(i)]), bytes));
    channel_->src[static_cast<size_t>(i)] = local;
  }
  // One local result serves all remote destinations.
  std::byte* result = nullptr;
  int local_dst = 0;
  for (int i = 0; i < step.num_dst; ++i) {
    bool unused = false;
    if (remote(operand[i])) continue;
    std::byte* where = Address(operand[i], lane, turn, part,
                               operand[i].buffer == Buffer::kScratch ? offset : range_begin + offset, &unused);
    channel_->dst[static_cast<size_t>(local_dst++)] = where;
    result = where;
  }
  const bool plain_copy = step.kind == OpKind::kCopy && !places.scaled && !(step.finish && post_divisor_ != 0);
  if (plain_copy) {
    if (local_dst == 1 && result == channel_->src[0]) local_dst = 0;
    result = static_cast<std::byte*>(const_cast<void*>(channel_->src[0]));
  } else if (local_dst == 0) {
    result = channel_->bounce.data();
    channel_->dst[static_cast<size_t>(local_dst++)] = result;
  }
  places.num_dst = local_dst;
  places.to_user_only = false;  // about to be read again
  MoveLocal(step, places, count);
  for (int i = 0; i < step.num_dst; ++i) {
    if (!remote(operand[i])) continue;
    bool by_call = false;
    std::byte* where = Address(operand[i], lane, turn, part, range_begin + offset, &by_call);
    AXCCL_RETURN_IF_ERROR(host->CallWrite(channel_->member(operand[i].rank).process->pid(), result,
                                          reinterpret_cast<uint64_t>(where), bytes));
  }
  return Status();
}

Operation::Run Operation::Move(const Step& step, uint32_t lane, LaneState* state) {
  const uint64_t turn = channel_->turn + state->turn;
  const uint64_t size = ElementSize(call_.type);
  if (channel_->dst.size() < step.num_dst) channel_->dst.resize(step.num_dst + 8u);
  if (channel_->src.size() < step.num_src) {
    channel_->src.resize(step.num_src + 8u);
    channel_->factors.resize(step.num_src + 8u);
  }
  for (; state->part < step.parts; ++state->part, state->offset = 0) {
    const uint32_t data_part = prepared_->program->data_parts[step.data_parts + state->part];
    const plan::Range range = prepared_->whole ? plan::Range{0, call_.count}
                                               : plan::Resolve(prepared_->partition, lane, state->turn, data_part);
    while (state->offset < range.count) {
      if (budget_ <= 0) return Run::kAgain;
      const Places places = Gather(step, lane, turn, state->part, range.begin, state->offset);
      const uint64_t most = (places.by_call ? kBounceBytes : kMoveBytes) / size;
      const uint64_t count = std::min(range.count - state->offset, most);
      if (places.by_call) {
        if (status_ = MoveByCall(step, lane, turn, state->part, range.begin, state->offset, count); !status_.ok())
          return Run::kFailed;
      } else {
        MoveLocal(step, places, count);
      }
      state->offset += count;
      budget_ -= static_cast<int64_t>(count * size);
    }
  }
  state->part = 0;
  return Run::kDone;
}

}  // namespace axccl::exec
