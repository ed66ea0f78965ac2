// Collectives on views, by definition: random cases, the placement of their operands, and the value of every element.
//
// Written from StableHLO's specification (all_gather, reduce_scatter, all_reduce, all_to_all, collective_broadcast,
// collective_reduce), one element at a time and without any of the library's code. Everything is a pure function of the
// case and the rank, so each rank knows what all others send. Inputs are small integers, whose reductions are exact in
// every order and type (averages: multiples of the number of ranks). All types of the API occur.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness/element.h"
#include "tests/harness/random.h"

namespace axccl::tests {

enum class ViewOp : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kGather,
  kScatter,
  kBroadcast,
  kReduce
};
inline constexpr int kNumViewOps = 8;

using Sizes = std::vector<int64_t>;

struct ViewCase {
  ViewOp op = ViewOp::kAllReduce;
  int nranks = 1;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t fold = ncclSum;
  int root = 0;
  int split = -1;   // the dimension along which inputs are n blocks; -1: one block
  int concat = -1;  // likewise for outputs
  Sizes block;
  uint64_t seed = 0;
  std::vector<uint32_t> repeats;  // by rank: bit d if the input has stride 0 along dimension d

  bool Reduces() const;
  bool HasInput(int rank) const;
  bool HasOutput(int rank) const;
  Sizes InputSizes() const;
  Sizes OutputSizes() const;
  // Whether this rank works in place, and if so, which block of the larger operand the smaller one is.
  bool InPlace(int rank) const;
  std::string Text() const;
};

// A block has at most `max_elements`.
ViewCase AnyViewCase(harness::Random* random, int nranks, int64_t max_elements);
// An all-to-all or reduce-scatter whose blocks lie side by side in rows of a few KiB.
ViewCase AnySplitRows(harness::Random* random, int nranks);
// A case that can be another operand of the call of `first`.
ViewCase AnotherOperand(const ViewCase& first, harness::Random* random, int64_t max_elements);

// The placement of a tensor in memory: strides in elements, and the number of its elements before and from the first
// one.
struct Placement {
  Sizes sizes, strides;
  bool dense = false;  // the call need not give strides
  int64_t before = 0, after = 0;
};
// Any order of dimensions, with gaps, backwards; inputs may repeat elements.
Placement AnyPlacement(const Sizes& sizes, bool may_repeat, harness::Random random);
// In place, the larger operand's placement; the smaller one has the same strides.
Placement InputPlacement(const ViewCase& c, int rank);
Placement OutputPlacement(const ViewCase& c, int rank);

// Calls visit(index) for every index of a tensor, the last dimension fastest.
template <class Visit>
void ForEachIndex(const Sizes& sizes, const Visit& visit) {
  for (const int64_t size : sizes) {
    if (size == 0) return;
  }
  Sizes index(sizes.size());
  for (;;) {
    visit(index);
    size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}
int64_t OffsetOf(const Placement& placement, const Sizes& index);

// An element of a rank's input, or of its output: as many bytes as the type has.
using Element = std::array<unsigned char, 16>;
// A number that the type can hold.
Element EncodeInteger(ncclDataType_t type, int64_t value);
Element InputElement(const ViewCase& c, int rank, const Sizes& index);
Element OutputElement(const ViewCase& c, int rank, const Sizes& index);

}  // namespace axccl::tests
