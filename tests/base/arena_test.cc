// Memory that the library keeps so that calls need not ask the driver for it.
#include "src/base/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/harness/random.h"

namespace axccl {
namespace {

class ArenaTest : public testing::Test {
 protected:
  Result<uintptr_t> More(size_t bytes) {
    if (refuse_) return MakeStatus(Code::kUnhandledCudaError, "no memory");
    chunks_.push_back(bytes);
    next_ += bytes;
    return next_;  // a multiple of its size, if all have the same
  }
  uintptr_t Take(size_t bytes) {
    const Result<uintptr_t> memory = arena_.Take(bytes);
    EXPECT_TRUE(memory.ok());
    return memory.ok() ? memory.value() : 0;
  }

  static constexpr size_t kChunk = 1u << 20;
  bool refuse_ = false;
  uintptr_t next_ = uintptr_t{1} << 40;
  std::vector<size_t> chunks_;
  Arena arena_{kChunk, [this](size_t bytes) { return More(bytes); }};
};

TEST_F(ArenaTest, WhatIsReservedIsThereWithoutTheDriver) {
  ASSERT_TRUE(arena_.Reserve(kChunk / 2).ok());
  ASSERT_TRUE(arena_.Reserve(kChunk).ok());
  EXPECT_EQ(chunks_, std::vector<size_t>(2, kChunk));
  refuse_ = true;
  for (int i = 0; i < 30; ++i) Take(20'000);  // 32 KiB each
  arena_.Unreserve(kChunk);
  ASSERT_TRUE(arena_.Reserve(kChunk).ok());
  EXPECT_EQ(chunks_.size(), 2u);
}

TEST_F(ArenaTest, AskForMoreAndFail) {
  const uintptr_t large = Take(3 * kChunk);
  EXPECT_EQ(chunks_, std::vector<size_t>{4 * kChunk});
  arena_.Return(large);
  refuse_ = true;
  EXPECT_EQ(Take(4 * kChunk), large);
  EXPECT_EQ(arena_.Take(1).status().code(), Code::kUnhandledCudaError);
  EXPECT_FALSE(arena_.Reserve(8 * kChunk).ok());
  arena_.Return(large);
  EXPECT_EQ(Take(1), large);
}

TEST_F(ArenaTest, NothingOverlapsAndWhatComesBackIsUsedAgain) {
  harness::Random random(harness::Seed());
  std::vector<std::pair<uintptr_t, size_t>> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (taken.size() < 100 && random.Below(2) == 0) {
      const size_t bytes = 1 + random.Below(random.Below(10) == 0 ? 100'000 : 3'000);
      const uintptr_t memory = Take(bytes);
      for (const auto& [begin, size] : taken) ASSERT_TRUE(memory + bytes <= begin || begin + size <= memory) << i;
      taken.emplace_back(memory, bytes);
    } else if (!taken.empty()) {
      std::swap(taken[random.Below(taken.size())], taken.back());
      arena_.Return(taken.back().first);
      taken.pop_back();
    }
  }
  EXPECT_LE(chunks_.size(), 16u);
}

}  // namespace
}  // namespace axccl
