// collective_permute by definition (StableHLO): random cases, and one rank's part in one. Cases are the same on all
// ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/collectives/rank_call.h"
#include "tests/collectives/tensor.h"

namespace axccl::tests {

struct PermuteCase {
  uint64_t seed = 0;
  int nranks = 1;
  std::vector<int64_t> pairs;
  std::vector<int> source_of, target_of;  // by rank, -1: none
  std::vector<Sizes> shapes;
  std::vector<ncclDataType_t> types;

  std::string Text() const;
};

PermuteCase AnyPermuteCase(harness::Random* random, int nranks);

struct PermutePart : public RankCall {
  // Takes memory from two arenas. The case must outlive it.
  PermutePart(const PermuteCase& c, int rank, std::vector<std::unique_ptr<harness::GuardedArena>>* arenas);

  ncclResult_t Launch(axcclChannel_t channel, cudaStream_t stream) override;
  void Check() const override;

  const PermuteCase& c;
  const int rank;
  std::vector<Tensor> inputs, outputs;
};

}  // namespace axccl::tests
