#include "src/plan/cargo.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace axccl::plan {

Carriers::Carriers(const Lane& lane) {
  for (size_t i = 0; i < lane.ops.size(); ++i) {
    if (lane.ops[i].kind == OpKind::kSignal) signals_.push_back({lane.ops[i].peer, static_cast<uint32_t>(i)});
  }
  std::sort(signals_.begin(), signals_.end());
}

uint32_t Carriers::After(uint32_t op, int reader) const {
  const auto next = [&](int peer) {
    const auto it = std::lower_bound(signals_.begin(), signals_.end(), std::pair(peer, op));
    return it != signals_.end() && it->first == peer ? it->second : kNone;
  };
  return std::min(next(reader), next(kAllPeers));
}

CargoFinder::CargoFinder(const Schedule& schedule, const Placement& placement)
    : schedule_(schedule), placement_(placement) {
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

void CargoFinder::AddSignals(int rank, const std::vector<Op>& ops) {
  const int ranks = static_cast<int>(schedule_.program.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::kSignal) continue;
    const bool all = ops[i].peer == kAllPeers;
    for (int reader = all ? 0 : ops[i].peer; reader < (all ? ranks : ops[i].peer + 1); ++reader) {
      if (placement_.Apart(reader, rank)) found_.push_back({static_cast<uint32_t>(i), reader, 0});
    }
  }
}

void CargoFinder::Load(const Carriers& carriers, uint32_t op, int reader, uint32_t parts) {
  const Cargo cargo{carriers.After(op, reader), reader, 0};
  if (cargo.op == Carriers::kNone) return;
  const auto before = [](const Cargo& a, const Cargo& b) {
    return std::tie(a.op, a.reader) < std::tie(b.op, b.reader);
  };
  std::lower_bound(found_.begin(), found_.end(), cargo, before)->parts += parts;
}

const std::vector<Cargo>& CargoFinder::Of(int rank, int lane) {
  found_.clear();
  if (placement_.is_flat()) return found_;
  const Lane& strand = schedule_.program[static_cast<size_t>(rank)][static_cast<size_t>(lane)];
  const Carriers carriers(strand);
  AddSignals(rank, strand.ops);
  for (uint32_t op = 0; op < strand.ops.size(); ++op) {
    for (const Operand& dst : strand.ops[op].dst) {
      if (dst.buffer != Buffer::kScratch) continue;
      if (placement_.Apart(dst.rank, rank)) Load(carriers, op, dst.rank, dst.parts);
      if (dst.rank != rank) continue;
      const uint16_t in = static_cast<uint16_t>(lane), from = dst.part;
      const auto end = static_cast<uint16_t>(from + dst.parts);
      for (auto it = std::lower_bound(reads_.begin(), reads_.end(), Read{in, dst.rank, from, 0}); it != reads_.end();
           ++it) {
        if (it->lane != in || it->owner != dst.rank || it->slot >= end) break;
        Load(carriers, op, it->reader, 1);
      }
    }
  }
  return found_;
}

}  // namespace axccl::plan
