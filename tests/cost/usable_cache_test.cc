// What follows from given times of copies, and the limits of what is measured here.
#include "src/cost/usable_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "src/base/processors.h"

namespace axccl::cost {
namespace {

constexpr uint64_t kMiB = 1u << 20;

// Seconds, from microseconds: only their ratios count.
CopyTimes Times(uint64_t mib, double plain, double around) { return {mib * kMiB, plain * 1e-6, around * 1e-6}; }

uint64_t KeptMiB(const std::vector<CopyTimes>& times) { return KeptBytes(times) / kMiB; }

// Zen 5, two cores with 32 MiB between them.
TEST(KeptBytes, OfASmallCacheIsMostOfIt) {
  const uint64_t kept = KeptMiB({Times(1, 34, 45), Times(2, 78, 91), Times(4, 155, 179), Times(8, 318, 345),
                                 Times(16, 648, 692), Times(32, 1929, 1527)});
  EXPECT_GE(kept, 16u);
  EXPECT_LE(kept, 20u);
}

// Two cores of a socket whose 260 MiB are in use by others: neither that, nor the 2 MiB of a core alone.
TEST(KeptBytes, OfACacheSharedWithStrangersIsWhatIsLeft) {
  const uint64_t kept = KeptMiB({Times(1, 30, 95), Times(2, 66, 190), Times(4, 170, 380), Times(8, 560, 770),
                                 Times(16, 2200, 1560), Times(32, 4700, 3100)});
  EXPECT_GE(kept, 9u);
  EXPECT_LE(kept, 13u);
}

TEST(KeptBytes, IsTheGeometricMeanBetweenEqualRatios) {
  EXPECT_EQ(KeptMiB({Times(1, 1, 2), Times(4, 2, 1)}), 2u);
  EXPECT_EQ(KeptMiB({Times(1, 1, 1), Times(4, 2, 1)}), 1u);
}

TEST(KeptBytes, IsALimitWhereOneKindIsAlwaysFaster) {
  EXPECT_EQ(KeptMiB({Times(1, 1, 3), Times(2, 2, 6), Times(64, 64, 99)}), 64u);
  EXPECT_EQ(KeptMiB({Times(2, 9, 6), Times(4, 20, 12)}), 1u);
  EXPECT_EQ(KeptMiB({}), 0u);
}

TEST(UsableCache, IsNotMeasuredWhereCodeIsTooSlow) {
  if (CanMeasureCache()) GTEST_SKIP() << "this build is fast enough";
  EXPECT_FALSE(MeasureUsableCache().has_value());
}

TEST(UsableCache, IsNoLessThanACoresOwnAndNoMoreThanWasTried) {
  const std::optional<UsableCache> usable = MeasureUsableCache();
  if (!usable.has_value()) GTEST_SKIP() << "too much other work, or stores cannot bypass the cache";
  EXPECT_GE(usable->threads, 1);
  EXPECT_LE(static_cast<size_t>(usable->threads), AllowedProcessors().size());
  EXPECT_GE(usable->bytes, kMiB / 2 * static_cast<uint64_t>(usable->threads));
  EXPECT_LE(usable->bytes, 256 * kMiB);
}

}  // namespace
}  // namespace axccl::cost
