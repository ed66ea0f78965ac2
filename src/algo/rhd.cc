// Recursive halving-doubling: log2 n steps in which a rank and its partner exchange half of what they still work on
// (halving: reduce-scatter), then twice what they have (doubling: all-gather). Where n is a power of two, it has both
// the least bytes and the fewest steps. (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective
// communication operations in MPICH", IJHPCA 19(1), 2005.)
//
// Other n are reduced to a power of two: with p the largest one below n, the first 2 (n - p) ranks pair up. The even
// rank of a pair, the *guest*, gives all its data to the odd one, its *host*, and gets its result from it. The p ranks
// that are not guests are the *members*.
//
// Data is cut into chunks: the p parts of the block in the all-reduce, the n blocks in the other kinds. A member owns a
// run of chunks; a set of members with consecutive indices owns a run, too. Received contributions stay in slots until
// their chunk is sent or finished. Then all are folded at once, so that no partial sum is written that no other rank
// reads.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

struct Run {
  int first = 0;
  int count = 0;
};

class HalvingDoubling {
 public:
  HalvingDoubling(const Contract& contract, Builder* builder)
      : kind_(contract.kind),
        b_(builder),
        n_(contract.ranks),
        steps_(std::bit_width(static_cast<unsigned>(n_)) - 1),
        members_(1 << steps_),
        guests_(n_ - members_),
        chunks_(contract.kind == Kind::kAllReduce ? members_ : n_) {
    LayOutSlots();
  }

  // Writes the program of a rank.
  void Rank(int r) const {
    if (r >= 2 * guests_) return Member(r - guests_);
    r % 2 == 0 ? Guest(r / 2) : Member(r / 2);
  }

 private:
  void Guest(int index) const;
  void Member(int index) const;
  bool by_parts() const { return kind_ == Kind::kAllReduce; }
  bool is_host(int index) const { return index < guests_; }
  int RankOf(int index) const { return is_host(index) ? 2 * index + 1 : index + guests_; }
  int GuestRank(int host) const { return 2 * host; }

  // The chunks of the 2^bit members that differ from `index` in the lowest `bit` bits only.
  Run ChunksOf(int index, int bit) const {
    const int first = index >> bit << bit;
    return {FirstChunk(first), FirstChunk(first + (1 << bit)) - FirstChunk(first)};
  }
  int FirstChunk(int index) const { return by_parts() ? index : index + std::min(index, guests_); }

  Operand Input(int rank, Run run) const {
    return by_parts() ? In(rank, 0, run.first, run.count) : In(rank, run.first);
  }
  Operand Output(int rank, Run run) const {
    return by_parts() ? Out(rank, 0, run.first, run.count) : Out(rank, run.first);
  }
  // The operand of `run` in the slots from `base` on, which hold the chunks of `whole`.
  static Operand At(int rank, int base, Run whole, Run run) {
    return Slot(rank, base + run.first - whole.first, run.count);
  }
  // Calls f for pieces of `run` that one operand can name: parts of a block all at once, blocks one by one.
  template <class F>
  void ForEachPiece(Run run, F f) const {
    if (by_parts()) return f(run);
    for (int c = run.first; c < run.first + run.count; ++c) f(Run{c, 1});
  }

  void LayOutSlots();
  std::vector<Operand> Contributions(int index, int bits_done, Run piece) const;
  void Fold(int index, int bits_done, Run piece, std::vector<Operand> dst, State state) const;
  void Halve(int index) const;
  void FinishChunks(int index) const;
  void Double(int index) const;

  Run All() const { return {0, chunks_}; }
  // Endpoint `bit` is for the partner that differs in that bit.
  int GuestEndpoint() const { return steps_; }

  const Kind kind_;
  Builder* const b_;
  const int n_;
  const int steps_;  // log2 of members
  const int members_;
  const int guests_;
  const int chunks_;
  // First slots of arrivals. Slot 0: from the guest (at the guest: from the host). The others: from the partner in
  // `bit`, while halving and while doubling.
  std::vector<int> halving_base_;
  std::vector<int> doubling_base_;
};

void HalvingDoubling::LayOutSlots() {
  int next = guests_ == 0 ? 0 : kind_ == Kind::kAllGather ? 1 : chunks_;
  for (auto* base : {&halving_base_, &doubling_base_}) {
    if (base == &halving_base_ && kind_ == Kind::kAllGather) continue;
    if (base == &doubling_base_ && kind_ == Kind::kReduceScatter) continue;
    for (int bit = 0; bit < steps_; ++bit) {
      base->push_back(next);
      int most = 0;
      for (int i = 0; i < members_; i += 1 << bit) most = std::max(most, ChunksOf(i, bit).count);
      next += most;
    }
  }
}

// The contributions to `piece` that member `index` has after halving down to `bits_left` bits: its own, its guest's and
// its partners'.
std::vector<Operand> HalvingDoubling::Contributions(int index, int bits_left, Run piece) const {
  const int r = RankOf(index);
  std::vector<Operand> src = {Input(r, piece)};
  if (is_host(index)) src.push_back(At(r, 0, All(), piece));
  for (int bit = steps_ - 1; bit >= bits_left; --bit) {
    src.push_back(At(r, halving_base_[bit], ChunksOf(index, bit), piece));
  }
  return src;
}

void HalvingDoubling::Fold(int index, int bits_left, Run piece, std::vector<Operand> dst, State state) const {
  const std::vector<Operand> src = Contributions(index, bits_left, piece);
  if (src.size() == 1) {
    b_->Copy(RankOf(index), std::move(dst), src[0], state);
  } else {
    b_->Reduce(RankOf(index), std::move(dst), src, state);
  }
}

void HalvingDoubling::Halve(int index) const {
  const int r = RankOf(index);
  if (is_host(index)) b_->Wait(r, GuestRank(index), GuestEndpoint());
  for (int bit = steps_ - 1; bit >= 0; --bit) {
    const int partner = index ^ (1 << bit);
    const Run theirs = ChunksOf(partner, bit);
    ForEachPiece(theirs, [&](Run piece) {
      Fold(index, bit + 1, piece, {At(RankOf(partner), halving_base_[bit], theirs, piece)}, State::kPartial);
    });
    b_->Signal(r, RankOf(partner), bit);
    b_->Wait(r, RankOf(partner), bit);
  }
}

void HalvingDoubling::FinishChunks(int index) const {
  const int r = RankOf(index);
  if (by_parts()) return Fold(index, 0, {index, 1}, {Output(r, {index, 1})}, State::kFinal);
  if (is_host(index)) {
    const int guest = GuestRank(index);
    Fold(index, 0, {guest, 1}, {Slot(guest, 0)}, State::kFinal);
    b_->Signal(r, guest, GuestEndpoint());
  }
  Fold(index, 0, {r, 1}, {Out(r)}, State::kFinal);
}

void HalvingDoubling::Double(int index) const {
  const int r = RankOf(index);
  const int exchange = kind_ == Kind::kAllReduce ? 2 : 1;  // which signal of the endpoint
  for (int bit = 0; bit < steps_; ++bit) {
    const int partner = index ^ (1 << bit);
    const Run mine = ChunksOf(index, bit), theirs = ChunksOf(partner, bit);
    ForEachPiece(mine, [&](Run piece) {
      b_->Copy(r, {At(RankOf(partner), doubling_base_[bit], mine, piece)}, Output(r, piece));
    });
    b_->Signal(r, RankOf(partner), bit);
    b_->Wait(r, RankOf(partner), bit, exchange);
    ForEachPiece(theirs,
                 [&](Run piece) { b_->Copy(r, {Output(r, piece)}, At(r, doubling_base_[bit], theirs, piece)); });
  }
  if (!is_host(index)) return;
  const int guest = GuestRank(index);
  ForEachPiece(All(), [&](Run piece) {
    const bool has_it = !by_parts() && piece.first == guest;
    if (!has_it) b_->Copy(r, {At(guest, 0, All(), piece)}, Output(r, piece));
  });
  b_->Signal(r, guest, GuestEndpoint());
}

void HalvingDoubling::Member(int index) const {
  const int r = RankOf(index);
  if (kind_ == Kind::kAllGather) {
    b_->Copy(r, {Out(r, r)}, In(r));
    if (is_host(index)) {
      b_->Wait(r, GuestRank(index), GuestEndpoint());
      b_->Copy(r, {Out(r, GuestRank(index))}, Slot(r, 0));
    }
  } else {
    Halve(index);
    FinishChunks(index);
  }
  if (kind_ != Kind::kReduceScatter) Double(index);
}

// The program of the guest of the host with this index.
void HalvingDoubling::Guest(int index) const {
  const int r = GuestRank(index);
  const int host = RankOf(index);
  if (kind_ == Kind::kAllGather) {
    b_->Copy(r, {Slot(host, 0), Out(r, r)}, In(r));
  } else {
    ForEachPiece(All(), [&](Run piece) { b_->Copy(r, {At(host, 0, All(), piece)}, Input(r, piece)); });
  }
  b_->Signal(r, host, GuestEndpoint());
  b_->Wait(r, host, GuestEndpoint());
  if (kind_ == Kind::kReduceScatter) return b_->Copy(r, {Out(r)}, Slot(r, 0));
  ForEachPiece(All(), [&](Run piece) {
    const bool has_it = !by_parts() && piece.first == r;
    if (!has_it) b_->Copy(r, {Output(r, piece)}, At(r, 0, All(), piece));
  });
}

}  // namespace

plan::Schedule Rhd(const Contract& contract, int lanes, std::span<const int> only) {
  const int members = static_cast<int>(std::bit_floor(static_cast<unsigned>(contract.ranks)));
  Builder b(contract, "rhd", contract.kind == Kind::kAllReduce ? members : 1, only);
  const HalvingDoubling pattern(contract, &b);
  for (const int r : b.programmed()) pattern.Rank(r);
  return b.Build(lanes);
}

}  // namespace axccl::algo
