#include "src/exec/host/flat_operands.h"

#include <algorithm>
#include <utility>

#include "kernels/host/mover.h"
#include "src/base/sizes.h"
#include "src/exec/host/fold.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Operand;
using plan::OpKind;

// Bytes copied from plain memory of another process before they are processed: fits the second-level cache.
constexpr uint64_t kBounceBytes = 128u << 10;

}  // namespace

Status FlatOperands::Start(Binding* binding) const {
  MemberBuffers& own = binding->workspace().BuffersOf(binding->channel->self());
  own.input = static_cast<std::byte*>(const_cast<void*>(binding->call.input));
  own.output = static_cast<std::byte*>(binding->call.output);
  return Status();
}

// ---- announcements ----

Status FlatOperands::Announce(Binding* binding, OpRecord* record) const {
  const Channel& channel = *binding->channel;
  const plan::Contract contract = binding->contract();
  const uint64_t block = BlockBytes(*binding);
  const auto inputs = static_cast<uint64_t>(plan::InputBlocks(contract, channel.self()));
  const auto outputs = static_cast<uint64_t>(plan::OutputBlocks(contract, channel.self()));
  const AnnouncedBuffer input = LocateBuffer(channel, binding->call.input, block * inputs);
  const AnnouncedBuffer output = LocateBuffer(channel, binding->call.output, block * outputs);
  SetWord(record, OpRecord::kInput, input.address);
  SetWord(record, OpRecord::kInputKind, static_cast<uint64_t>(input.kind));
  SetWord(record, OpRecord::kOutput, output.address);
  SetWord(record, OpRecord::kOutputKind, static_cast<uint64_t>(output.kind));
  return Status();
}

Status FlatOperands::Bind(Binding* binding, int position) const {
  const Member& member = binding->channel->member(position);
  const OpRecord& record = *member.layout.RecordOf(member.block, binding->sequence);
  const plan::Contract contract = binding->contract();
  const uint64_t block = BlockBytes(*binding);
  const auto reach = [&](OpRecord::Word address, OpRecord::Word how, int blocks) {
    return ReachBuffer(member, {Word(record, address), static_cast<MemoryKind>(Word(record, how))},
                       block * static_cast<uint64_t>(blocks));
  };
  AXCCL_ASSIGN_OR_RETURN(const ReachedBuffer input,
                         reach(OpRecord::kInput, OpRecord::kInputKind, plan::InputBlocks(contract, position)));
  AXCCL_ASSIGN_OR_RETURN(const ReachedBuffer output,
                         reach(OpRecord::kOutput, OpRecord::kOutputKind, plan::OutputBlocks(contract, position)));
  MemberBuffers& buffers = binding->workspace().BuffersOf(position);
  buffers.input = input.where;
  buffers.input_by_call = input.by_call;
  buffers.output = output.where;
  buffers.output_by_call = output.by_call;
  binding->reads_by_call |= input.by_call || output.by_call;
  return Status();
}

Memory FlatOperands::OutputOf(const Binding& binding, size_t) const {
  const auto blocks = static_cast<uint64_t>(plan::OutputBlocks(binding.contract(), binding.channel->self()));
  return {static_cast<const std::byte*>(binding.call.output), BlockBytes(binding) * blocks};
}

// ---- movement ----

Moved FlatOperands::Move(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn, uint32_t together,
                         MoveProgress* progress, int64_t* budget, Status* status) const {
  const bool by_call = binding.reads_by_call && AnyByCall(binding, step);
  const uint64_t most = by_call && step.kind == OpKind::kReduce ? kBounceBytes : kMoveBytes;
  const auto clip = [](const plan::Range& range) { return range; };
  return MoveInChunks(binding, step, lane, turn, together, most, progress, budget, status, clip,
                      [&](const Chunk& chunk) {
                        if (by_call) return MoveByCall(binding, step, chunk);
                        MoveGathered(binding, step, Gather(binding, step, chunk), chunk.count);
                        return Status();
                      });
}

void FlatOperands::MovePlain(const Binding& binding, const Step& step, uint64_t turn) {
  if (binding.call.count == 0) return;
  const Chunk chunk{turn, 0, 0, binding.prepared->sets.OffsetOf(turn), binding.call.count};
  MoveGathered(binding, step, Gather(binding, step, chunk), chunk.count);
}

Gathered FlatOperands::Gather(const Binding& binding, const Step& step, const Chunk& chunk) {
  const Operand* operand = &binding.prepared->program->operands[step.operands];
  Gathered gathered;
  const void** const src = binding.workspace().sources();
  for (uint32_t i = 0; i < step.num_src; ++i) {
    const uint32_t o = step.num_dst + i;
    src[i] = AddressOf(binding, step.operands + o, chunk);
    gathered.scaled |= binding.scales.inputs && operand[o].buffer == Buffer::kInput;
  }
  gathered.num_src = step.num_src;
  if (gathered.scaled) GatherFactors(binding, step);
  void** const dst = binding.workspace().destinations();
  const bool plain_copy = IsPlainCopy(binding, step, gathered.scaled);
  for (uint32_t i = 0; i < step.num_dst; ++i) {
    std::byte* const where = AddressOf(binding, step.operands + i, chunk);
    const bool is_slot = operand[i].buffer == Buffer::kScratch;
    gathered.to_user_only &= !is_slot;
    // In place, a copy onto itself is left out.
    if (plain_copy && where == src[0]) continue;
    dst[gathered.num_dst++] = where;
    if (is_slot) std::swap(dst[gathered.num_dst - 1], dst[gathered.num_slots++]);
  }
  return gathered;
}

void FlatOperands::MoveGathered(const Binding& binding, const Step& step, const Gathered& gathered, uint64_t count) {
  if (gathered.num_dst == 0) return;
  const Call& call = binding.call;
  Workspace& workspace = binding.workspace();
  const uint64_t bytes = count * ElementSize(call.type);
  void** const dst = workspace.destinations();
  void** const users = dst + gathered.num_slots;
  const int num_users = gathered.num_dst - gathered.num_slots;
  // The lines of a slot are in a peer's cache. A copy to one place writes whole lines and need not fetch them first.
  const auto fill_slots = [&](const void* from) {
    for (int d = 0; d < gathered.num_slots; ++d) kernels::Copy(dst + d, 1, from, bytes, false);
  };
  if (IsPlainCopy(binding, step, gathered.scaled)) {
    fill_slots(workspace.sources()[0]);
    if (num_users > 0) kernels::Copy(users, num_users, workspace.sources()[0], bytes, binding.around_cache);
    return;
  }
  // What an operation overwrites it has just read: plain stores have nothing to fetch.
  const void** const src = workspace.sources();
  void** const end = dst + gathered.num_dst;
  const bool non_temporal =
      binding.around_cache && gathered.to_user_only && std::find_first_of(dst, end, src, src + gathered.num_src) == end;
  const bool then_fills = gathered.num_slots > 0 && num_users > 0;
  kernels::ReduceRequest request;
  request.dst = then_fills ? users : dst;
  request.num_dst = then_fills ? num_users : gathered.num_dst;
  request.src = workspace.sources();
  request.num_src = gathered.num_src;
  request.count = count;
  request.type = call.type;
  request.combine = call.combine;
  request.pre = gathered.scaled ? workspace.factors() : nullptr;
  request.round_factored = call.group_order;
  request.post_divisor = step.finish ? binding.scales.divisor : 0;
  request.non_temporal = non_temporal;
  if (call.callback != nullptr) {
    Fold(request, *call.callback, &workspace.fold_space());
  } else {
    kernels::Reduce(request);
  }
  if (then_fills) fill_slots(users[0]);
}

// ---- plain memory of other processes ----

// Plans that run in this case write nothing there.
bool FlatOperands::IsByCall(const Binding& binding, uint32_t index) {
  const Operand& operand = binding.prepared->program->operands[index];
  const MemberBuffers& buffers = binding.workspace().BuffersOf(operand.rank);
  return (operand.buffer == Buffer::kInput && buffers.input_by_call) ||
         (operand.buffer == Buffer::kOutput && buffers.output_by_call);
}

bool FlatOperands::AnyByCall(const Binding& binding, const Step& step) {
  const uint32_t sources = step.operands + step.num_dst;
  for (uint32_t i = sources; i < sources + step.num_src; ++i) {
    if (IsByCall(binding, i)) return true;
  }
  return false;
}

Status FlatOperands::Fetch(const Binding& binding, uint32_t operand, uint64_t from, std::byte* to, uint64_t bytes) {
  const Channel& channel = *binding.channel;
  const int position = binding.prepared->program->operands[operand].rank;
  const Member& owner = channel.member(position);
  Status status = owner.reach->Read(to, from, bytes);
  if (status.code() == Code::kRemoteError) return channel.members().LossOf(position);
  if (status.ok()) return status;
  // A member that has failed may have freed its memory.
  AXCCL_RETURN_IF_ERROR(channel.members().CheckOwners());
  return status;
}

// Some sources are plain memory of other processes: a copy reads them into their destination, a reduction into bounce
// space.
Status FlatOperands::MoveByCall(const Binding& binding, const Step& step, const Chunk& chunk) {
  const uint64_t bytes = chunk.count * ElementSize(binding.call.type);
  Gathered gathered = Gather(binding, step, chunk);
  void** const dst = binding.workspace().destinations();
  const void** const src = binding.workspace().sources();
  // An address of another process may equal that of a destination: nothing is in place here.
  gathered.num_dst = step.num_dst;
  for (uint32_t i = 0; i < step.num_dst; ++i) dst[i] = AddressOf(binding, step.operands + i, chunk);
  const uint32_t sources = step.operands + step.num_dst;
  const auto address = [&](uint32_t i) { return reinterpret_cast<uint64_t>(src[i]); };
  if (IsPlainCopy(binding, step, gathered.scaled) && gathered.num_dst == 1)
    return Fetch(binding, sources, address(0), static_cast<std::byte*>(dst[0]), bytes);
  const size_t stride = RoundUp(bytes, kCacheLine);
  std::byte* const bounce = binding.workspace().Bounce(stride * step.num_src);
  for (uint32_t i = 0; i < step.num_src; ++i) {
    if (!IsByCall(binding, sources + i)) continue;
    std::byte* const local = bounce + stride * i;
    AXCCL_RETURN_IF_ERROR(Fetch(binding, sources + i, address(i), local, bytes));
    src[i] = local;
  }
  MoveGathered(binding, step, gathered, chunk.count);
  return Status();
}

}  // namespace axccl::exec
