#include "src/tensor/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/random.h"
#include "tests/tensor/view_oracle.h"

namespace axccl::tensor {
namespace {

constexpr OperandName kOut = {"axcclTest", "output"};

std::string Replay() { return "AXCCL_TEST_SEED=" + std::to_string(harness::Seed()); }

void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string_view::npos) << word << " in: " << status.message();
}

TEST(CheckViewTest, RefusesInvalidTensors) {
  const int64_t big = int64_t{1} << 40;
  const struct {
    View view;
    std::vector<std::string> words;
  } table[] = {
      {{.data = Address(0), .shape = {.dims = 9}}, {"axcclTest", "output", "9 dimensions", "0 to 8"}},
      {{.data = Address(0), .shape = {.dims = -1}}, {"-1 dimensions"}},
      {MakeView({2, -3}, {1, 1}), {"size -3", "dimension 1"}},
      {MakeView({2}, {1}, 0, 0), {"0 bytes"}},
      {{.data = nullptr, .shape = {1, {2}}, .strides = {1}}, {"no data", "[2]"}},
      {MakeView({big, big}, {1, big}), {"2^63 - 1 bytes", "[1099511627776, 1099511627776]"}},
      {MakeView({2}, {INT64_MAX}), {"2^63 - 1 bytes"}},
      {MakeView({2}, {INT64_MIN}), {"2^63 - 1 bytes"}},
      {MakeView({3, 3}, {INT64_MAX / 3, INT64_MAX / 3}), {"2^63 - 1 bytes"}},
      {MakeView({2}, {INT64_MAX / 4}, 0, 8), {"2^63 - 1 bytes"}},
      {MakeView({2}, {-(int64_t{1} << 62)}), {"address space"}},
      {MakeView({4, 3}, {1, 0}), {"overlap", "[4, 3]", "[1, 0]", "stride 0"}},
      {MakeView({4, 3}, {1, 3}), {"overlap", "[4, 3]", "[1, 3]"}},
      {MakeView({2, 2}, {1, -1}), {"overlap"}},
  };
  for (const auto& c : table) ExpectRefused(CheckView(kOut, Role::kOutput, c.view), c.words);
  // The same numbers in cases where they are harmless: an empty view, dimensions of size 1, an input.
  EXPECT_TRUE(CheckView(kOut, Role::kOutput, MakeView({0, big, big}, {0, 0, INT64_MIN})).ok());
  EXPECT_TRUE(CheckView(kOut, Role::kOutput, {.data = nullptr, .shape = {1, {0}}}).ok());
  EXPECT_TRUE(CheckView(kOut, Role::kOutput, MakeView({1, 1, 4}, {0, INT64_MIN, -1})).ok());
  EXPECT_TRUE(CheckView(kOut, Role::kOutput, MakeView({}, {})).ok());
  EXPECT_TRUE(CheckView(kOut, Role::kInput, MakeView({4, 3}, {1, 0})).ok());
  EXPECT_TRUE(CheckView(kOut, Role::kInput, MakeView({4, 3}, {1, 1})).ok());
  ExpectRefused(CheckView(kOut, Role::kInput, MakeView({big, big}, {0, 0})), {"2^63 - 1 bytes"});
}

TEST(CheckViewTest, AcceptsEveryCutOfADenseAllocation) {
  harness::Random random(harness::Seed());
  for (int round = 0; round < 2000; ++round) {
    const View view = RandomCut(&random, 6, 4);
    const Status status = CheckView(kOut, Role::kOutput, view);
    ASSERT_TRUE(status.ok()) << status.message() << ", " << Replay();
  }
}

// Compares random strides, most of which no allocation has, with a table of the bytes that each element touches.
TEST(CheckViewTest, OverlapWithinAViewIsExact) {
  harness::Random random(harness::Seed() + 1);
  int twice = 0, once = 0;
  for (int round = 0; round < 4000; ++round) {
    const View view = RandomView(&random, 4, 5, 40);
    const std::vector<int64_t> offsets = Offsets(view);
    const bool distinct = std::set<int64_t>(offsets.begin(), offsets.end()).size() == offsets.size();
    ++(distinct ? once : twice);
    ASSERT_EQ(CheckView(kOut, Role::kOutput, view).ok(), distinct)
        << Text(view.shape) << " strides "
        << Text({view.shape.dims, {view.strides[0], view.strides[1], view.strides[2], view.strides[3]}}) << ", "
        << Replay();
  }
  EXPECT_GT(once, 400);
  EXPECT_GT(twice, 400);
}

// Coprime strides of many dimensions: the work is limited, and an inexact answer is a refusal.
TEST(CheckViewTest, InterlockedStridesTakeLimitedWork) {
  const int64_t primes[] = {1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121};
  View view = MakeView({}, {});
  view.shape.dims = 8;
  for (int d = 0; d < 8; ++d) view.shape.sizes[d] = 90, view.strides[d] = primes[d];
  ExpectRefused(CheckView(kOut, Role::kOutput, view), {"overlap"});
}

TEST(ByteExtentTest, ContainsEveryElementAndNoMore) {
  harness::Random random(harness::Seed() + 2);
  for (int round = 0; round < 2000; ++round) {
    const View view = RandomView(&random, 4, 5, 40);
    const std::vector<int64_t> offsets = Offsets(view);
    const Extent extent = ByteExtent(view);
    if (offsets.empty()) {
      ASSERT_TRUE(extent.begin == 0 && extent.end == 0);
      continue;
    }
    ASSERT_EQ(extent.begin, *std::min_element(offsets.begin(), offsets.end())) << Replay();
    ASSERT_EQ(extent.end, *std::max_element(offsets.begin(), offsets.end()) + view.element_size) << Replay();
  }
}

TEST(OverlapTest, DistinguishesInterleavedViews) {
  // Columns of one matrix, the rows between them, a reversed neighbour.
  EXPECT_FALSE(Overlap(MakeView({4, 2}, {6, 1}), MakeView({4, 2}, {6, 1}, 2)));
  EXPECT_FALSE(Overlap(MakeView({4, 2}, {6, 1}), MakeView({4, 4}, {6, 1}, 2)));
  EXPECT_TRUE(Overlap(MakeView({4, 3}, {6, 1}), MakeView({4, 4}, {6, 1}, 2)));
  EXPECT_FALSE(Overlap(MakeView({1000000, 500}, {1000, 1}), MakeView({1000000, 500}, {1000, 1}, 500)));
  EXPECT_TRUE(Overlap(MakeView({1000000, 501}, {1000, 1}), MakeView({1000000, 500}, {1000, 1}, 500)));
  EXPECT_FALSE(Overlap(MakeView({4}, {-1}, 3), MakeView({4}, {1}, 4)));
  EXPECT_TRUE(Overlap(MakeView({4}, {-1}, 4), MakeView({4}, {1}, 4)));
  EXPECT_FALSE(Overlap(MakeView({0}, {1}), MakeView({0}, {1})));
  // Elements of different sizes, and views that are misaligned to each other.
  EXPECT_TRUE(Overlap(MakeView({}, {}, 0, 8), MakeView({}, {}, 7)));
  EXPECT_FALSE(Overlap(MakeView({}, {}, 0, 8), MakeView({}, {}, 8)));
}

TEST(OverlapTest, RandomViewsAgreeWithATableOfBytes) {
  harness::Random random(harness::Seed() + 3);
  int apart = 0, close = 0;
  for (int round = 0; round < 4000; ++round) {
    const View a = RandomView(&random, 3, 4, 30);
    View b = round % 2 == 0 ? RandomView(&random, 3, 4, 30) : a;
    b.data = Address(static_cast<int64_t>(random.Below(120)) - 60);
    std::set<int64_t> bytes;
    bool overlap = false;
    const auto each_byte = [](const View& view, auto use) {
      const int64_t base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data));
      for (int64_t offset : Offsets(view)) {
        for (uint32_t i = 0; i < view.element_size; ++i) use(base + offset + i);
      }
    };
    each_byte(a, [&](int64_t byte) { bytes.insert(byte); });
    each_byte(b, [&](int64_t byte) { overlap = overlap || bytes.contains(byte); });
    ++(overlap ? close : apart);
    ASSERT_EQ(Overlap(a, b), overlap) << Replay();
    ASSERT_EQ(Overlap(b, a), overlap) << Replay();
  }
  EXPECT_GT(apart, 400);
  EXPECT_GT(close, 400);
}

TEST(CollapseTest, KeepsOnlyDimensionsThatAreNotContiguous) {
  const struct {
    std::vector<int64_t> sizes, strides, other;
    int dims;
  } table[] = {
      {{2, 3, 4}, {12, 4, 1}, {12, 4, 1}, 1},
      {{2, 3, 4}, {24, 8, 2}, {12, 4, 1}, 1},
      {{2, 3, 4}, {24, 4, 1}, {12, 4, 1}, 2},
      {{2, 3, 4}, {12, 4, 1}, {20, 5, 1}, 3},
      {{2, 1, 4}, {4, 9, 1}, {4, 7, 1}, 1},
      {{1, 1}, {5, 5}, {0, 3}, 0},
      {{2, 3}, {0, 0}, {3, 1}, 1},
      {{2, 3}, {0, 0}, {0, 0}, 1},
      {{2, 3}, {-3, -1}, {3, 1}, 1},
      {{3, 0, 2}, {1, 1, 1}, {2, 2, 1}, 1},
      {{}, {}, {}, 0},
  };
  for (const auto& c : table) {
    View a = MakeView(c.sizes, c.strides), b = MakeView(c.sizes, c.other);
    Shape shape = a.shape;
    int64_t* const strides[] = {a.strides, b.strides};
    Collapse(&shape, strides);
    EXPECT_EQ(shape.dims, c.dims) << Text(a.shape);
    EXPECT_EQ(Elements(shape), Elements(a.shape));
  }
}

TEST(CollapseTest, KeepsTheOrderOfTheElements) {
  harness::Random random(harness::Seed() + 4);
  for (int round = 0; round < 2000; ++round) {
    View a = RandomCut(&random, 5, 3);
    View b = DenseView(Address(0), 1, a.shape);
    const std::vector<int64_t> before_a = Offsets(a), before_b = Offsets(b);
    Shape shape = a.shape;
    int64_t* const strides[] = {a.strides, b.strides};
    Collapse(&shape, strides);
    ASSERT_LE(shape.dims, std::max(a.shape.dims, 1));
    a.shape = b.shape = shape;
    ASSERT_EQ(Offsets(a), before_a) << Replay();
    ASSERT_EQ(Offsets(b), before_b) << Replay();
  }
}

TEST(NormaliseDimTest, CountsFromEitherEnd) {
  const NegativeDims wrap = NegativeDims::kFromEnd;
  for (int dim = 0; dim < 3; ++dim) {
    EXPECT_EQ(NormaliseDim(kOut, "dim", dim, 3, wrap).value(), dim);
    EXPECT_EQ(NormaliseDim(kOut, "dim", dim - 3, 3, wrap).value(), dim);
    EXPECT_EQ(NormaliseDim(kOut, "dim", dim, 3, NegativeDims::kRefuse).value(), dim);
    EXPECT_FALSE(NormaliseDim(kOut, "dim", dim - 3, 3, NegativeDims::kRefuse).ok());
  }
  for (int64_t dim : {int64_t{3}, int64_t{-4}, INT64_MIN, INT64_MAX})
    ExpectRefused(NormaliseDim(kOut, "split_dimension", dim, 3, wrap, " [C]").status(),
                  {"axcclTest", "split_dimension is " + std::to_string(dim), "output has 3 dim", "-3..2", "[C]"});
  ExpectRefused(NormaliseDim({"f", "input", 2}, "dim", 0, 0, wrap).status(), {"f: dim is 0", "input 2", "no dim"});
}

TEST(DenseViewTest, IsRowMajor) {
  const View view = DenseView(Address(0), 4, {3, {2, 3, 4}});
  EXPECT_EQ(std::vector<int64_t>(view.strides, view.strides + 3), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(DenseView(Address(0), 4, {2, {0, 5}}).strides[1], 1);
  EXPECT_EQ(Text(view.shape), "[2, 3, 4]");
  EXPECT_EQ(Text(Shape()), "[]");
}

// For example, the strides of a peer.
TEST(FindByteExtent, ReportsExtentsThatDoNotFit) {
  Extent extent;
  EXPECT_TRUE(FindByteExtent(MakeView({4, 2}, {-3, 1}, 0, 4), &extent));
  EXPECT_EQ(extent.begin, -36);
  EXPECT_EQ(extent.end, 8);
  for (const int64_t stride : {INT64_MAX, INT64_MIN, int64_t{1} << 60, -(int64_t{1} << 60)})
    EXPECT_FALSE(FindByteExtent(MakeView({4, 2}, {stride, 1}, 0, 4), &extent)) << stride;
  EXPECT_FALSE(FindByteExtent(MakeView({INT64_MAX, 2}, {0, 0}), &extent));
  EXPECT_TRUE(FindByteExtent(MakeView({INT64_MAX, 0}, {INT64_MAX, 1}), &extent));
  EXPECT_EQ(extent.end, 0);
}

}  // namespace
}  // namespace axccl::tensor
