// Bruck: ceil(log2 n) steps for any n; in step j every rank puts to the rank 2^j away. Few messages, for small data on
// links with a high cost per message. (J. Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", IEEE TPDS 8(11), 1997.)
//
// Step j has endpoint j. In both kinds every rank's signals reach every other rank, directly or not, so the plans are
// complete.
#include <bit>

#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

int Steps(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// Item i of rank r is the block of rank r + i. Before step j, a rank has items 0 to 2^j - 1; in step j it gets items
// from 2^j on, which are the items from 0 on of rank r + 2^j. Item i > 0 arrives in slot i - 1.
//
// As soon as an item has arrived, one copy writes it to its output and to all ranks that get it in later steps. The own
// item goes to the ranks first, as they wait for it.
void AllGather(Builder* b, int r) {
  const int n = b->ranks();
  const auto forward = [&](int item, int step, Operand src) {
    std::vector<Operand> dst;
    for (int j = step; j < Steps(n); ++j) {
      const int distance = 1 << j;
      if (distance + item < n) dst.push_back(Slot(b->Shift(r, -distance), distance + item - 1));
    }
    if (item > 0) dst.push_back(Out(r, b->Shift(r, item)));
    b->Copy(r, dst, src);
  };
  forward(0, 0, In(r));
  for (int j = 0; j < Steps(n); ++j) {
    const int distance = 1 << j;
    b->Signal(r, b->Shift(r, -distance), j);
    if (j == 0) b->Copy(r, {Out(r, r)}, In(r));
    b->Wait(r, b->Shift(r, distance), j);
    for (int item = distance; item < 2 * distance && item < n; ++item) forward(item, j + 1, Slot(r, item - 1));
  }
}

// Item i of rank r, on its way to rank r + i, moves by 2^j in step j for every bit j set in i. What arrives in step j
// has its own slots, one per item with bit j, so a fast sender overwrites nothing that is still to be sent.
void AllToAll(Builder* b, int r) {
  const int n = b->ranks();
  int step_base = 0;
  std::vector<Operand> place(n);  // current location of item i
  for (int i = 0; i < n; ++i) place[i] = In(r, b->Shift(r, i));
  b->Copy(r, {Out(r, r)}, place[0]);
  for (int j = 0; j < Steps(n); ++j) {
    const int distance = 1 << j;
    const int to = b->Shift(r, distance);
    std::vector<int> items;
    for (int i = distance; i < n; ++i) {
      if (i & distance) items.push_back(i);
    }
    for (size_t k = 0; k < items.size(); ++k) b->Copy(r, {Slot(to, step_base + static_cast<int>(k))}, place[items[k]]);
    b->Signal(r, to, j);
    b->Wait(r, b->Shift(r, -distance), j);
    for (size_t k = 0; k < items.size(); ++k) {
      const int i = items[k];
      place[i] = Slot(r, step_base + static_cast<int>(k));
      if (i >> (j + 1) == 0) b->Copy(r, {Out(r, b->Shift(r, -i))}, place[i]);
    }
    step_base += static_cast<int>(items.size());
  }
}

}  // namespace

plan::Schedule Bruck(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, "bruck", 1, only);
  for (const int r : b.programmed()) {
    if (contract.kind == Kind::kAllGather) {
      AllGather(&b, r);
    } else {
      AllToAll(&b, r);
    }
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
