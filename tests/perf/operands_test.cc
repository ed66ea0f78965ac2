// Expected data of calls on views, compared with a collective done element by element, and with altered elements.

#include "perf/common/operands.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "perf/common/types.h"

namespace axccl::perf {
namespace {

constexpr int kRanks = 2;

struct Case {
  const char* name;
  ViewKind kind;
  ViewOptions options;
};

ViewOptions Options(std::vector<Shape> shapes, int split, int concat, std::vector<int64_t> strides = {},
                    std::vector<int64_t> out_strides = {}) {
  ViewOptions o;
  o.given = true;
  o.shapes = std::move(shapes);
  o.is_list = o.shapes.size() > 1;
  o.split_dim = split;
  o.concat_dim = concat;
  o.strides = std::move(strides);
  o.out_strides = std::move(out_strides);
  return o;
}

// An element of a view by its index.
int32_t* At(const axcclView_t& view, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
  return static_cast<int32_t*>(view.data) + offset;
}

bool Next(const axcclView_t& view, std::vector<int64_t>* index) {
  for (size_t d = index->size(); d-- > 0;) {
    if (++(*index)[d] < view.sizes[d]) return true;
    (*index)[d] = 0;
  }
  return false;
}

class World {
 public:
  World(const Case& c, bool in_place) : case_(c) {
    for (int r = 0; r < kRanks; ++r) {
      operands_.push_back(std::make_unique<Operands>(c.kind, c.options, c.options.shapes, kRanks, r, in_place));
      Operands& o = *operands_.back();
      send_.emplace_back(std::max(o.send_span(), o.recv_span()), 0);
      recv_.emplace_back(std::max(o.send_span(), o.recv_span()), 0);
      char* recv = reinterpret_cast<char*>(recv_.back().data());
      o.Aim(in_place ? recv : reinterpret_cast<char*>(send_.back().data()), recv, ncclInt32);
      o.Fill({ncclInt32, kMove, 5, kRanks, r});
    }
  }

  // By the definition: parts of the inputs go to their places one by one. All inputs are read before outputs are
  // written, because in place they are the same memory.
  void Run(int root) {
    const bool splits = case_.kind == ViewKind::kSplit || case_.kind == ViewKind::kSplitConcat;
    const bool concats = case_.kind == ViewKind::kConcat || case_.kind == ViewKind::kSplitConcat;
    std::vector<std::pair<int32_t*, int32_t>> writes;
    for (int to = 0; to < kRanks; ++to) {
      for (int from = 0; from < kRanks; ++from) {
        if (!concats && from != root) continue;
        for (int k = 0; k < operands_[0]->size(); ++k) {
          const axcclView_t& in = operands_[static_cast<size_t>(from)]->in()[k];
          const axcclView_t& out = operands_[static_cast<size_t>(to)]->out()[k];
          size_t split = static_cast<size_t>(case_.options.SplitDim());
          size_t concat = static_cast<size_t>(case_.options.ConcatDim());
          int64_t part = splits ? in.sizes[split] / kRanks : 0;
          std::vector<int64_t> index(static_cast<size_t>(in.num_dims), 0);
          do {
            std::vector<int64_t> target = index;
            if (splits) target[split] -= to * part;
            if (splits && (target[split] < 0 || target[split] >= part)) continue;
            if (concats) target[concat] += from * (out.sizes[concat] / kRanks);
            writes.emplace_back(At(out, target), *At(in, index));
          } while (Next(in, &index));
        }
      }
    }
    for (auto& [at, value] : writes) *at = value;
  }

  uint64_t Wrong(int root) const {
    uint64_t wrong = 0;
    for (const auto& o : operands_) wrong += o->CountWrongOutputs({ncclInt32, kMove, 5, kRanks, 0}, root);
    return wrong;
  }

  Operands& operands(size_t rank) { return *operands_[rank]; }

 private:
  Case case_;
  std::vector<std::unique_ptr<Operands>> operands_;
  std::vector<std::vector<int32_t>> send_;
  std::vector<std::vector<int32_t>> recv_;
};

class OperandsOf : public testing::TestWithParam<Case> {};

TEST_P(OperandsOf, AcceptTheCollectiveAndFindEverySpoiltElement) {
  const Case& c = GetParam();
  const bool may_be_in_place = c.options.strides.empty() && c.options.out_strides.empty() &&
                               c.kind != ViewKind::kSplitConcat && c.kind != ViewKind::kSame;
  for (bool in_place : {false, true}) {
    if (in_place && !may_be_in_place) continue;
    World world(c, in_place);
    const int root = 1;
    EXPECT_GT(world.Wrong(root), 0u);
    world.Run(root);
    EXPECT_EQ(world.Wrong(root), 0u);
    for (int k = 0; k < world.operands(0).size(); ++k) {
      const axcclView_t& out = world.operands(0).out()[k];
      std::vector<int64_t> index(static_cast<size_t>(out.num_dims), 0);
      do {
        *At(out, index) ^= 1;
        ASSERT_EQ(world.Wrong(root), 1u);
        *At(out, index) ^= 1;
      } while (Next(out, &index));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Perf, OperandsOf,
    testing::Values(Case{"broadcast", ViewKind::kSame, Options({{3, 4}}, 0, 0)},
                    Case{"broadcast_strided", ViewKind::kSame, Options({{3, 4}}, 0, 0, {0, -1}, {1, 5})},
                    Case{"gather_0", ViewKind::kConcat, Options({{3, 4}}, 0, 0)},
                    Case{"gather_1", ViewKind::kConcat, Options({{3, 4}}, 0, 1)},
                    Case{"gather_strided", ViewKind::kConcat, Options({{3, 4}}, 0, 1, {1, 3}, {-20, 2})},
                    Case{"scatter_1", ViewKind::kSplit, Options({{3, 4, 2}}, 1, 0)},
                    Case{"scatter_strided", ViewKind::kSplit, Options({{3, 4}}, 1, 0, {-1, 7}, {1, 3})},
                    Case{"alltoall_same", ViewKind::kSplitConcat, Options({{4, 3}}, 0, 0)},
                    Case{"alltoall_21", ViewKind::kSplitConcat, Options({{2, 3, 4, 2}}, 2, 1)},
                    Case{"list", ViewKind::kConcat, Options({{3, 4}, {2, 2, 2}, {1, 5}}, 0, 1)}),
    [](const auto& info) { return info.param.name; });

TEST(Operands, CountAsNcclTestsDoes) {
  ViewOptions o = Options({{4, 6}}, 0, 1);
  auto counts = [&](ViewKind kind) { return Operands(kind, o, o.shapes, kRanks, 0, false).counts(); };
  EXPECT_EQ(counts(ViewKind::kConcat).recv, 48u);
  EXPECT_EQ(counts(ViewKind::kConcat).argument, 24u);
  EXPECT_EQ(counts(ViewKind::kSplit).recv, 12u);
  EXPECT_EQ(counts(ViewKind::kSplit).argument, 12u);
  EXPECT_EQ(counts(ViewKind::kSplitConcat).argument, 12u);
  EXPECT_EQ(counts(ViewKind::kSame).argument, 24u);
}

TEST(Operands, ReductionsExpectTheReducedData) {
  ViewOptions o = Options({{4, 6}}, 1, 0);
  Operands operands(ViewKind::kSplit, o, o.shapes, kRanks, 1, false);
  std::vector<float> in(24);
  std::vector<float> out(12);
  operands.Aim(reinterpret_cast<char*>(in.data()), reinterpret_cast<char*>(out.data()), ncclFloat32);
  for (int r = 0; r < kRanks; ++r) {
    operands.Fill({ncclFloat32, kSum, 3, kRanks, r});
    for (size_t i = 0; i < 12; ++i) out[i] += in[i / 3 * 6 + 3 + i % 3];
  }
  EXPECT_EQ(operands.CountWrongOutputs({ncclFloat32, kSum, 3, kRanks, 0}, -1), 0u);
  out[7] += 1;
  EXPECT_EQ(operands.CountWrongOutputs({ncclFloat32, kSum, 3, kRanks, 0}, -1), 1u);
}

}  // namespace
}  // namespace axccl::perf
