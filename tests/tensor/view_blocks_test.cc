// The blocks of collectives in views (src/tensor/view.h), compared with each collective's definition by coordinates.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/tensor/view.h"
#include "tests/tensor/block_simulator.h"
#include "tests/tensor/view_oracle.h"

namespace axccl::tensor {
namespace {

using plan::HasRoot;
using plan::KindName;
using plan::kNumKinds;
using Coordinates = std::vector<int64_t>;

Coordinates CoordinatesOf(const Shape& shape, int64_t index) {
  Coordinates x(static_cast<size_t>(shape.dims));
  for (size_t d = x.size(); d-- > 0;) {
    x[d] = index % shape.sizes[d];
    index /= shape.sizes[d];
  }
  return x;
}

int64_t At(const Tensor<int64_t>& tensor, const Coordinates& x) {
  int64_t index = 0;
  for (size_t d = 0; d < x.size(); ++d) index = index * tensor.shape.sizes[d] + x[d];
  return tensor.data.at(static_cast<size_t>(index));
}

// The element of rank r's output at x: StableHLO specification, the operations' semantics (concatenation of parts).
int64_t Expected(const Collective& c, int root, int r, const std::vector<Tensor<int64_t>>& inputs, Coordinates x) {
  const Shape& shape = inputs[0].shape;
  const size_t dim = static_cast<size_t>(c.dim), concat = static_cast<size_t>(c.concat_dim);
  const auto sum = [&] {
    int64_t total = 0;
    for (const auto& input : inputs) total += At(input, x);
    return total;
  };
  int64_t source = root;
  switch (c.kind) {
    case Kind::kAllGather:
    case Kind::kGather:
      source = x[dim] / shape.sizes[dim];
      x[dim] %= shape.sizes[dim];
      break;
    case Kind::kReduceScatter:
      x[dim] += r * (shape.sizes[dim] / c.group_size);
      return sum();
    case Kind::kScatter:
      x[dim] += r * (shape.sizes[dim] / c.group_size);
      break;
    case Kind::kAllToAll: {
      const int64_t part = concat == dim ? shape.sizes[concat] / c.group_size : shape.sizes[concat];
      source = x[concat] / part;
      x[concat] %= part;
      x[dim] += r * (shape.sizes[dim] / c.group_size);
      break;
    }
    case Kind::kAllReduce:
    case Kind::kReduce:
      return sum();
    case Kind::kSendRecv:
      source = 0;
      break;
    default:
      break;
  }
  return At(inputs[static_cast<size_t>(source)], x);
}

void CheckCase(const Collective& c, int root, const Shape& shape, harness::Random* random) {
  std::vector<Tensor<int64_t>> inputs;
  for (int r = 0; r < c.group_size; ++r) {
    inputs.push_back({shape, {}});
    for (int64_t i = 0; i < Elements(shape); ++i) inputs.back().data.push_back(r * 1000000 + i);
  }
  const auto sum = [](const int64_t& a, const int64_t& b) { return a + b; };
  const std::vector<Tensor<int64_t>> outputs = Simulate<int64_t>(c, root, inputs, sum, random);
  Shape out_shape;
  ASSERT_TRUE(OutputShape(c, shape, &out_shape).ok());
  const Contract contract = {c.kind, c.group_size, root};
  for (int r = 0; r < c.group_size; ++r) {
    if (OutputBlocks(contract, r) == 0) continue;
    const Tensor<int64_t>& output = outputs[static_cast<size_t>(r)];
    ASSERT_EQ(output.shape, out_shape);
    ASSERT_EQ(static_cast<int64_t>(output.data.size()), Elements(out_shape));
    for (int64_t i = 0; i < Elements(out_shape); ++i) {
      ASSERT_EQ(output.data[static_cast<size_t>(i)], Expected(c, root, r, inputs, CoordinatesOf(out_shape, i)))
          << KindName(c.kind) << " of " << Text(shape) << " among " << c.group_size << ", dim " << c.dim << ", concat "
          << c.concat_dim << ", rank " << r << ", element " << i << ", AXCCL_TEST_SEED=" << harness::Seed();
    }
  }
}

TEST(BlocksTest, MoveEveryElementWhereTheDefinitionSays) {
  harness::Random random(harness::Seed());
  for (int round = 0; round < 3000; ++round) {
    Collective c;
    c.kind = static_cast<Kind>(random.Below(kNumKinds - 1));  // all except the barrier
    c.group_size = c.kind == Kind::kSendRecv ? 2 : 1 + static_cast<int>(random.Below(5));
    const bool splits = c.kind == Kind::kReduceScatter || c.kind == Kind::kScatter || c.kind == Kind::kAllToAll;
    const bool concats = c.kind == Kind::kAllGather || c.kind == Kind::kGather || c.kind == Kind::kAllToAll;
    Shape shape = RandomShape(&random, 4, 4);
    if (shape.dims == 0 && (splits || concats)) shape = {1, {3}};
    if (shape.dims > 0) {
      c.dim = static_cast<int64_t>(random.Below(static_cast<uint64_t>(shape.dims)));
      c.concat_dim = static_cast<int64_t>(random.Below(static_cast<uint64_t>(shape.dims)));
    }
    if (splits) shape.sizes[c.dim] *= c.group_size;
    const int root = HasRoot(c.kind) ? static_cast<int>(random.Below(static_cast<uint64_t>(c.group_size))) : 0;
    CheckCase(c, root, shape, &random);
    if (HasFatalFailure()) return;
  }
}

// 8 dimensions, the maximum.
TEST(BlocksTest, WorkInTheLastDimension) {
  harness::Random random(harness::Seed() + 1);
  const Shape shape = {8, {2, 1, 2, 1, 2, 1, 2, 2}};
  for (int64_t concat = 0; concat < 8; ++concat)
    CheckCase({.kind = Kind::kAllToAll, .group_size = 2, .dim = 7, .concat_dim = concat}, 0, shape, &random);
  CheckCase({.kind = Kind::kAllGather, .group_size = 3, .dim = 7}, 0, shape, &random);
}

TEST(BlocksTest, StridesAreThoseOfTheView) {
  // Rows of 5 in an allocation of rows of 7; columns first on the other side.
  const View input = MakeView({6, 5}, {7, 1}), output = MakeView({3, 10}, {1, 3});
  Blocks blocks;
  const Collective c = {.kind = Kind::kAllToAll, .group_size = 2, .dim = -2, .concat_dim = -1};
  ASSERT_TRUE(FindBlocks(c, &input, &output, &blocks).ok());
  EXPECT_EQ(blocks.shape, (Shape{2, {3, 5}}));
  EXPECT_EQ(blocks.elements, 15);
  EXPECT_EQ(blocks.input_stride, 3 * 7);
  EXPECT_EQ(blocks.output_stride, 5 * 3);
  // A single block has no stride, and neither do blocks without elements, whatever the views contain.
  const View one = MakeView({1, 5}, {INT64_MIN, 1}), none = MakeView({0, 2}, {INT64_MAX, INT64_MAX});
  ASSERT_TRUE(FindBlocks({.kind = Kind::kReduceScatter, .group_size = 1}, &one, &one, &blocks).ok());
  EXPECT_EQ(blocks.input_stride, 0);
  const View half = MakeView({0, 1}, {1, 1});
  ASSERT_TRUE(FindBlocks({.kind = Kind::kReduceScatter, .group_size = 2, .dim = 1}, &none, &half, &blocks).ok());
  EXPECT_EQ(blocks.input_stride, 0);
  EXPECT_EQ(blocks.elements, 0);
}

void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok());
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string_view::npos) << word << " in: " << status.message();
}

// After ops_stablehlo.mlir of StableHLO; the constraint numbers are those of its specification.
TEST(BlocksTest, RefusalsNameTheDimensionAndBothSizes) {
  const NegativeDims strict = NegativeDims::kRefuse;
  const struct {
    Collective c;
    std::vector<int64_t> input, output;
    std::vector<std::string> words;
  } table[] = {
      {{.call = "axcclAllGather", .operand = 3, .kind = Kind::kAllGather, .group_size = 4, .dim = 1},
       {128, 32},
       {128, 100},
       {"axcclAllGather: output 3 has size 100 along dimension 1", "128 = 32 of input 3 x group size 4", "(C6)"}},
      {{.kind = Kind::kAllGather, .group_size = 4, .dim = 1}, {8, 2}, {4, 8}, {"4 along dimension 0", "8 of input"}},
      {{.kind = Kind::kAllGather, .group_size = 4, .dim = 1}, {8, 2, 32}, {8, 8}, {"has 2 dim", "has 3 (", "(C6)"}},
      {{.kind = Kind::kAllGather, .dim = 2}, {8, 2}, {8, 8}, {"all_gather_dim is 2", "2 dimensions", "(C1)"}},
      {{.kind = Kind::kAllGather, .dim = -1, .negative_dims = strict}, {8}, {8}, {"is -1", "0..0", "(C1)"}},
      {{.kind = Kind::kAllGather, .dim = 0}, {}, {}, {"all_gather_dim", "no dimensions", "(C1)"}},
      {{.kind = Kind::kAllGather, .group_size = 3}, {INT64_MAX / 2, 0}, {1, 0}, {"concatenates 3 parts", "2^63"}},
      {{.kind = Kind::kReduceScatter, .group_size = 4, .dim = 1}, {4, 18}, {4, 4}, {"18", "group size 4", "(C1)"}},
      {{.kind = Kind::kReduceScatter, .group_size = 4, .dim = 1}, {4, 16}, {4, 5}, {"expected 4 = 16", "/", "(C8)"}},
      {{.kind = Kind::kReduceScatter, .dim = 4}, {4, 16}, {4, 16}, {"scatter_dimension is 4", "(C2)"}},
      {{.kind = Kind::kAllToAll, .group_size = 5, .dim = 1}, {4, 16}, {16, 4}, {"split_dimension 1", "16", "(C2)"}},
      {{.kind = Kind::kAllToAll, .dim = 2}, {4, 16}, {16, 4}, {"split_dimension is 2", "(C1)"}},
      {{.kind = Kind::kAllToAll, .concat_dim = 2}, {4, 16}, {16, 4}, {"concat_dimension is 2", "(C3)"}},
      {{.kind = Kind::kAllToAll, .group_size = 2},
       {4, 2},
       {8, 2},
       {"8 along dimension 0, expected 4 = 4 of input; give it sizes [4, 2]", "(C9)"}},
      {{.kind = Kind::kAllReduce}, {4}, {5}, {"output has size 5", "expected 4", "all_reduce (C6)"}},
      {{.kind = Kind::kSendRecv}, {4}, {5}, {"collective_permute (C5)"}},
      {{.kind = Kind::kGather, .group_size = 2}, {4}, {4}, {"gather: output has size 4", "expected 8"}},
      {{.kind = Kind::kBarrier}, {}, {}, {"barrier"}},
      {{.kind = Kind::kAllReduce, .group_size = 0}, {}, {}, {"group size is 0"}},
  };
  for (const auto& c : table) {
    const View input = MakeView(c.input, std::vector<int64_t>(c.input.size(), 1));
    const View output = MakeView(c.output, std::vector<int64_t>(c.output.size(), 1));
    Blocks blocks;
    ExpectRefused(FindBlocks(c.c, &input, &output, &blocks), c.words);
  }
}

TEST(BlocksTest, RefuseMissingOperandsAndElementsOfOtherSizes) {
  const View view = MakeView({4}, {1}), wide = MakeView({4}, {1}, 0, 8);
  Blocks blocks;
  for (Kind kind :
       {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kReduce, Kind::kGather})
    ExpectRefused(FindBlocks({.kind = kind}, nullptr, &view, &blocks), {KindName(kind), "input is missing"});
  for (Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kScatter})
    ExpectRefused(FindBlocks({.kind = kind}, &view, nullptr, &blocks), {KindName(kind), "output is missing"});
  for (Kind kind : {Kind::kBroadcast, Kind::kSendRecv}) {
    ExpectRefused(FindBlocks({.kind = kind}, nullptr, nullptr, &blocks), {"input or output is missing"});
    ExpectRefused(FindBlocks({.kind = kind}, &view, &wide, &blocks), {"8 bytes", "of 1", "types"});
  }
  // A reduction may widen; the callers, which know the types, check whether it does so correctly.
  EXPECT_TRUE(FindBlocks({.kind = Kind::kAllReduce}, &view, &wide, &blocks).ok());
}

}  // namespace
}  // namespace axccl::tensor
