// Which slots of a plan may be packed slots of CUDA ranks (kernels/cuda/launch.h), which signals publish them, and how
// the slots of a call are packed.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/exec/platform/protocols.h"
#include "src/exec/prepared/plan_cache.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

// The signal and the waits of a packed slot order nothing. So a plan packs its slots only if nothing else depends on
// these signals, and no rank relies on them for a third rank's memory: every slot is written once a turn, in the
// owner's memory and right before its signal; every rank that reads another's slot has waited for that signal itself;
// the endpoint has packed slots (WordedEndpoints); and the plan writes nothing else that others read. Considers all
// ranks' schedules, so that the ranks agree.
class CudaPacking {
 public:
  explicit CudaPacking(const Program& program);

  // As kernels::cuda::Program::packing and beyond_first.
  kernels::cuda::Packing packing() const;
  bool beyond_first() const { return !AllAreBelow(1); }
  // Whether that signal publishes a packed slot: `value` is the value that it sets.
  bool Publishes(size_t rank, size_t lane, uint16_t endpoint, uint16_t value) const {
    return signals_.count({rank, lane, endpoint, value}) != 0;
  }

 private:
  bool FindSignals(size_t rank, size_t lane);
  bool CheckReads(size_t rank, size_t lane) const;
  bool AllAreBelow(uint32_t endpoints) const;
  uint32_t num_ranks() const { return static_cast<uint32_t>(schedule_.program.size()); }

  const plan::Schedule& schedule_;
  const std::vector<int16_t>& endpoints_;  // of slots
  std::set<std::tuple<size_t, size_t, uint16_t, uint16_t>> signals_;
  bool packs_;
};

// Chooses how a prepared call of blocks of `block_bytes` among so many ranks packs its slots. `most`: its program's
// packing; `allowed`: by the protocols, for its kind.
kernels::cuda::Packing ChoosePacking(const Prepared& prepared, uint64_t block_bytes, plan::Kind kind, uint32_t ranks,
                                     kernels::cuda::Packing most, const Protocols& allowed);

// The largest block that a call of oneshot may pack, 0 if none: among so many ranks, on their default channel or on one
// that has slots of rows of the first endpoint only.
uint64_t MostPackedBytes(plan::Kind kind, uint32_t ranks, bool is_default, const Protocols& allowed);

}  // namespace axccl::exec
