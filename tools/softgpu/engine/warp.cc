// Which lanes of a warp run, and how they leave and return.
#include <algorithm>

#include "tools/softgpu/engine/execution.h"
#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {
namespace {

uint64_t Mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0x9e3779b97f4a7c15;
  return value ^ (value >> 29);
}

// A warp that read the same values this often in a burst waits for another.
constexpr uint32_t kRepeatsOfWaiting = 8;

uint64_t SpecialOf(const Warp& warp, Special special, uint32_t lane) {
  const LaunchConfig& config = warp.execution->config();
  const Dim3& shape = config.block;
  const Block& block = *warp.block;
  const uint32_t thread = warp.index * kWarpLanes + lane;
  switch (special) {
    case Special::kTidX:
      return thread % shape.x;
    case Special::kTidY:
      return thread / shape.x % shape.y;
    case Special::kTidZ:
      return thread / (shape.x * shape.y);
    case Special::kNtidX:
      return shape.x;
    case Special::kNtidY:
      return shape.y;
    case Special::kNtidZ:
      return shape.z;
    case Special::kCtaidX:
      return block.id[0];
    case Special::kCtaidY:
      return block.id[1];
    case Special::kCtaidZ:
      return block.id[2];
    case Special::kNctaidX:
      return config.grid.x;
    case Special::kNctaidY:
      return config.grid.y;
    case Special::kNctaidZ:
      return config.grid.z;
    case Special::kLaneId:
      return lane;
    case Special::kWarpId:
      return warp.index;
    case Special::kNwarpId:
      return block.warps.size();
    case Special::kSmId:
      return block.linear % kMultiprocessors;
    case Special::kNsmId:
      return kMultiprocessors;
    case Special::kGridId:
      return warp.execution->id();
    case Special::kLanemaskEq:
      return 1u << lane;
    case Special::kLanemaskLe:
      return (2ull << lane) - 1;
    case Special::kLanemaskLt:
      return (1u << lane) - 1;
    case Special::kLanemaskGe:
      return kAllLanes & ~((1u << lane) - 1);
    case Special::kLanemaskGt:
      return kAllLanes & ~((2ull << lane) - 1);
    case Special::kDynamicSharedSize:
      return config.dynamic_shared_bytes;
    case Special::kTotalSharedSize:
      return warp.execution->shared_bytes();
    case Special::kZero:
      return 0;
    case Special::kOne:
      return 1;
    case Special::kEnvironment1:
      return config.grid_workspace >> 32;
    case Special::kEnvironment2:
      return config.grid_workspace & 0xffffffff;
    case Special::kLocalBase:
      return reinterpret_cast<uintptr_t>(block.local) + uint64_t{thread} * block.local_stride;
    case Special::kParameterBase:
      return reinterpret_cast<uintptr_t>(config.parameters.data());
    case Special::kDynamicShared:
      return warp.program->shared_bytes;
  }
  return 0;
}

}  // namespace

void Warp::WriteBack() {
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) lane_pc[std::countr_zero(rest)] = pc;
}

// The lanes at the smallest pc run first, so that the lanes of a branch meet again behind it. In a fair burst, after
// one with a loop, the chosen lanes keep running, so that lanes that spin do not starve the others.
bool Warp::Select() {
  WriteBack();
  const uint32_t candidates = runnable();
  const uint32_t kept = fair ? active & candidates : 0;
  active = 0;
  if (candidates == 0 || execution->failed()) return false;
  uint32_t leader = static_cast<uint32_t>(std::countr_zero(candidates));
  if (kept != 0) {
    leader = static_cast<uint32_t>(std::countr_zero(kept));
  } else if (fair) {
    // The next lane that was not chosen last time.
    const uint32_t after = candidates & ~((2u << turn) - 1);
    leader = static_cast<uint32_t>(std::countr_zero(after != 0 ? after : candidates));
    turn = leader;
  } else {
    for (uint32_t rest = candidates; rest != 0; rest &= rest - 1) {
      const uint32_t lane = static_cast<uint32_t>(std::countr_zero(rest));
      if (lane_pc[lane] < lane_pc[leader]) leader = lane;
    }
  }
  pc = lane_pc[leader];
  stop = ~0u;
  for (uint32_t rest = candidates; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(rest));
    if (lane_pc[lane] == pc) active |= 1u << lane;
    if (lane_pc[lane] > pc) stop = std::min(stop, lane_pc[lane]);
  }
  return true;
}

uint64_t Warp::Burst(uint64_t instructions) {
  budget = burst_length = static_cast<int64_t>(instructions);
  forfeited = 0;
  progressed = looped = slept = false;
  repeats = 0;
  active = 0;
  while (budget > 0 && Select()) {
    const Procedure& procedure = program->ProcedureAt(pc);
    if (trace != nullptr) {
      RunTraced(procedure);
      continue;
    }
    // What leaves the procedure requests a new choice.
    const Instr* const code = procedure.code.data();
    const uint32_t entry = procedure.entry;
    do {
      const Instr& instr = code[pc++ - entry];
      --budget;
      const uint32_t on = active & Predicate(instr.guard);
      if (on != 0) instr.run(*this, instr, on);
    } while (pc < stop && budget > 0);
  }
  WriteBack();
  fair = !fair && looped && active != runnable();
  if (fair && active != 0) turn = static_cast<uint32_t>(31 - std::countl_zero(active));
  active = 0;
  return instructions - static_cast<uint64_t>(budget + forfeited);
}

void Warp::RunTraced(const Procedure& procedure) {
  do {
    const Instr& instr = procedure.code[pc++ - procedure.entry];
    --budget;
    const uint32_t on = active & Predicate(instr.guard);
    trace->Before(*this, instr, on);
    if (on != 0) instr.run(*this, instr, on);
  } while (pc < stop && budget > 0);
}

void Warp::Detach(uint32_t part, uint32_t target) {
  for (uint32_t rest = part; rest != 0; rest &= rest - 1) lane_pc[std::countr_zero(rest)] = target;
  active &= ~part;
  stop = 0;
}

void Warp::Exit(uint32_t part) {
  exited |= part;
  active &= ~part;
  stop = 0;
  progressed = true;
  block->live_threads -= static_cast<uint32_t>(std::popcount(part));
  RecheckWaiting();
  block->RecheckBarriers();
}

void Warp::BlockLanes(uint32_t part, uint32_t resume) {
  Detach(part, resume);
  blocked |= part;
}

void Warp::Unblock(uint32_t part) {
  blocked &= ~part;
  stop = 0;
}

void Warp::Yield() {
  forfeited += budget;
  budget = 0;
}

void Warp::Poll(const Instr& instr, uint64_t address_hash, uint64_t value_hash) {
  const uint64_t key = Mix(address_hash + reinterpret_cast<uintptr_t>(&instr)) | 1;
  PollEntry& entry = polls[key >> 59];
  if (entry.key == key && entry.value == value_hash) {
    if (++repeats >= kRepeatsOfWaiting && looped && !progressed) Yield();
    return;
  }
  entry = {key, value_hash};
  progressed = true;
}

void Warp::Fail(const Instr& instr, uint32_t lane, const std::string& what) {
  const uint32_t thread = index * kWarpLanes + lane;
  const Dim3& shape = execution->config().block;
  const auto triple = [](uint32_t x, uint32_t y, uint32_t z) {
    std::string text = "(";
    text += std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
    return text;
  };
  std::string text(instr.statement->text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  execution->Fail("kernel '" + program->name + "', block " + triple(block->id[0], block->id[1], block->id[2]) +
                  ", thread " + triple(thread % shape.x, thread / shape.x % shape.y, thread / (shape.x * shape.y)) +
                  ", line " + std::to_string(instr.statement->line) + " of the PTX, '" + text + "': " + what);
  stop = 0;
  Yield();
}

void Warp::Start(Block* owner, uint32_t warp_index) {
  block = owner;
  execution = owner->execution;
  program = &execution->program();
  index = warp_index;
  constants = program->constants.get();
  trace = execution->traces() ? std::make_unique<WarpTrace>(program->values / kWarpLanes + 1) : nullptr;
  const uint32_t left = owner->threads - warp_index * kWarpLanes;
  lanes = left >= kWarpLanes ? kAllLanes : (1u << left) - 1;
  exited = blocked = waiting = cluster_pending = active = 0;
  fair = false;
  turn = 0;
  idle_epoch = 0;
  fenced = false;
  std::fill(std::begin(recent_polls), std::end(recent_polls), nullptr);
  std::fill(std::begin(lane_pc), std::end(lane_pc), program->entry);
  std::fill(std::begin(polls), std::end(polls), PollEntry{});
  frames.clear();
  predicates[0] = kAllLanes;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) FillSpecials(program->ProcedureAt(program->entry), lane);
}

void Warp::FillSpecials(const Procedure& procedure, uint32_t lane) {
  for (const SpecialColumn& special : procedure.specials)
    Out(special.column)[lane] = SpecialOf(*this, special.special, lane) + static_cast<uint64_t>(special.addend);
}

}  // namespace softgpu::engine
