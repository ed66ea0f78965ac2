#include "src/base/free_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "tests/harness/random.h"

namespace axccl {
namespace {

// A free list, and the ranges taken from it, by offset.
class Owned {
 public:
  Owned(uint64_t begin, uint64_t end) : list_(begin, end) {}
  std::optional<uint64_t> Take(uint64_t bytes, uint64_t alignment) {
    FreeList::Range range = list_.Take(bytes, alignment);
    if (!range) return std::nullopt;
    EXPECT_EQ(range.mapped(), bytes);
    return taken_.insert(std::move(range)).position->first;
  }
  void Give(uint64_t offset) { list_.Give(taken_.extract(offset)); }
  uint64_t free_bytes() const { return list_.free_bytes(); }
  uint64_t Largest() const { return list_.Largest(); }
  size_t ranges() const { return list_.ranges(); }

 private:
  FreeList list_;
  FreeList::Ranges taken_;
};

TEST(FreeListTest, TakesTheLowestRangeThatFits) {
  Owned list(100, 1000);
  EXPECT_EQ(list.Take(100, 1), 100u);
  EXPECT_EQ(list.Take(64, 64), 256u);  // 200..255 stay free
  EXPECT_EQ(list.Take(56, 8), 200u);
  EXPECT_EQ(list.Take(680, 8), 320u);  // up to the end
  EXPECT_EQ(list.free_bytes(), 0u);
  EXPECT_EQ(list.ranges(), 0u);
  EXPECT_FALSE(list.Take(1, 1).has_value());
}

TEST(FreeListTest, AlignmentBeyondTheEndDoesNotFit) {
  Owned list(4096, 8192);
  EXPECT_FALSE(list.Take(4096, 16384).has_value());
  EXPECT_FALSE(list.Take(4097, 1).has_value());
  EXPECT_EQ(list.Take(4096, 4096), 4096u);
}

TEST(FreeListTest, NeighboursJoinInEveryOrder) {
  std::array<int, 4> order{0, 1, 2, 3};
  do {
    Owned list(0, 400);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(list.Take(100, 4), static_cast<uint64_t>(100 * i));
    for (const int i : order) list.Give(static_cast<uint64_t>(100 * i));
    EXPECT_EQ(list.ranges(), 1u);
    EXPECT_EQ(list.Largest(), 400u);
    EXPECT_EQ(list.Take(400, 1), 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

// The blocks of communicators: each leaves a gap in front of it that is too small for the next. A search that visited
// all gaps would take minutes here.
TEST(FreeListTest, GapsThatAreTooSmallCostNothing) {
  constexpr uint64_t kHuge = 2u << 20, kBytes = kHuge + 4096;
  constexpr size_t kBlocks = 200'000;
  Owned list(4096, uint64_t{1} << 48);
  for (size_t i = 0; i < kBlocks; ++i) ASSERT_EQ(list.Take(kBytes, kHuge), (2 * i + 1) * kHuge);
  EXPECT_EQ(list.ranges(), kBlocks + 1);
  EXPECT_EQ(list.Take(4096, 4096), 4096u);
  list.Give(kHuge);
  EXPECT_EQ(list.Take(kBytes, kHuge), kHuge);
  list.Give(7 * kHuge);
  list.Give(3 * kHuge);
  EXPECT_EQ(list.Take(kBytes, kHuge), 3 * kHuge);
  EXPECT_EQ(list.Take(kBytes, kHuge), 7 * kHuge);
  EXPECT_EQ(list.Take(kBytes, kHuge), (2 * kBlocks + 1) * kHuge);
}

// Compares the list with a map of single units.
TEST(FreeListTest, AgreesWithAModel) {
  const uint64_t seed = harness::Seed();
  SCOPED_TRACE(testing::Message() << "AXCCL_TEST_SEED=" << seed);
  harness::Random random(seed);
  constexpr uint64_t kUnits = 512;
  Owned list(0, kUnits);
  std::vector<bool> taken(kUnits, false);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  for (int step = 0; step < 20000; ++step) {
    if (!live.empty() && random.OneIn(2)) {
      std::swap(live[random.Below(live.size())], live.back());
      const auto [offset, bytes] = live.back();
      live.pop_back();
      list.Give(offset);
      std::fill_n(taken.begin() + static_cast<ptrdiff_t>(offset), bytes, false);
    } else {
      const uint64_t bytes = 1 + random.Below(40), alignment = uint64_t{1} << random.Below(6);
      uint64_t expected = 0;
      auto blocked = [&](uint64_t at) {
        return std::find(taken.begin() + static_cast<ptrdiff_t>(at), taken.begin() + static_cast<ptrdiff_t>(at + bytes),
                         true) != taken.begin() + static_cast<ptrdiff_t>(at + bytes);
      };
      while (expected + bytes <= kUnits && blocked(expected)) expected += alignment;
      const auto offset = list.Take(bytes, alignment);
      ASSERT_EQ(offset.has_value(), expected + bytes <= kUnits) << "step " << step;
      if (!offset) continue;
      ASSERT_EQ(*offset, expected) << "step " << step;
      std::fill_n(taken.begin() + static_cast<ptrdiff_t>(expected), bytes, true);
      live.emplace_back(expected, bytes);
    }
    ASSERT_EQ(list.free_bytes(), static_cast<uint64_t>(std::count(taken.begin(), taken.end(), false)));
  }
}

}  // namespace
}  // namespace axccl
