#include "tools/softgpu/engine/trace.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <string_view>

#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {
namespace {

std::mutex mutex;
Effort least = {~uint64_t{0}, ~uint64_t{0}};

bool IsGlobal(const Warp& w, const Instr& in, uint32_t lanes) {
  if (in.space == Space::kGlobal) return true;
  if (in.space != Space::kGeneric) return false;
  const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
  const uint64_t address = w.In(in.a)[lane] + static_cast<uint64_t>(in.offset);
  const auto is_in = [address](const std::byte* begin, uint64_t bytes) {
    return address - reinterpret_cast<uintptr_t>(begin) < bytes;
  };
  return !is_in(w.block->shared, w.block->shared_bytes) && !is_in(w.block->local, w.block->local_bytes);
}

}  // namespace

void WarpTrace::Await(int32_t column) {
  if (column >= 0) trips_ = std::max(trips_, back_[static_cast<uint32_t>(column) / kWarpLanes]);
}

void WarpTrace::Before(const Warp& w, const Instr& in, uint32_t lanes) {
  ++instructions_;
  if (lanes == 0 || in.statement == nullptr) return;
  const std::string_view opcode = in.statement->opcode;
  if (opcode == "call" || opcode == "ret") trips_ = std::max(trips_, last_back_);
  const bool multimem = opcode == "multimem", reduces = multimem && in.statement->modifiers.front() == "ld_reduce";
  const bool changes = opcode == "atom" || opcode == "red", loads = opcode == "ld" || opcode == "ldu" || reduces;
  const bool stores = opcode == "st" || (multimem && !reduces);
  for (const ColumnId column : {in.a, in.b, in.c, in.e}) Await(column);
  // Of atomics, the first half are targets.
  for (uint32_t k = loads ? 8 : changes ? 4 : 0; k < std::size(in.v); ++k) Await(in.v[k]);
  if (!loads && !changes && !stores) return;
  if (!IsGlobal(w, in, lanes)) return;
  if (!loads) effort_ = {trips_, instructions_};
  if (stores || opcode == "red") return;
  last_back_ = trips_ + 1;
  for (uint32_t k = 0; k < in.count; ++k) back_[static_cast<uint32_t>(in.v[k]) / kWarpLanes] = last_back_;
  back_[kSinkColumn] = 0;
}

void NoteEffort(const Block& block) {
  Effort most;
  for (const Warp& warp : block.warps) {
    if (warp.trace == nullptr) return;
    most.trips = std::max(most.trips, warp.trace->effort().trips);
    most.instructions = std::max(most.instructions, warp.trace->effort().instructions);
  }
  const std::lock_guard lock(mutex);
  least.trips = std::min(least.trips, most.trips);
  least.instructions = std::min(least.instructions, most.instructions);
}

Effort LeastEffort() {
  const std::lock_guard lock(mutex);
  return least;
}

void ForgetEfforts() {
  const std::lock_guard lock(mutex);
  least = {~uint64_t{0}, ~uint64_t{0}};
}

}  // namespace softgpu::engine
