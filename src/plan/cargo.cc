#include "src/plan/cargo.h"

#include <algorithm>
#include <utility>

namespace axccl::plan {

CargoFinder::CargoFinder(const Schedule& schedule, const Placement& placement)
    : schedule_(schedule), placement_(placement), waiting_(schedule.program.size(), 0) {
  if (placement.is_flat()) return;
  for (size_t reader = 0; reader < schedule.program.size(); ++reader) {
    for (size_t lane = 0; lane < schedule.program[reader].size(); ++lane) {
      for (const Op& op : schedule.program[reader][lane].ops) {
        for (const Operand& o : op.src) {
          if (o.buffer != Buffer::kScratch || !placement.Apart(o.rank, static_cast<int>(reader))) continue;
          for (int i = 0; i < o.parts; ++i)
            reads_.push_back({static_cast<uint16_t>(lane), o.rank, static_cast<uint16_t>(o.part + i),
                              static_cast<uint16_t>(reader)});
        }
      }
    }
  }
  std::sort(reads_.begin(), reads_.end());
  reads_.erase(std::unique(reads_.begin(), reads_.end()), reads_.end());
}

void CargoFinder::WaitForSignal(int reader) {
  if (waiting_[static_cast<size_t>(reader)]++ == 0) touched_.push_back(reader);
}

void CargoFinder::Write(int rank, int lane, const Operand& dst) {
  if (dst.buffer != Buffer::kScratch) return;
  for (int i = 0; i < dst.parts; ++i) {
    if (placement_.Apart(dst.rank, rank)) {
      WaitForSignal(dst.rank);
    } else if (dst.rank == rank) {
      const Read first{static_cast<uint16_t>(lane), dst.rank, static_cast<uint16_t>(dst.part + i), 0};
      for (auto it = std::lower_bound(reads_.begin(), reads_.end(), first); it != reads_.end(); ++it) {
        if (it->lane != first.lane || it->owner != first.owner || it->slot != first.slot) break;
        WaitForSignal(it->reader);
      }
    }
  }
}

void CargoFinder::Load(uint32_t op, int rank, int peer) {
  const int first = peer == kAllPeers ? 0 : peer;
  const int last = peer == kAllPeers ? static_cast<int>(schedule_.program.size()) - 1 : peer;
  for (int reader = first; reader <= last; ++reader) {
    if (placement_.Apart(reader, rank))
      found_.push_back({op, reader, std::exchange(waiting_[static_cast<size_t>(reader)], 0)});
  }
}

const std::vector<Cargo>& CargoFinder::Of(int rank, int lane) {
  found_.clear();
  if (placement_.is_flat()) return found_;
  const std::vector<Op>& ops = schedule_.program[static_cast<size_t>(rank)][static_cast<size_t>(lane)].ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const Operand& dst : ops[i].dst) Write(rank, lane, dst);
    if (ops[i].kind == OpKind::kSignal) Load(static_cast<uint32_t>(i), rank, ops[i].peer);
  }
  for (const int reader : touched_) waiting_[static_cast<size_t>(reader)] = 0;  // what no signal has taken
  touched_.clear();
  return found_;
}

}  // namespace axccl::plan
