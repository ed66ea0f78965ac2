#include "src/base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>

namespace axccl {
namespace {

static_assert(Mix(kHashSeed, 1) != Mix(kHashSeed, 2));

// How many bits of the result change with that bit of an argument, on average over random arguments.
double Changes(bool of_word, int bit) {
  constexpr int kTrials = 1000;
  std::mt19937_64 random(7);
  int changed = 0;
  for (int i = 0; i < kTrials; ++i) {
    const uint64_t hash = random(), word = random(), flip = uint64_t{1} << bit;
    changed += std::popcount(Mix(hash, word) ^ (of_word ? Mix(hash, word ^ flip) : Mix(hash ^ flip, word)));
  }
  return static_cast<double>(changed) / kTrials;
}

TEST(Hash, EveryBitOfEitherArgumentCounts) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const bool of_word : {false, true}) {
      EXPECT_GT(Changes(of_word, bit), 20) << bit;
      EXPECT_LT(Changes(of_word, bit), 44) << bit;
    }
  }
}

TEST(Hash, OrderAndNumberOfWordsCount) {
  EXPECT_NE(Mix(Mix(kHashSeed, 1), 2), Mix(Mix(kHashSeed, 2), 1));
  EXPECT_NE(Mix(kHashSeed, 0), Mix(Mix(kHashSeed, 0), 0));
}

}  // namespace
}  // namespace axccl
