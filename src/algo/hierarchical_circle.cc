// Between machines, on a circle of them: all-reduce, all-gather and reduce-scatter.
//
// An all-gather is a sequence of *rounds*. In a round, every machine receives from the machine `skip` places ahead the
// data of the machines at distances [first, last) ahead of itself. The sender has that data from earlier rounds, at its
// distances [first - skip, last - skip). Each distance arrives in one round, so every byte reaches a machine once,
// whatever the rounds are:
//
//   direct   skip s brings distance s, and nothing is passed on: two hops in all and the fewest waits, but a message
//            for every machine. Best for few machines, and where bytes matter more than messages.
//   ring     skip 1, machines - 1 times: each rank has two neighbours and needs no other links; one step for each
//            machine.
//   doubling skip 2^j brings distances [2^j, 2^(j+1)): a logarithmic number of rounds, for any number of machines. Best
//            where the cost per message is high. (J. Bruck et al., IEEE TPDS 8(11), 1997.)
//
// A reduce-scatter is the same run backwards. A machine sends its partial fold for the machine at distance d to the
// machine from which it would receive that machine's block in the all-gather. It first folds in, at once, everything
// that others have sent it for d, so it writes no partial fold that no other rank reads. An all-reduce is a
// reduce-scatter followed by an all-gather. Unlike recursive halving between pairs, this needs no special case for
// numbers that are not powers of two, and all machines do the same. (J. L. Traeff, "Optimal, non-pipelined
// reduce-scatter and allreduce algorithms", 2024.)
//
// For little data, an all-reduce may instead gather the machines' shares and fold all of them on every machine, in the
// order of the machines so that all get the same bits: half the rounds, more bytes. For very little data, only one rank
// of each machine should send: it has all of the data, and the machine sends the fewest messages possible.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/hierarchical.h"
#include "src/algo/levels.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

struct Round {
  int skip;
  int first;
  int last;

  // Whether the round passes on the data at this distance from the sender.
  bool Takes(int distance) const { return first - skip <= distance && distance < last - skip; }
  bool TakesOwn() const { return first == skip; }
};

std::vector<Round> MakeRounds(Circuit circuit, int machines) {
  std::vector<Round> rounds;
  switch (circuit) {
    case Circuit::kDirect:
      for (int s = 1; s < machines; ++s) rounds.push_back({s, s, s + 1});
      break;
    case Circuit::kRing:
      for (int s = 1; s < machines; ++s) rounds.push_back({1, s, s + 1});
      break;
    case Circuit::kDoubling:
      for (int s = 1; s < machines; s *= 2) rounds.push_back({s, s, std::min(2 * s, machines)});
      break;
  }
  return rounds;
}

// A part or block that a rank carries, or its own. `home` is the rank whose result or contribution it is; `position` is
// its index among the pieces that the carrier has for that rank's machine.
struct Piece {
  int home = 0;
  int position = 0;
};

// Where a rank keeps what it sends and gets: its blocks, and the slots of its scratch.
class CircleSlots {
 public:
  CircleSlots(const Contract& contract, const Levels& levels)
      : levels_(levels), by_parts_(contract.kind == Kind::kAllReduce), width_(by_parts_ ? 1 : levels.most_carried()) {}

  bool by_parts() const { return by_parts_; }
  Operand Input(int rank, int home) const { return by_parts_ ? In(rank, 0, Part(home)) : In(rank, home); }
  Operand Output(int rank, int home) const { return by_parts_ ? Out(rank, 0, Part(home)) : Out(rank, home); }

  int Contribution(int home) const { return by_parts_ ? Part(home) : home; }
  // Each distance has arrival slots for what comes from it or is for it: first those of the reduce-scatter, then those
  // of the all-gather.
  Operand Scattered(int rank, int distance, int position) const {
    return Slot(rank, scattered() + Arrival(distance, position));
  }
  Operand Gathered(int rank, int distance, int position) const {
    return Slot(rank, gathered() + Arrival(distance, position));
  }
  // The slot from which the peers read what a rank has gathered.
  Operand Passed(int rank, int distance, const Piece& piece) const {
    if (by_parts_) return Slot(rank, Part(piece.home));
    return Slot(rank, distance == 0 ? 0 : gathered() + arrivals() + Arrival(distance, piece.position));
  }

 private:
  int machines() const { return levels_.machines(); }
  int Part(int rank) const { return levels_.PlaceOf(rank).index * machines() + levels_.MachineOf(rank); }
  int arrivals() const { return (machines() - 1) * width_; }
  int Arrival(int distance, int position) const { return (distance - 1) * width_ + position; }
  int scattered() const { return by_parts_ ? levels_.columns() * machines() : levels_.ranks(); }
  int gathered() const { return by_parts_ ? scattered() + arrivals() : 1; }

  const Levels& levels_;
  const bool by_parts_;
  const int width_;  // largest number of pieces that a rank carries for one machine
};

class Circle {
 public:
  Circle(const Contract& contract, const Levels& levels, Circuit circuit, Builder* builder);

  void AllReduce();
  void ReduceScatter();
  void AllGather();
  void AllReduceByGather();

 private:
  bool by_parts() const { return slots_.by_parts(); }
  int machines() const { return levels_.machines(); }
  int Ahead(const Place& at, int distance) const { return levels_.Machine(at.machine, distance); }
  // The rank that carries this rank's blocks on the machine at a distance.
  int CarrierAhead(const Place& at, int distance) const { return levels_.Carrier(Ahead(at, distance), at.rank); }
  int ColumnAhead(const Place& at, int distance) const { return levels_.Column(Ahead(at, distance), at.index); }
  std::vector<Piece> Pieces(const Place& at, int distance) const;

  void HearBack(Writer* w, size_t needed, size_t* heard) const;
  std::vector<Operand> Share(Writer* w, int distance, const Piece& piece) const;
  void FoldPiece(Writer* w, int distance, const Piece& piece, std::vector<Operand> share, std::vector<Operand> dst,
                 State state) const;
  void SendBack(Writer* w, size_t round, size_t* heard) const;
  void Scatter(Writer* w, std::vector<Operand> result) const;

  std::vector<Operand> Onward(const Place& at, int distance, int position) const;
  std::vector<Operand> Spread(const Place& at, int distance, const Piece& piece) const;
  void SignalReady(Writer* w, int first, int last) const;
  bool Hear(Writer* w, const Round& round) const;
  void Pass(Writer* w, const Round& round) const;
  void Collect(Writer* w, const Round& round) const;
  void Gather(Writer* w) const;

  const Levels& levels_;
  const CircleSlots slots_;
  Builder* const b_;
  const std::vector<Round> rounds_;
  std::vector<std::vector<size_t>> takers_;  // [distance]: the rounds that pass on the data at that distance
};

Circle::Circle(const Contract& contract, const Levels& levels, Circuit circuit, Builder* builder)
    : levels_(levels),
      slots_(contract, levels),
      b_(builder),
      rounds_(MakeRounds(circuit, levels.machines())),
      takers_(static_cast<size_t>(levels.machines())) {
  for (size_t i = 0; i < rounds_.size(); ++i) {
    for (int d = rounds_[i].first; d < rounds_[i].last; ++d)
      takers_[static_cast<size_t>(d - rounds_[i].skip)].push_back(i);
  }
}

// The pieces of the machine at a distance; at 0, the rank's own.
std::vector<Piece> Circle::Pieces(const Place& at, int distance) const {
  if (by_parts() && !levels_.InColumn(at)) return {};
  if (distance == 0) return {{at.rank, 0}};
  if (by_parts()) return {{ColumnAhead(at, distance), 0}};
  std::vector<Piece> pieces;
  for (int q : levels_.Carried(at, Ahead(at, distance))) pieces.push_back({q, static_cast<int>(pieces.size())});
  return pieces;
}

// ---- reduce-scatter ----

// Waits for the rounds from the last one that was waited for back to `needed`.
void Circle::HearBack(Writer* w, size_t needed, size_t* heard) const {
  while (*heard > needed) {
    const Round& round = rounds_[--*heard];
    if (round.TakesOwn() || w->InColumn()) w->Wait(CarrierAhead(w->at(), -round.skip));
  }
}

// The machine's share of a fold, as a single operand if other machines' shares must still be waited for.
std::vector<Operand> Circle::Share(Writer* w, int distance, const Piece& piece) const {
  const Operand own = slots_.Input(w->rank(), piece.home);
  const int slot = slots_.Contribution(piece.home);
  if (takers_[static_cast<size_t>(distance)].empty()) return w->Contributions(own, slot);
  return {w->OwnShare(own, slot)};
}

void Circle::FoldPiece(Writer* w, int distance, const Piece& piece, std::vector<Operand> share,
                       std::vector<Operand> dst, State state) const {
  for (size_t i : takers_[static_cast<size_t>(distance)])
    share.push_back(slots_.Scattered(w->rank(), distance + rounds_[i].skip, piece.position));
  w->Fold(std::move(dst), std::move(share), state);
}

void Circle::SendBack(Writer* w, size_t i, size_t* heard) const {
  const Round& round = rounds_[i];
  std::vector<std::vector<Operand>> shares;
  size_t needed = rounds_.size();
  for (int d = round.first; d < round.last; ++d) {
    for (const Piece& piece : Pieces(w->at(), d)) shares.push_back(Share(w, d, piece));
    for (size_t taker : takers_[static_cast<size_t>(d)]) needed = std::min(needed, taker);
  }
  HearBack(w, needed, heard);
  auto share = shares.begin();
  for (int d = round.first; d < round.last; ++d) {
    for (const Piece& piece : Pieces(w->at(), d)) {
      const bool arrives = d == round.skip;
      const Operand to = arrives ? slots_.Scattered(piece.home, d, 0)
                                 : slots_.Scattered(ColumnAhead(w->at(), round.skip), d, piece.position);
      FoldPiece(w, d, piece, std::move(*share++), {to}, State::kPartial);
    }
  }
  if (!round.TakesOwn()) {
    if (w->InColumn()) w->Signal(ColumnAhead(w->at(), round.skip));
    return;
  }
  for (const Piece& piece : Pieces(w->at(), round.skip)) w->Signal(piece.home);
}

// Folds and sends what the rank carries for others, then finishes its own.
void Circle::Scatter(Writer* w, std::vector<Operand> result) const {
  size_t heard = rounds_.size();
  for (size_t i = rounds_.size(); i-- > 0;) SendBack(w, i, &heard);
  const Piece own{w->rank(), 0};
  std::vector<Operand> share = Share(w, 0, own);
  HearBack(w, 0, &heard);
  FoldPiece(w, 0, own, std::move(share), std::move(result), State::kFinal);
}

void Circle::ReduceScatter() {
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    w.PublishBlocks();
    w.WaitForPeers();
    Scatter(&w, {Out(r)});
  }
}

// ---- all-gather ----

// The arrival slots of all ranks that get the data from here.
std::vector<Operand> Circle::Onward(const Place& at, int distance, int position) const {
  std::vector<Operand> dst;
  for (size_t i : takers_[static_cast<size_t>(distance)]) {
    const int skip = rounds_[i].skip;
    const int to = distance == 0 ? CarrierAhead(at, -skip) : ColumnAhead(at, -skip);
    if (distance == 0) position = by_parts() ? 0 : levels_.PositionAt(Ahead(at, -skip), at.rank);
    dst.push_back(slots_.Gathered(to, distance + skip, position));
  }
  return dst;
}

std::vector<Operand> Circle::Spread(const Place& at, int distance, const Piece& piece) const {
  std::vector<Operand> dst = Onward(at, distance, piece.position);
  if (!at.alone()) dst.push_back(slots_.Passed(at.rank, distance, piece));
  dst.push_back(slots_.Output(at.rank, piece.home));
  return dst;
}

// Signals the ranks for which the data at distances [first, last), just sent onward, completes what they receive in a
// round. A rank that is in no column sends only its own data.
void Circle::SignalReady(Writer* w, int first, int last) const {
  for (int d = first; d < last; ++d) {
    for (size_t i : takers_[static_cast<size_t>(d)]) {
      const Round& round = rounds_[i];
      if (!w->InColumn() || d + 1 == round.last - round.skip) w->Signal(CarrierAhead(w->at(), -round.skip));
    }
  }
}

// Waits for what the round brings; returns whether it brings the rank anything.
bool Circle::Hear(Writer* w, const Round& round) const {
  if (!round.TakesOwn()) {
    if (w->InColumn()) w->Wait(ColumnAhead(w->at(), round.skip));
    return w->InColumn();
  }
  const std::vector<Piece> pieces = Pieces(w->at(), round.skip);
  for (const Piece& piece : pieces) w->Wait(piece.home);
  return !pieces.empty();
}

void Circle::Pass(Writer* w, const Round& round) const {
  if (!Hear(w, round)) return;
  for (int d = round.first; d < round.last; ++d) {
    for (const Piece& piece : Pieces(w->at(), d))
      w->Copy(Spread(w->at(), d, piece), slots_.Gathered(w->rank(), d, piece.position));
  }
  SignalReady(w, round.first, round.last);
  w->SignalPeers();
}

// Copies what the round has brought to the peers.
void Circle::Collect(Writer* w, const Round& round) const {
  if (by_parts()) return w->CollectParts(machines(), Ahead(w->at(), round.first), round.last - round.first);
  w->ForEachPeer([&](int peer) {
    const Place theirs = levels_.PlaceOf(peer);
    bool waited = false;
    for (int d = round.first; d < round.last; ++d) {
      for (const Piece& piece : Pieces(theirs, d)) {
        if (!std::exchange(waited, true)) w->Wait(peer);
        w->Copy({slots_.Output(w->rank(), piece.home)}, slots_.Passed(peer, d, piece));
      }
    }
  });
}

// A rank passes on what arrives from outside before it collects what the previous round has brought to its peers.
void Circle::Gather(Writer* w) const {
  const Round own{0, 0, 1};
  Collect(w, own);
  for (size_t i = 0; i < rounds_.size(); ++i) {
    Pass(w, rounds_[i]);
    if (i > 0) Collect(w, rounds_[i - 1]);
  }
  Collect(w, rounds_.back());
}

void Circle::AllGather() {
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    w.Copy(Spread(w.at(), 0, {r, 0}), In(r));
    SignalReady(&w, 0, 1);
    w.SignalPeers();
    Gather(&w);
  }
}

// ---- all-reduce: column k's part for machine c is finished there ----

void Circle::AllReduce() {
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    w.PublishParts(machines());
    if (w.InColumn()) {
      w.WaitForPeers();
      Scatter(&w, Spread(w.at(), 0, {r, 0}));
      SignalReady(&w, 0, 1);
      w.SignalPeers();
      Gather(&w);
    } else {
      Collect(&w, {0, 0, 1});
      for (const Round& round : rounds_) Collect(&w, round);
    }
  }
}

// The share of the machine at a distance is in slot columns + distance; a machine's own share is read where that
// machine has written it.
void Circle::AllReduceByGather() {
  const auto slot = [&](int distance) { return levels_.columns() + distance; };
  const auto direct = [&](int distance) {
    return std::any_of(rounds_.begin(), rounds_.end(),
                       [&](const Round& round) { return round.TakesOwn() && round.skip == distance; });
  };
  for (const int r : b_->programmed()) {
    Writer w(levels_, b_, r);
    w.PublishParts(1);
    if (w.InColumn()) {
      const auto onward = [&](int distance) {
        std::vector<Operand> dst;
        for (size_t i : takers_[static_cast<size_t>(distance)])
          dst.push_back(Slot(ColumnAhead(w.at(), -rounds_[i].skip), slot(distance + rounds_[i].skip)));
        return dst;
      };
      const auto share = [&](int distance) {
        return direct(distance) ? Slot(ColumnAhead(w.at(), distance), slot(0)) : Slot(r, slot(distance));
      };
      const int part = w.at().index;
      w.WaitForPeers();
      w.Fold({share(0)}, w.Contributions(In(r, 0, part), part));
      SignalReady(&w, 0, 1);
      for (const Round& round : rounds_) {
        w.Wait(ColumnAhead(w.at(), round.skip));
        for (int d = round.first; d < round.last; ++d) {
          if (auto dst = onward(d); !dst.empty()) w.Copy(std::move(dst), share(d));
        }
        SignalReady(&w, round.first, round.last);
      }
      std::vector<Operand> shares, result = {Out(r, 0, part)};
      for (int c = 0; c < machines(); ++c) shares.push_back(share(levels_.Distance(w.at().machine, c)));
      if (!w.at().alone()) result.push_back(Slot(r, part));
      w.Fold(std::move(result), std::move(shares), State::kFinal);
      w.SignalPeers();
    }
    w.CollectParts(1, 0, 1);
  }
}

}  // namespace

plan::Schedule OnCircle(const Form& form, Circuit circuit) {
  const bool passes_on = circuit != Circuit::kDirect;
  const Levels levels(form.placement, passes_on ? Carriers::kColumns : Carriers::kAll);
  const bool by_parts = form.contract.kind == Kind::kAllReduce;
  Builder b(form.contract, form.algorithm, by_parts ? levels.columns() * levels.machines() : 1, form.only);
  Circle circle(form.contract, levels, circuit, &b);
  switch (form.contract.kind) {
    case Kind::kAllReduce:
      circle.AllReduce();
      break;
    case Kind::kAllGather:
      circle.AllGather();
      break;
    default:
      circle.ReduceScatter();
  }
  return b.Build(form.lanes);
}

plan::Schedule AllReduceByGather(const Form& form, Carriers carriers) {
  const Levels levels(form.placement, carriers);
  Builder b(form.contract, form.algorithm, levels.columns(), form.only);
  Circle(form.contract, levels, Circuit::kDoubling, &b).AllReduceByGather();
  return b.Build(form.lanes);
}

}  // namespace axccl::algo
