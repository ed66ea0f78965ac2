// The data movement of operations: operands to addresses, addresses to the movers of kernels/.
#include <algorithm>
#include <cstring>

#include "kernels/host/mover.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Operand;
using plan::OpKind;

// Bytes of one mover call: long enough to stream, short enough to come back for aborts.
constexpr uint64_t kMoveBytes = 512u << 10;
// Bytes fetched from plain memory of another process before they are worked on: stays in the second-level cache.
constexpr uint64_t kBounceBytes = 128u << 10;

}  // namespace

std::byte* Operation::Address(uint32_t operand, const Portion& portion) const {
  const OperandPlace& place = prepared_->places[operand];
  const uint64_t inside = place.part_bytes != 0 ? portion.part * place.part_bytes + portion.in_part : portion.in_block;
  return *place.base + place.offset[portion.turn % plan::kRotation] + inside;
}

// Whether the operand is plain memory of another process; no plan that runs then writes there.
bool Operation::ByCall(uint32_t index) const {
  const Operand& operand = prepared_->program->operands[index];
  const MemberBuffers& binding = workspace_.BuffersOf(operand.rank);
  return (operand.buffer == Buffer::kInput && binding.input_by_call) ||
         (operand.buffer == Buffer::kOutput && binding.output_by_call);
}

// Factors of the sources: raw contributions are scaled as they are read; what is in scratch has been.
void Operation::GatherFactors(const Step& step) {
  const Operand* sources = &prepared_->program->operands[step.operands + step.num_dst];
  for (int i = 0; i < step.num_src; ++i) {
    Factor& factor = workspace_.factors()[i];
    const bool raw = sources[i].buffer == Buffer::kInput;
    if (raw && call_.scaling == Scaling::kPreMultiply) {
      factor = workspace_.BuffersOf(sources[i].rank).factor;
    } else {
      factor = FactorOf(call_.type, raw && averages_floats_ ? 1.0 / channel_->size() : 1.0);
    }
  }
}

Operation::Places Operation::Gather(const Step& step, const Portion& portion) {
  const Operand* operand = &prepared_->program->operands[step.operands];
  Places places;
  const void** src = workspace_.sources();
  for (uint32_t i = 0; i < step.num_src; ++i) {
    const uint32_t o = step.num_dst + i;
    src[i] = Address(step.operands + o, portion);
    places.scaled |= scales_ && operand[o].buffer == Buffer::kInput;
  }
  places.num_src = step.num_src;
  if (places.scaled) GatherFactors(step);
  void** dst = workspace_.destinations();
  const bool plain_copy = PlainCopy(step, places);
  for (uint32_t i = 0; i < step.num_dst; ++i) {
    std::byte* where = Address(step.operands + i, portion);
    places.to_user_only &= operand[i].buffer != Buffer::kScratch;
    // In place, a copy onto itself is nothing to do.
    if (!plain_copy || where != src[0]) dst[places.num_dst++] = where;
  }
  return places;
}

bool Operation::PlainCopy(const Step& step, const Places& places) const {
  return step.kind == OpKind::kCopy && !places.scaled && !(step.finish && (post_divisor_ != 0 || scales_result_));
}

void Operation::MoveLocal(const Step& step, const Places& places, uint64_t count) {
  if (places.num_dst == 0) return;
  const uint64_t divisor = step.finish ? post_divisor_ : 0;
  const bool non_temporal = around_cache_ && places.to_user_only;
  if (PlainCopy(step, places)) {
    kernels::Copy(workspace_.destinations(), places.num_dst, workspace_.sources()[0], count * ElementSize(call_.type),
                  non_temporal);
    return;
  }
  kernels::ReduceRequest request;
  request.dst = workspace_.destinations();
  request.num_dst = places.num_dst;
  request.src = workspace_.sources();
  request.num_src = places.num_src;
  request.count = count;
  request.type = call_.type;
  request.combine = call_.combine;
  request.pre = places.scaled ? workspace_.factors() : nullptr;
  request.round_factored = call_.group_order;
  request.post_divisor = divisor;
  request.non_temporal = non_temporal;
  if (call_.callback != nullptr) return Fold(request, *call_.callback, &workspace_.fold_space());
  kernels::Reduce(request);
}

// As Move, of a prepared call that is plain.
void Operation::MovePlain(const Step& step, uint64_t turn, uint64_t set) {
  if (call_.count == 0) return;
  const uint64_t bytes = call_.count * ElementSize(call_.type);
  const Portion portion{turn, 0, 0, 0, set, call_.count};
  if (scales_) return MoveLocal(step, Gather(step, portion), call_.count);
  Places places{.num_dst = step.num_dst, .num_src = step.num_src, .to_user_only = false};
  const OperandPlace* place = &prepared_->places[step.operands];
  const uint64_t copy = turn % plan::kRotation;
  const auto address = [&](const OperandPlace& p) { return *p.base + p.offset[copy] + (p.part_bytes != 0 ? set : 0); };
  for (int i = 0; i < places.num_dst; ++i) workspace_.destinations()[i] = address(*place++);
  for (int i = 0; i < places.num_src; ++i) workspace_.sources()[i] = address(*place++);
  if (!PlainCopy(step, places)) return MoveLocal(step, places, call_.count);
  const void* from = workspace_.sources()[0];
  for (int i = 0; i < places.num_dst; ++i) {
    void* to = workspace_.destinations()[i];
    if (to != from) std::memcpy(to, from, bytes);
  }
}

// Reads a source that is plain memory of another process.
Status Operation::Fetch(uint32_t operand, uint64_t from, std::byte* to, uint64_t bytes) {
  const Member& owner = channel_->member(prepared_->program->operands[operand].rank);
  Status status = channel_->owner()->CallRead(owner.process->pid(), to, from, bytes);
  // Its process may be found to be gone before its death is, and another one may have its number by now.
  if (status.code() == Code::kRemoteError || (status.ok() && owner.process->Died())) return DeathOf(owner);
  if (status.ok()) return status;
  // Whoever has failed may have given its memory back.
  AXCCL_RETURN_IF_ERROR(channel_->members().CheckOwners());
  return status;
}

// Some sources are plain memory of other processes: a copy has them brought where they belong, a reduction into bounce
// space.
Status Operation::MoveByCall(const Step& step, const Portion& portion) {
  const uint64_t bytes = portion.count * ElementSize(call_.type);
  Places places = Gather(step, portion);
  // An address of another process may be that of a destination, too: nothing is in place here.
  places.num_dst = step.num_dst;
  for (uint32_t i = 0; i < step.num_dst; ++i) workspace_.destinations()[i] = Address(step.operands + i, portion);
  const uint32_t sources = step.operands + step.num_dst;
  const auto address = [&](uint32_t i) { return reinterpret_cast<uint64_t>(workspace_.sources()[i]); };
  if (PlainCopy(step, places) && places.num_dst == 1)
    return Fetch(sources, address(0), static_cast<std::byte*>(workspace_.destinations()[0]), bytes);
  const size_t stride = (bytes + 63) / 64 * 64;
  std::byte* const bounce = workspace_.Bounce(stride * step.num_src);
  for (uint32_t i = 0; i < step.num_src; ++i) {
    if (!ByCall(sources + i)) continue;
    std::byte* const local = bounce + stride * i;
    AXCCL_RETURN_IF_ERROR(Fetch(sources + i, address(i), local, bytes));
    workspace_.sources()[i] = local;
  }
  MoveLocal(step, places, portion.count);
  return Status();
}

bool Operation::AnyByCall(const Step& step) const {
  const uint32_t sources = step.operands + step.num_dst;
  for (uint32_t i = sources; i < sources + step.num_src; ++i) {
    if (ByCall(i)) return true;
  }
  return false;
}

Operation::Run Operation::Move(const Step& step, uint32_t lane, LaneState* state) {
  const uint64_t size = ElementSize(call_.type);
  const uint64_t turn = channel_->turns().next() + state->turn;
  const uint64_t set = prepared_->SetOffset(turn);
  const bool by_call = binds_by_call_ && AnyByCall(step);
  const uint64_t most = by_call && step.kind == OpKind::kReduce ? kBounceBytes : kMoveBytes;
  const uint32_t together = prepared_->together ? step.together : 1;
  for (; state->part < step.parts; ++state->part, state->offset = 0) {
    const uint32_t data_part = prepared_->program->data_parts[step.data_parts + state->part];
    plan::Range range = prepared_->whole ? plan::Range{0, call_.count}
                                         : plan::Resolve(prepared_->partition, lane, state->turn, data_part);
    if (call_.uneven()) range = ClipToBlock(step, range);
    while (state->offset < range.count) {
      if (budget_ <= 0) return Run::kAgain;
      uint64_t count = range.count - state->offset;
      if (count * size > most) count = most / size;
      const uint64_t begin = range.begin + state->offset;
      const Portion portion{turn, state->part, begin, begin * size, set + state->offset * size, count};
      if (call_.views != nullptr) {
        MoveBoxes(step, together, portion);
      } else if (by_call) {
        if (status_ = MoveByCall(step, portion); !status_.ok()) return Run::kFailed;
      } else {
        MoveLocal(step, Gather(step, portion), count);
      }
      state->offset += count;
      budget_ -= static_cast<int64_t>(count * size * together);
    }
  }
  state->part = 0;
  state->step += together - 1;
  return Run::kDone;
}

}  // namespace axccl::exec
