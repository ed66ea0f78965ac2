// Calls with parts of different sizes, by definition: random cases, and one rank's part in one.
//
// Written from MPI-4.1 (MPI_Allgatherv and its siblings), JAX's ragged_all_to_all and StableHLO's dynamic roots,
// without any of the library's code. Cases are the same on all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/collectives/rank_call.h"
#include "tests/collectives/tensor.h"

namespace axccl::tests {

enum class UnevenOp : uint8_t { kAllGatherV, kReduceScatterV, kGatherV, kScatterV, kAllToAllV, kRagged, kFrom, kTo };
// Rows that go from one rank to another. In a reduction, every rank is a source.
struct UnevenTransfer {
  int source, destination;
  int64_t from, to, rows;
};

struct UnevenOperand {
  ncclDataType_t type = ncclFloat32;
  Sizes row;                      // sizes of a row; 1 along the dimension of rows
  Sizes input_rows, output_rows;  // by rank; -1: it has none
  std::vector<UnevenTransfer> transfers;
};

struct UnevenCase {
  UnevenOp op = UnevenOp::kAllGatherV;
  int nranks = 1, root = 0, dim = 0;
  ncclRedOp_t fold = ncclSum;
  uint64_t seed = 0;
  std::vector<UnevenOperand> operands;
  Sizes extents;                                    // as the call's argument: [operand][rank]
  std::vector<Sizes> sent, input_offsets, targets;  // all-to-all, for all operands: [source][destination]
  std::vector<int32_t> roots;                       // by operand

  bool Reduces() const { return op == UnevenOp::kReduceScatterV || op == UnevenOp::kTo; }
  std::string Text() const;
};

// Parts have up to `most_rows` rows.
UnevenCase AnyUnevenCase(harness::Random* random, int nranks, int64_t most_rows);

class UnevenPart : public RankCall {
 public:
  // Takes memory from two arenas: one of ncclMemAlloc and another. The case must outlive it.
  UnevenPart(const UnevenCase& c, int rank, std::vector<std::unique_ptr<harness::GuardedArena>>* arenas);

  ncclResult_t Launch(axcclChannel_t channel, cudaStream_t stream) override;
  void Check() const override;

 private:
  std::unique_ptr<Tensor> Make(const UnevenOperand& operand, int64_t rows,
                               std::vector<std::unique_ptr<harness::GuardedArena>>* arenas, harness::Random* random);
  void Fill(size_t k);
  void Predict(size_t k);

  const UnevenCase& c_;
  const int rank_;
  std::vector<std::unique_ptr<Tensor>> inputs_, outputs_;
  Sizes send_, receive_;
};

}  // namespace axccl::tests
