#include "src/plan/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness/random.h"

namespace axccl::plan {
namespace {

constexpr bool Is(Range r, uint64_t begin, uint64_t count) { return r.begin == begin && r.count == count; }

// Usable where device code or a table at compile time needs it.
static_assert(Is(Cut(10, 1, 1, 0), 0, 10));
static_assert(Is(Cut(10, 1, 3, 0), 0, 3) && Is(Cut(10, 1, 3, 1), 3, 3) && Is(Cut(10, 1, 3, 2), 6, 4));
static_assert(Is(Cut(2, 1, 3, 0), 0, 0) && Is(Cut(2, 1, 3, 1), 0, 1) && Is(Cut(2, 1, 3, 2), 1, 1));
static_assert(Is(Cut(0, 16, 4, 2), 0, 0));
static_assert(Is(Cut(17, 16, 2, 0), 0, 16) && Is(Cut(17, 16, 2, 1), 16, 1));
static_assert(Is(Cut(5, 16, 2, 0), 0, 0) && Is(Cut(5, 16, 2, 1), 0, 5));
static_assert(Turns({.count = 0, .tile = 8}) == 1 && Turns({.count = 0}) == 1);
static_assert(Turns({.count = 17, .tile = 8}) == 3 && Turns({.count = 16, .tile = 8}) == 2);
static_assert(Turns({.count = 17, .tile = 8, .lanes = 2}) == 2);
static_assert(Is(Resolve({.count = 100, .tile = 30, .parts = 2}, 0, 3, 1), 95, 5));
static_assert(Is(Resolve({.count = 100, .tile = 30, .parts = 2}, 0, 4, 0), 100, 0));
static_assert(SlotElements({.count = 100, .tile = 30, .parts = 4}) == 8);
static_assert(SlotElements({.count = 100, .lanes = 3, .parts = 2}) == 17);
static_assert(Is(ResolveSlice({.count = 30, .row = 3, .slices = 4, .parts = 4}, 1), 6, 9));
static_assert(Is(Resolve({.count = 30, .row = 3, .granule = 4, .slices = 4, .parts = 8}, 2), 6, 4));
static_assert(Is(Resolve({.count = 30, .row = 3, .granule = 4, .slices = 4, .parts = 8}, 3), 10, 5));
static_assert(SlotElements({.count = 30, .row = 3, .granule = 4, .slices = 4, .parts = 8}) == 8);

// More elements than 32 bits can count, and nearly as many as 64 bits can.
constexpr uint64_t kBig = (uint64_t{1} << 31) + 11;
constexpr uint64_t kHuge = (uint64_t{1} << 63) - 25;
static_assert(Is(Cut(kBig, 1, 2, 1), kBig / 2, kBig - kBig / 2));
static_assert(Is(Cut(kHuge, 1, 3, 2), kHuge / 3 * 2, kHuge - kHuge / 3 * 2));
static_assert(Cut(kHuge, 64, 65535, 65534).begin + Cut(kHuge, 64, 65535, 65534).count == kHuge);
static_assert(Turns({.count = kHuge, .tile = 1u << 20}) == (kHuge >> 20) + 1);
static_assert(Is(Resolve({.count = kHuge, .tile = uint64_t{1} << 40}, 0, kHuge >> 40, 0), kHuge >> 40 << 40,
                 kHuge - (kHuge >> 40 << 40)));

// Every element of the block belongs to exactly one (lane, turn, part), in ascending order within a lane; all cuts
// except the end lie at multiples of the granule; no part is larger than a slot.
void CheckPartition(const Partition& p) {
  uint64_t at = 0;
  const uint64_t turns = Turns(p), slot = SlotElements(p);
  for (uint32_t l = 0; l < p.lanes; ++l) {
    ASSERT_EQ(LaneSpan(p, l).begin, at);
    for (uint64_t t = 0; t < turns; ++t) {
      for (uint32_t i = 0; i < p.parts; ++i) {
        const Range r = Resolve(p, l, t, i);
        ASSERT_LE(r.count, slot) << "lane " << l << " turn " << t << " part " << i;
        if (r.count == 0) {
          ASSERT_LE(r.begin, p.count);
          continue;
        }
        ASSERT_EQ(r.begin, at) << "lane " << l << " turn " << t << " part " << i;
        ASSERT_EQ(r.begin % p.granule, 0u);
        at += r.count;
      }
    }
    ASSERT_EQ(LaneSpan(p, l).begin + LaneSpan(p, l).count, at);
    // An extra turn would be empty.
    ASSERT_EQ(Resolve(p, l, turns, p.parts - 1).count, p.tile == 0 ? Resolve(p, l, 0, p.parts - 1).count : 0);
  }
  ASSERT_EQ(at, p.count);
}

std::string Describe(const Partition& p) {
  return "count " + std::to_string(p.count) + " tile " + std::to_string(p.tile) + " granule " +
         std::to_string(p.granule) + " lanes " + std::to_string(p.lanes) + " parts " + std::to_string(p.parts) +
         ", AXCCL_TEST_SEED=" + std::to_string(harness::Seed());
}

TEST(RegionTest, SmallBlocksArePartitionedExactly) {
  for (uint64_t count = 0; count <= 40; ++count) {
    for (uint32_t granule : {1u, 3u, 8u}) {
      for (uint64_t tiles : {0u, 1u, 2u}) {
        for (uint32_t lanes : {1u, 2u, 5u}) {
          for (uint32_t parts : {1u, 2u, 7u}) {
            const Partition p = {count, tiles * granule, granule, lanes, parts};
            SCOPED_TRACE(Describe(p));
            ASSERT_NO_FATAL_FAILURE(CheckPartition(p));
          }
        }
      }
    }
  }
}

TEST(RegionTest, RandomBlocksArePartitionedExactly) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < 3000; ++i) {
    Partition p;
    p.granule = static_cast<uint32_t>(1 + random.Below(random.OneIn(2) ? 4 : 300));
    p.lanes = static_cast<uint32_t>(1 + random.Below(9));
    p.parts = static_cast<uint32_t>(1 + random.Below(70));
    p.count = random.Next() >> (1 + random.Below(63));
    // A few hundred turns at most, so that the walk ends.
    const uint64_t least = p.count / (1 + random.Below(200)) / p.granule + 1;
    p.tile = random.OneIn(4) ? 0 : (least + random.Below(3)) * p.granule;
    SCOPED_TRACE(Describe(p));
    ASSERT_NO_FATAL_FAILURE(CheckPartition(p));
  }
}

TEST(RegionTest, HugeBlocksArePartitionedExactly) {
  for (const uint64_t count : {kBig, kHuge, (uint64_t{1} << 63) - 1, uint64_t{1} << 62, (uint64_t{1} << 32) + 1}) {
    for (const uint32_t granule : {1u, 64u, 4096u}) {
      for (const uint32_t parts : {1u, 3u, 64u, 4096u}) {
        for (const uint32_t lanes : {1u, 7u}) {
          for (const uint64_t tile : {uint64_t{0}, (count / 5 / granule + 1) * granule}) {
            const Partition p = {count, tile, granule, lanes, parts};
            SCOPED_TRACE(Describe(p));
            ASSERT_NO_FATAL_FAILURE(CheckPartition(p));
          }
        }
      }
    }
  }
}

// Remainders are spread: pieces differ by at most one granule, apart from the end of the block.
TEST(RegionTest, CutsAreEven) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < 3000; ++i) {
    const uint64_t count = random.Next() >> (1 + random.Below(63));
    const auto granule = static_cast<uint32_t>(1 + random.Below(100));
    const auto n = static_cast<uint32_t>(1 + random.Below(100));
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t k = 0; k < n; ++k) {
      const uint64_t c = Cut(count, granule, n, k).count;
      const uint64_t units = c / granule + (c % granule != 0);
      least = std::min(least, units);
      most = std::max(most, units);
    }
    EXPECT_LE(most - least, 1u) << "count " << count << " granule " << granule << " pieces " << n
                                << ", AXCCL_TEST_SEED=" << harness::Seed();
  }
}

// Slices are whole rows and differ by one at most. Every element belongs to exactly one part, in ascending order, and
// the parts of a slice lie inside it. Cuts inside a slice are at multiples of the granule, from its begin on. A slot is
// as large as the largest part, rounded up to the granule.
void CheckSlicing(const Slicing& s) {
  const uint64_t rows = s.count / s.row;
  const uint32_t parts_of_slice = s.parts / s.slices;
  uint64_t at = 0, largest = 0;
  for (uint32_t slice = 0; slice < s.slices; ++slice) {
    const Range whole = ResolveSlice(s, slice);
    ASSERT_EQ(whole.begin, at) << "slice " << slice;
    ASSERT_EQ(whole.count % s.row, 0u);
    ASSERT_GE(whole.count / s.row, rows / s.slices);
    ASSERT_LE(whole.count / s.row, rows / s.slices + (rows % s.slices != 0));
    for (uint32_t i = 0; i < parts_of_slice; ++i) {
      const Range r = Resolve(s, slice * parts_of_slice + i);
      largest = std::max(largest, r.count);
      ASSERT_LE(r.begin + r.count, whole.begin + whole.count);
      if (r.count == 0) continue;
      ASSERT_EQ(r.begin, at) << "slice " << slice << " part " << i;
      ASSERT_EQ((r.begin - whole.begin) % s.granule, 0u);
      at += r.count;
    }
    ASSERT_EQ(at, whole.begin + whole.count);
  }
  ASSERT_EQ(at, s.count);
  ASSERT_GE(SlotElements(s), largest);
  ASSERT_LT(SlotElements(s), largest + s.granule);
}

std::string Describe(const Slicing& s) {
  return "count " + std::to_string(s.count) + " row " + std::to_string(s.row) + " granule " +
         std::to_string(s.granule) + " slices " + std::to_string(s.slices) + " parts " + std::to_string(s.parts) +
         ", AXCCL_TEST_SEED=" + std::to_string(harness::Seed());
}

TEST(RegionTest, SmallSlicesArePartitionedExactly) {
  for (uint64_t rows = 0; rows <= 20; ++rows) {
    for (const uint64_t row : {1u, 3u, 8u, 17u}) {
      for (const uint32_t granule : {1u, 3u, 16u}) {
        for (const uint32_t parts : {1u, 2u, 7u}) {
          // As many slices as there are rows, at most; a block without rows has one slice.
          for (uint32_t slices = 1; slices <= std::max<uint64_t>(rows, 1); ++slices) {
            const Slicing s = {rows * row, row, granule, slices, slices * parts};
            SCOPED_TRACE(Describe(s));
            ASSERT_NO_FATAL_FAILURE(CheckSlicing(s));
          }
        }
      }
    }
  }
}

TEST(RegionTest, RandomSlicesArePartitionedExactly) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < 1000; ++i) {
    Slicing s;
    s.granule = static_cast<uint32_t>(1 + random.Below(random.OneIn(2) ? 4 : 300));
    s.row = 1 + (random.Next() >> (34 + random.Below(30)));
    const uint64_t rows = 1 + (random.Next() >> (34 + random.Below(30)));
    s.count = rows * s.row;
    s.slices = static_cast<uint32_t>(1 + random.Below(std::min<uint64_t>(rows, 200)));
    s.parts = s.slices * static_cast<uint32_t>(1 + random.Below(70));
    SCOPED_TRACE(Describe(s));
    ASSERT_NO_FATAL_FAILURE(CheckSlicing(s));
  }
}

}  // namespace
}  // namespace axccl::plan
