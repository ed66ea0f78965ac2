#include "src/algo/levels.h"

#include <algorithm>
#include <utility>

namespace axccl::algo {

using plan::Operand;

Levels::Levels(const plan::Placement& placement, Carriers carriers)
    : p_(placement),
      carriers_(carriers),
      columns_(carriers == Carriers::kLeaders ? 1 : placement.Fewest(placement.ranks())),
      most_(placement.Most(placement.ranks())),
      even_(placement.Fewest(placement.ranks()) == most_) {}

Place Levels::PlaceOf(int rank) const {
  const int machine = p_.MachineOf(rank);
  return {rank, machine, p_.LocalIndex(rank), &p_.RanksOf(machine)};
}

std::vector<int> Levels::Carried(const Place& at, int machine) const {
  std::vector<int> ranks;
  const int carriers = CarriersOf(at.machine);
  if (at.index >= carriers) return ranks;
  const std::vector<int>& theirs = RanksOf(machine);
  for (size_t i = static_cast<size_t>(at.index); i < theirs.size(); i += static_cast<size_t>(carriers))
    ranks.push_back(theirs[i]);
  return ranks;
}

int Levels::Endpoint(int from, int to) const {
  if (!even_) return to;
  if (!p_.Apart(from, to)) return p_.LocalIndex(to);
  return near_endpoints() + Distance(MachineOf(from), MachineOf(to)) - 1;
}

Writer::Writer(const Levels& levels, Builder* builder, int rank)
    : levels_(levels), b_(builder), at_(levels.PlaceOf(rank)), heard_(static_cast<size_t>(levels.ranks()), 0) {}

void Writer::Fold(std::vector<Operand> dst, std::vector<Operand> src, State state) {
  if (src.size() == 1) {
    b_->Copy(rank(), std::move(dst), src[0], state);
  } else {
    b_->Reduce(rank(), std::move(dst), std::move(src), state);
  }
}

std::vector<Operand> Writer::Contributions(const Operand& own, int slot) const {
  std::vector<Operand> src;
  for (int q : *at_.local) src.push_back(q == rank() ? own : Slot(q, slot));
  return src;
}

Operand Writer::OwnShare(const Operand& own, int slot) {
  if (at_.alone()) return own;
  Fold({Slot(rank(), slot)}, Contributions(own, slot));
  return Slot(rank(), slot);
}

void Writer::Wait(int source) {
  b_->Wait(rank(), source, levels_.Endpoint(source, rank()), ++heard_[static_cast<size_t>(source)]);
}

void Writer::SignalPeers() {
  ForEachPeer([&](int q) { Signal(q); });
}

void Writer::WaitForPeers() {
  for (int q : *at_.local) {
    if (q != rank()) Wait(q);
  }
}

void Writer::PublishParts(int per_column) {
  for (int i = 1; i <= levels_.columns(); ++i) {
    const int column = (at_.index + i) % levels_.columns();
    const int q = levels_.Column(at_.machine, column);
    if (q == rank()) continue;
    Copy({Slot(rank(), column * per_column, per_column)}, In(rank(), 0, column * per_column, per_column));
    Signal(q);
  }
}

void Writer::CollectParts(int per_column, int first, int count) {
  for (int i = 0; i < levels_.columns(); ++i) {
    const int column = (at_.index + i) % levels_.columns();
    const int q = levels_.Column(at_.machine, column);
    if (q == rank()) continue;
    Wait(q);
    const auto copy = [&](int from, int parts) {
      Copy({Out(rank(), 0, column * per_column + from, parts)}, Slot(q, column * per_column + from, parts));
    };
    const int straight = std::min(count, per_column - first);
    copy(first, straight);
    if (count > straight) copy(0, count - straight);
  }
}

void Writer::PublishBlocks() {
  ForEachPeer([&](int peer) {
    const Place theirs = levels_.PlaceOf(peer);
    for (int d = 1; d < levels_.machines(); ++d) {
      for (int q : levels_.Carried(theirs, levels_.Machine(theirs.machine, d))) Copy({Slot(rank(), q)}, In(rank(), q));
    }
    Copy({Slot(rank(), peer)}, In(rank(), peer));
    Signal(peer);
  });
}

}  // namespace axccl::algo
