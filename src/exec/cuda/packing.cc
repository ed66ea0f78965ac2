#include "src/exec/cuda/packing.h"

#include <algorithm>

#include "src/base/sizes.h"
#include "src/cost/machine.h"
#include "src/tune/tune.h"

namespace axccl::exec {

static_assert(cost::Gpu::kWordsBytes == kernels::cuda::kPackedBytes);
static_assert(cost::Gpu::kRowsBytes == kernels::cuda::kRowedBytes);
static_assert(cost::Gpu::kKeptBytes == kernels::cuda::kMostKeptBytes);
static_assert(cost::Gpu::kMostRowedRanks == kernels::cuda::kMostRowedRanks);
static_assert(cost::Gpu::kMostReducedRanks + 1 == kernels::cuda::kMaxOperands);

using kernels::cuda::Packing;
using plan::Buffer;
using plan::Op;
using plan::Operand;
using plan::OpKind;

CudaPacking::CudaPacking(const Program& program)
    : schedule_(program.plan->schedule),
      endpoints_(program.inline_endpoint),
      packs_(!schedule_.direct && schedule_.slots != 0 && !program.multicast) {
  const size_t ranks = schedule_.program.size(), lanes = schedule_.lanes;
  for (size_t i = 0; packs_ && i < ranks * lanes; ++i) packs_ = FindSignals(i / lanes, i % lanes);
  for (size_t i = 0; packs_ && i < ranks * lanes; ++i) packs_ = CheckReads(i / lanes, i % lanes);
  packs_ = packs_ && AllAreBelow(kernels::cuda::WordedEndpoints(num_ranks()));
  if (!packs_) signals_.clear();
}

// Whether the endpoints of all packed slots are among the first `endpoints`.
bool CudaPacking::AllAreBelow(uint32_t endpoints) const {
  return std::all_of(signals_.begin(), signals_.end(),
                     [&](const auto& signal) { return std::get<2>(signal) < endpoints; });
}

Packing CudaPacking::packing() const {
  if (!packs_) return Packing::kNone;
  return AllAreBelow(kernels::cuda::RowedEndpoints(num_ranks())) ? Packing::kRows : Packing::kWords;
}

// Returns false when something is written in another way.
bool CudaPacking::FindSignals(size_t rank, size_t lane) {
  std::vector<uint16_t> values(schedule_.endpoints);
  std::set<uint16_t> written, open;  // slots; those that the operation before wrote
  for (const Op& op : schedule_.program[rank][lane].ops) {
    if (op.kind == OpKind::kNop) continue;
    const bool signals = op.kind == OpKind::kSignal;
    if (signals) ++values[op.endpoint];
    for (const uint16_t slot : open) {
      if (!signals || endpoints_[slot] != op.endpoint) return false;
      signals_.insert({rank, lane, op.endpoint, values[op.endpoint]});
    }
    open.clear();
    for (const Operand& dst : op.dst) {
      if (dst.buffer != Buffer::kScratch) continue;
      if (dst.rank != rank || endpoints_[dst.part] < 0 || !written.insert(dst.part).second) return false;
      open.insert(dst.part);
    }
  }
  return open.empty();
}

bool CudaPacking::CheckReads(size_t rank, size_t lane) const {
  std::set<std::pair<int, int>> came;  // ranks and endpoints
  for (const Op& op : schedule_.program[rank][lane].ops) {
    if (op.kind == OpKind::kWait && Publishes(static_cast<size_t>(op.peer), op.from_lane, op.endpoint, op.value))
      came.insert({op.peer, op.endpoint});
    for (const Operand& src : op.src) {
      if (src.buffer == Buffer::kScratch && src.rank != rank && came.count({src.rank, endpoints_[src.part]}) == 0)
        return false;
    }
  }
  return true;
}

// Reading and writing words uses smaller pieces than rows. But the short way keeps what comes in words (small.h), so of
// many ranks, also small blocks go in rows. An empty slot has nothing to wait for.
Packing ChoosePacking(const Prepared& prepared, uint64_t block_bytes, plan::Kind kind, uint32_t ranks, Packing most,
                      const Protocols& allowed) {
  if (!prepared.whole || block_bytes == 0 || most == Packing::kNone) return Packing::kNone;
  const bool words = allowed.AllowLl(kind) && block_bytes <= kernels::cuda::kPackedBytes;
  const bool rows = most == Packing::kRows && allowed.AllowLl128(kind) && block_bytes <= kernels::cuda::kRowedBytes;
  const uint64_t blocks = tune::ReadBlocks({kind, static_cast<int>(ranks), 0});
  const bool kept = blocks * RoundUp(block_bytes, 16) <= kernels::cuda::kMostKeptBytes;
  if (words && (kept || !rows)) return Packing::kWords;
  return rows ? Packing::kRows : Packing::kNone;
}

uint64_t MostPackedBytes(plan::Kind kind, uint32_t ranks, bool is_default, const Protocols& allowed) {
  const plan::Contract contract{kind, static_cast<int>(ranks), 0};
  const bool first_only = plan::InputBlocks(contract, 0) <= 1 || kernels::cuda::WordedEndpoints(ranks) == 1;
  const bool has_rows = first_only || is_default;
  return tune::MostFlaggedBytes(contract, allowed.AllowLl(kind), has_rows && allowed.AllowLl128(kind));
}

}  // namespace axccl::exec
