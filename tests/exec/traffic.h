// Collective calls over an ensemble, with buffers, expected results and a driver that interleaves the ranks at random.
//
// The oracle follows the table in contract.h literally and shares no code with schedules or executor. Data are int32.
// An Exchange may be used by one thread per rank; everything else by one thread.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/exec/ensemble.h"
#include "tests/harness/random.h"

namespace axccl::exec {

// A call that all ranks make; in place if the bit of the rank is set and the contract allows it.
struct Shape {
  plan::Contract contract;
  uint64_t count = 0;
  Combine combine = Combine::kSum;
  Scaling scaling = Scaling::kNone;
  uint64_t in_place = 0;
  uint64_t in_heap = 0;                // Layout::kMixed: bit 2r for the input of rank r, 2r + 1 for the output
  std::optional<BlockForm> form = {};  // of `count` elements: operands are views, with different layouts on each rank
};
std::string Describe(const Shape& shape);

// One collective call of every rank: buffers between guard bytes.
class Exchange {
 public:
  // `salt` distinguishes the data of exchanges.
  Exchange(Ensemble* ensemble, const Shape& shape, uint64_t salt);

  const Shape& shape() const { return shape_; }
  Call CallOf(int rank) const;

  // Mark the beginning and the end of a rank's operation. `Ended` checks the rank's output and, where it must be
  // unchanged, its input, and then spoils both, because the user may reuse them.
  void Began(int rank) { begun_.fetch_or(uint64_t{1} << rank, std::memory_order_relaxed); }
  testing::AssertionResult Ended(int rank);
  // After all ranks ended: checks that no rank wrote to spoiled buffers or beside them.
  testing::AssertionResult Undisturbed() const;

 private:
  struct Place {
    std::byte* own = nullptr;   // the address that the rank passes
    std::byte* data = nullptr;  // always accessible
    uint64_t elements = 0;
    // Views: the memory between the guards, and the offsets of the elements in it, block after block.
    std::byte* memory = nullptr;
    uint64_t memory_elements = 0;
    std::vector<int64_t> offsets;  // in elements, from `data`
    int64_t strides[tensor::kMaxDims] = {};
  };
  struct Buffers {
    Place input, output;
    bool in_place = false;
  };

  Place MakePlace(int rank, uint64_t elements, bool heap, uint64_t offset);
  Place MakeOperand(int rank, int dim, uint64_t blocks, bool heap, uint64_t offset);
  void FindElements(int dim, uint64_t blocks, Place* place) const;
  int32_t InputValue(int rank, uint64_t element) const;
  int32_t Contribution(int rank, uint64_t element) const;
  int32_t Expected(int rank, uint64_t block, uint64_t element) const;
  static bool GuardsIntact(const Place& place);
  static int32_t& Element(const Place& place, uint64_t i) {
    return reinterpret_cast<int32_t*>(place.data)[place.offsets.empty() ? static_cast<int64_t>(i) : place.offsets[i]];
  }

  Ensemble* const ensemble_;
  const Shape shape_;
  const uint64_t salt_;
  std::vector<Buffers> buffers_;
  std::atomic<uint64_t> begun_{0};
};

// How ranks are interleaved.
enum class Pace : uint8_t {
  kUniform,  // any rank is next
  kRuns,     // one rank goes on until it is blocked
  kStarve,   // one rank seldom gets its turn
};

// Every rank makes all exchanges in order, each when its last one is done, independently of the other ranks. Fails on
// the first wrong result or error, or when no rank makes progress.
testing::AssertionResult Drive(Ensemble* ensemble, const std::vector<std::unique_ptr<Exchange>>& exchanges, Pace pace,
                               harness::Random* random);

// As Drive, with a thread for each rank that drives it without a pause. Layout::kThreads only.
testing::AssertionResult DriveInParallel(Ensemble* ensemble, const std::vector<std::unique_ptr<Exchange>>& exchanges);

// A filter that admits only `algorithm` for `kind`.
std::string Only(plan::Kind kind, std::string_view algorithm);
// Sets a random form of the blocks, and their count.
void AnyForm(Shape* shape, harness::Random* random);
// Sets a random in-place mask and places for buffers.
void Scatter(Shape* shape, harness::Random* random);
// A filter with one random algorithm for each kind; `far`: also algorithms for several machines.
std::string AnyAlgorithms(harness::Random* random, bool far);
// A random call, of up to a few thousand elements.
Shape AnyShape(int ranks, harness::Random* random);

}  // namespace axccl::exec
