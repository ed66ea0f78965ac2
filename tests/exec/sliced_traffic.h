// Pipelines over an ensemble, all ranks in the thread of the test, in a random order.
//
// Every rank starts its pipeline several times, independently of the others. It declares the chunks of its input ready
// at random moments and in any order, with values of that start; before, they hold garbage. Each chunk of the output is
// checked when its word becomes 1. When a rank's start has ended, its buffers are spoiled, because the user may write
// them. Data are int32. The oracle follows the table in contract.h. For one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/exec/host/sliced_run.h"
#include "tests/exec/ensemble.h"
#include "tests/exec/traffic.h"
#include "tests/harness/random.h"

namespace axccl::exec {

// A pipeline that all ranks start.
struct SlicedShape {
  plan::Contract contract;
  algo::Chunking chunking;
  tensor::Shape block;
  int dim = 0;        // along which blocks follow each other, where there are several
  int slice_dim = 0;  // along which they are cut
  // The dimension whose indices are neighbours in memory, in both operands of all ranks; -1: anything, with gaps.
  int innermost = -1;

  bool splits() const;
  bool joins() const;
  BlockForm Form() const;
};
std::string Describe(const SlicedShape& shape);
// A random form of the blocks, which are empty seldom, and a number of slices.
void AnyBlocks(SlicedShape* shape, harness::Random* random);

// Room for the lanes and the signals of a schedule with slices.
EnsembleOptions RoomFor(const SlicedShape& shape, Layout layout);

class SlicedTraffic {
 public:
  // `shapes`: of every rank; if there is one, it is that of all.
  SlicedTraffic(Ensemble* ensemble, const std::vector<SlicedShape>& shapes, int starts, harness::Random* random);

  // Until all ranks have ended all starts. Fails on the first wrong value or error, or when no rank makes progress.
  testing::AssertionResult Drive(Pace pace);
  // One action of one rank: begins a start, declares a chunk ready, or runs. *moved unless it is blocked or has ended.
  testing::AssertionResult Act(int rank, bool* moved);
  bool Ended(int rank) const { return ranks_[static_cast<size_t>(rank)].started == starts_ && !Runs(rank); }
  bool Runs(int rank) const { return ranks_[static_cast<size_t>(rank)].runs; }
  // Of the last start; not ok if it has failed, which Act does not count as a failure of the test.
  const Status& StatusOf(int rank) const { return ranks_[static_cast<size_t>(rank)].run->status(); }
  size_t ScratchBytes(int rank) const { return ranks_[static_cast<size_t>(rank)].run->scratch_bytes(); }
  // How many words of the rank have that value.
  int CountWords(int rank, uint32_t value) const;

  // Called before each step with the rank whose step it is.
  void BeforeSteps(std::function<void(int)> function) { before_steps_ = std::move(function); }
  // The addresses of all elements of the rank's input, or of its output, as that rank sees them.
  std::vector<const std::byte*> Elements(int rank, Pipeline::Side side) const;

 private:
  struct Place {
    std::byte* data = nullptr;
    int blocks = 0;
    int64_t strides[tensor::kMaxDims] = {};
    std::vector<int64_t> offsets;  // in elements, block after block, each in the order of its indices
  };
  struct Rank {
    SlicedShape shape;
    Place sides[2];
    std::unique_ptr<Pipeline::Word[]> words[2];
    std::unique_ptr<SlicedRun> run;
    int started = 0;
    bool runs = false;
    std::vector<uint32_t> undeclared;
    std::vector<bool> checked;  // output chunks
  };

  void MakeRank(int rank, const SlicedShape& shape);
  Place MakePlace(int rank, const SlicedShape& shape, int blocks, int dim);
  Call CallOf(const Rank& rank) const;
  testing::AssertionResult Begin(int rank);
  void Declare(int rank, uint32_t chunk);
  testing::AssertionResult CheckNew(int rank);
  testing::AssertionResult CheckBlocked(int rank);
  testing::AssertionResult CheckEnd(int rank);
  int Chunks(const Rank& rank, Pipeline::Side side) const {
    return rank.sides[side].blocks * rank.shape.chunking.slices;
  }
  template <class Visit>
  void ForEachOfChunk(const Rank& rank, Pipeline::Side side, uint32_t chunk, const Visit& visit) const;
  int32_t& Element(const Place& place, size_t i) const {
    return reinterpret_cast<int32_t*>(place.data)[place.offsets[i]];
  }
  int32_t Input(int rank, size_t element, int start) const;
  int32_t Expected(int rank, size_t element, int start) const;

  Ensemble* const ensemble_;
  const int starts_;
  harness::Random* const random_;
  const uint64_t salt_;
  std::vector<Rank> ranks_;
  std::function<void(int)> before_steps_;
};

}  // namespace axccl::exec
