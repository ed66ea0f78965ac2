// Collectives on views, by definition: random cases, where their operands lie, and what every element must be.
//
// Written from StableHLO's specification (all_gather, reduce_scatter, all_reduce, all_to_all, collective_broadcast,
// collective_reduce), one element at a time and without a line of the library's code. Everything is a pure function of
// the case and the rank, so that each rank knows what all others send. Inputs are small integers, whose reductions are
// exact in every order and type (averages: multiples of the number of ranks). Types are all of the API's.
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
  int split = -1;   // the dimension in which inputs are n blocks; -1: they are one
  int concat = -1;  // likewise outputs
  Sizes block;
  uint64_t seed = 0;
  std::vector<uint32_t> repeats;  // by rank: bit d where the input has stride 0 along dimension d

  bool Reduces() const;
  bool HasInput(int rank) const;
  bool HasOutput(int rank) const;
  Sizes InputSizes() const;
  Sizes OutputSizes() const;
  // Whether this rank works in place, and then which block of the larger operand is the smaller one.
  bool InPlace(int rank) const;
  std::string Text() const;
};

// At most `max_elements` a block.
ViewCase AnyViewCase(harness::Random* random, int nranks, int64_t max_elements);
// An all-to-all or reduce-scatter whose blocks lie side by side in rows of a few KiB.
ViewCase AnySplitRows(harness::Random* random, int nranks);
// One that goes with `first` in one call.
ViewCase AnotherOperand(const ViewCase& first, harness::Random* random, int64_t max_elements);

// How a tensor lies in memory: strides in elements, and how many elements its memory has before and from its first one.
struct Placement {
  Sizes sizes, strides;
  bool dense = false;  // strides need not be told
  int64_t before = 0, after = 0;
};
// Any order of dimensions, with gaps, backwards; inputs may repeat elements.
Placement AnyPlacement(const Sizes& sizes, bool may_repeat, harness::Random random);
// In place, of the larger operand; the smaller one has the same strides.
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

// The element of a rank's input, and of its output: as many bytes as the type has.
using Element = std::array<unsigned char, 16>;
// A number that the type can hold.
Element EncodeInteger(ncclDataType_t type, int64_t value);
Element InputElement(const ViewCase& c, int rank, const Sizes& index);
Element OutputElement(const ViewCase& c, int rank, const Sizes& index);

}  // namespace axccl::tests
