// Reductions in group order: every allowed algorithm, number of lanes, kind of memory and size of scratch gives the
// bits of the definition (tests/harness/left_fold.h), every time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "tests/exec/traffic.h"
#include "tests/harness/left_fold.h"

namespace axccl::exec {
namespace {

using harness::FoldOp;
using harness::LeftFold;

DataType TypeOf(ncclDataType_t type) {
  return type == axcclComplex64    ? DataType::kComplex64
         : type == axcclComplex128 ? DataType::kComplex128
                                   : static_cast<DataType>(type);
}

// One call of all ranks of an ensemble on the data of a fold.
class Reduction {
 public:
  Reduction(Ensemble* ensemble, const LeftFold& fold, const plan::Contract& contract)
      : ensemble_(ensemble), fold_(fold), contract_(contract), outputs_(static_cast<size_t>(contract.ranks)) {}

  Call CallOf(int rank, bool group_order) {
    const size_t size = fold_.element_bytes(), bytes = fold_.elements() * size;
    Call call;
    call.kind = contract_.kind, call.root = contract_.root, call.type = TypeOf(fold_.type());
    call.count = fold_.elements() / (contract_.kind == plan::Kind::kReduceScatter ? contract_.ranks : 1);
    call.combine = fold_.op() == FoldOp::kProd ? Combine::kProd : Combine::kSum;
    if (fold_.op() == FoldOp::kAvg) call.scaling = Scaling::kAverage;
    if (fold_.op() == FoldOp::kPreMulSum) call.scaling = Scaling::kPreMultiply, call.scalar_bytes = fold_.Scalar(rank);
    call.group_order = group_order;
    std::byte* input = ensemble_->Allocate(rank, bytes, 16, rank % 2 == 0);
    std::memcpy(ensemble_->AlwaysAccessible(rank, input), fold_.Input(rank).data(), bytes);
    outputs_[static_cast<size_t>(rank)] = ensemble_->Allocate(rank, call.count * size, 16, rank % 3 == 0);
    call.input = input, call.output = outputs_[static_cast<size_t>(rank)];
    return call;
  }

  // Returns the outputs, one after the other.
  std::vector<unsigned char> Run(bool group_order) {
    std::vector<std::unique_ptr<Operation>> operations;
    size_t bytes = 0;
    for (int r = 0; r < contract_.ranks; ++r) {
      const Call call = CallOf(r, group_order);
      bytes = call.count * fold_.element_bytes();
      operations.push_back(std::make_unique<Operation>(ensemble_->channel(r), call));
    }
    const auto done = [](const auto& operation) { return operation->finished(); };
    while (!std::all_of(operations.begin(), operations.end(), done)) {
      for (int r = 0; r < contract_.ranks; ++r) {
        Operation* operation = operations[static_cast<size_t>(r)].get();
        if (!operation->finished()) (void)ensemble_->Step(r, operation);
        EXPECT_EQ(operation->status().message(), "");
        if (!operation->status().ok()) return {};
      }
    }
    std::vector<unsigned char> all;
    for (int r = 0; r < contract_.ranks; ++r) {
      if (plan::OutputBlocks(contract_, r) == 0) continue;
      const std::byte* from = ensemble_->AlwaysAccessible(r, outputs_[static_cast<size_t>(r)]);
      all.insert(all.end(), reinterpret_cast<const unsigned char*>(from),
                 reinterpret_cast<const unsigned char*>(from) + bytes);
    }
    return all;
  }

 private:
  Ensemble* const ensemble_;
  const LeftFold& fold_;
  const plan::Contract contract_;
  std::vector<std::byte*> outputs_;
};

std::vector<int> Ascending(int n) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

plan::Contract AnyContract(int ranks, harness::Random* random) {
  constexpr plan::Kind kKinds[] = {plan::Kind::kAllReduce, plan::Kind::kReduce, plan::Kind::kReduceScatter};
  plan::Contract contract{kKinds[random->Below(3)], ranks, 0};
  if (contract.kind == plan::Kind::kReduce)
    contract.root = static_cast<int>(random->Below(static_cast<uint64_t>(ranks)));
  return contract;
}

// The expected contents of all outputs, one after the other.
std::vector<unsigned char> Wanted(const LeftFold& fold, const plan::Contract& contract) {
  const std::vector<unsigned char> one = fold.Result(Ascending(contract.ranks));
  std::vector<unsigned char> all;
  for (int r = 0; r < (contract.kind == plan::Kind::kAllReduce ? contract.ranks : 1); ++r)
    all.insert(all.end(), one.begin(), one.end());
  return all;
}

class OrderTest : public testing::TestWithParam<Layout> {};

TEST_P(OrderTest, SameBitsForEveryChoice) {
  harness::Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(GetParam())));
  size_t most_lanes = 0;
  for (int round = 0; round < 250 && !HasFailure(); ++round) {
    EnsembleOptions options;
    options.ranks = 1 + static_cast<int>(random.Below(8));
    options.layout = GetParam();
    options.lanes = 1 + static_cast<int>(random.Below(4));
    options.scratch_bytes = random.OneIn(2) ? 16384 : 262144;
    const plan::Contract contract = AnyContract(options.ranks, &random);
    const auto& algorithms = algo::Algorithms(contract.kind);
    if (!random.OneIn(5)) options.algorithms = Only(contract.kind, random.Pick(algorithms));
    const auto type = random.Pick(harness::kFoldTypes);
    const FoldOp op = random.Pick(harness::kFoldOps);
    if (!harness::HasFoldOp(type, op)) continue;
    const LeftFold fold(type, op, options.ranks, static_cast<size_t>(options.ranks) * (1 + random.Below(900)),
                        random.Next());
    SCOPED_TRACE(fold.Text() + ", " + plan::KindName(contract.kind) + " root " + std::to_string(contract.root) +
                 ", lanes " + std::to_string(options.lanes) + ", NCCL_ALGO=" + options.algorithms);
    Ensemble ensemble(options);
    ensemble.owner(0)->set_cache_bytes(random.OneIn(2) ? 1 : 1u << 30);  // streamed, or not
    Reduction reduction(&ensemble, fold, contract);
    const std::vector<unsigned char> wanted = Wanted(fold, contract);
    for (int run = 0; run < 2; ++run) EXPECT_TRUE(reduction.Run(true) == wanted) << "run " << run;
    auto prepared = ensemble.host(0)->plans().Prepare(reduction.CallOf(0, true), tune::Access::kMapped);
    ASSERT_TRUE(prepared.ok());
    most_lanes = std::max(most_lanes, prepared.value()->program->lanes.size());
  }
  EXPECT_EQ(most_lanes, 4u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OrderTest, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(LayoutName(info.param)); });

TEST(Order, OtherAlgorithmsGiveOtherBits) {
  for (const char* algorithm : {"ring", "rhd", "tree"}) {
    EnsembleOptions options;
    options.ranks = 4, options.algorithms = algorithm;
    const plan::Contract contract{plan::Kind::kAllReduce, 4, 0};
    for (const ncclDataType_t type : harness::kFoldTypes) {
      const LeftFold fold(type, FoldOp::kSum, 4, 1000, harness::Seed());
      Ensemble ensemble(options);
      Reduction reduction(&ensemble, fold, contract);
      EXPECT_FALSE(reduction.Run(false) == Wanted(fold, contract)) << algorithm << ": " << fold.Text();
      EXPECT_TRUE(reduction.Run(true) == Wanted(fold, contract)) << algorithm << ": " << fold.Text();
    }
  }
}

TEST(Order, ScaledContributionsGiveOtherBits) {
  EnsembleOptions options;
  options.ranks = 5, options.algorithms = "direct";
  const plan::Contract contract{plan::Kind::kAllReduce, 5, 0};
  for (const ncclDataType_t type : {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2}) {
    const LeftFold fold(type, FoldOp::kAvg, 5, 3000, harness::Seed());
    Ensemble ensemble(options);
    Reduction reduction(&ensemble, fold, contract);
    EXPECT_FALSE(reduction.Run(false) == Wanted(fold, contract)) << fold.Text();
  }
}

TEST(Order, MattersWhereRoundingDoes) {
  Call call;
  call.kind = plan::Kind::kAllReduce;
  const auto matters = [&](DataType type, Combine combine) {
    call.type = type, call.combine = combine;
    return call.OrderMatters();
  };
  EXPECT_TRUE(matters(DataType::kFloat32, Combine::kSum));
  EXPECT_TRUE(matters(DataType::kFloat8E4M3, Combine::kProd));
  EXPECT_TRUE(matters(DataType::kComplex128, Combine::kProd));
  EXPECT_TRUE(matters(OpaqueType(12), Combine::kCallback));
  EXPECT_FALSE(matters(DataType::kFloat32, Combine::kMax));
  EXPECT_FALSE(matters(DataType::kInt32, Combine::kSum));
  EXPECT_FALSE(matters(DataType::kBool, Combine::kSum));
  call.kind = plan::Kind::kAllGather;
  EXPECT_FALSE(matters(DataType::kFloat32, Combine::kSum));
}

}  // namespace
}  // namespace axccl::exec
