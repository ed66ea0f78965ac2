// The plain loops that AxCCL is compared with are correct, in every way of copying.

#include "perf/loops/loops.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace axccl::perf {
namespace {

uint32_t Seed() {
  const char* text = std::getenv("AXCCL_TEST_SEED");
  uint32_t seed = text ? static_cast<uint32_t>(std::strtoul(text, nullptr, 0)) : std::random_device()();
  std::printf("AXCCL_TEST_SEED=%u\n", seed);
  return seed;
}

TEST(Loops, LayRunsSideBySideInEveryWay) {
  std::mt19937 random(Seed());
  for (size_t ranks : {1u, 2u, 3u}) {
    for (size_t bytes : {1u, 3u, 4u, 8u, 16u, 20u, 32u, 64u, 128u, 192u, 256u, 512u, 1000u, 1024u, 4096u}) {
      for (size_t misaligned : {0u, 1u, 4u}) {
        const size_t count = 1 + random() % 40;
        std::vector<char> gathered(ranks * count * bytes);
        for (char& byte : gathered) byte = static_cast<char>(random());
        std::vector<char> want(gathered.size());
        for (size_t r = 0; r < ranks; ++r) {
          for (size_t i = 0; i < count * bytes; ++i) {
            want[i / bytes * ranks * bytes + r * bytes + i % bytes] = gathered[r * count * bytes + i];
          }
        }
        for (const CopyWay& way : AllCopyWays()) {
          std::vector<char> memory(gathered.size() + 128, 0x11);
          const size_t begin = 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64 + misaligned;
          CopyRuns(SideBySide(gathered.data(), memory.data() + begin, ranks, count, bytes), way);
          std::vector<char> expected(memory.size(), 0x11);
          std::copy(want.begin(), want.end(), expected.begin() + static_cast<ptrdiff_t>(begin));
          ASSERT_EQ(memory, expected) << CopyWayName(way) << ", " << ranks << " x " << count << " x " << bytes;
        }
      }
    }
  }
}

// Like the copies of a list: of different sizes, some of them empty.
TEST(Loops, CopyRunsOfDifferentSizes) {
  const std::vector<size_t> sizes = {5, 0, 64, 1000, 4};
  for (const CopyWay& way : AllCopyWays()) {
    std::vector<std::vector<char>> from;
    std::vector<std::vector<char>> to;
    std::vector<Runs> parts;
    for (size_t size : sizes) {
      from.emplace_back(size, static_cast<char>(size));
      to.emplace_back(size, 0);
    }
    for (size_t i = 0; i < sizes.size(); ++i) parts.push_back({from[i].data(), to[i].data(), 1, sizes[i], 0, 0});
    CopyRuns(parts, way);
    EXPECT_EQ(to, from) << CopyWayName(way);
  }
  CopyRuns({}, {Loop::kMoves, true});
}

}  // namespace
}  // namespace axccl::perf
