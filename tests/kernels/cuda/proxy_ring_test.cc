// The ring through which kernels post what the host is to send, on fibers, whose memory is weak: entries arrive whole,
// in the order of each block, and wait while the ring is full.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/harness/fibers/fibers.h"
#include "tests/harness/random.h"
#include "tests/kernels/cuda/kernel_on_fibers.h"

namespace axccl::kernels::cuda {
namespace {

constexpr uint32_t kBlocks = 5;
constexpr size_t kPosts = 60;

struct Rig {
  Rig() {
    channel.ring = ring.get();
    channel.posted = &posted;
    channel.control = &control;
    for (size_t i = 0; i < kPosts; ++i) {
      ProxyRing::Entry& entry = entries.emplace_back();
      entry.offset = i;
      entry.bytes = i % 3 == 2 ? 0 : static_cast<uint32_t>(11 * i + 1);
      entry.of_member = i % 2;
      entry.on_device = i % 5 < 2;
      if (entry.bytes != 0) continue;
      entry.value = 3 * i + 1;
      entry.call = 7 * i;
    }
  }
  // What the host's thread does; takes `most` entries.
  void Take(uint32_t most) {
    for (; most > 0; --most) {
      const ProxyRing::Entry& entry = ring->entries[taken % ProxyRing::kEntries];
      if (__atomic_load_n(&entry.number, __ATOMIC_ACQUIRE) != taken + 1) return;
      ASSERT_LT(entry.rank, kBlocks);
      const size_t i = next[entry.rank]++;
      ASSERT_LT(i, kPosts);
      ASSERT_EQ(entry.offset, i);
      ASSERT_EQ(entry.bytes, entries[i].bytes);
      if (entry.bytes == 0) {
        ASSERT_EQ(entry.value, 3 * i + 1);
        ASSERT_EQ(entry.call, 7 * i);
        ASSERT_EQ(entry.position, entry.rank);
      } else {
        ASSERT_EQ(entry.of_member, i % 2);
        ASSERT_EQ(entry.on_device, entries[i].on_device);
      }
      __atomic_store_n(&ring->taken, ++taken, __ATOMIC_RELEASE);
    }
  }
  bool Run(uint64_t seed, bool takes) {
    fibers::Launch launch;
    launch.blocks = kBlocks;
    launch.threads = 8;
    launch.body = [this] { PostAll(channel, entries.data(), entries.size()); };
    fibers::Options options;
    options.seed = seed;
    options.host_interval = 3;
    options.host = [&] {
      if (takes) Take(static_cast<uint32_t>(random.Below(20)));
      if (!takes) __atomic_store_n(&control.abort, 1u, __ATOMIC_RELEASE);
    };
    return fibers::Run({{launch}}, options);
  }

  const std::unique_ptr<ProxyRing> ring = std::make_unique<ProxyRing>();
  Control control;
  Channel channel;
  uint32_t posted = 0, taken = 0;
  std::vector<ProxyRing::Entry> entries;
  size_t next[kBlocks] = {};
  harness::Random random{harness::Scramble(harness::Seed(), 611)};
};

TEST(ProxyRing, EntriesArriveWholeAndInOrder) {
  static_assert(kBlocks * kPosts > 4 * ProxyRing::kEntries);
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    Rig rig;
    ASSERT_TRUE(rig.Run(harness::Scramble(harness::Seed(), seed), true)) << "a block waits for ever";
    rig.Take(~0u);
    EXPECT_EQ(rig.taken, kBlocks * kPosts);
  }
}

TEST(ProxyRing, AnAbortEndsTheWaitForRoom) {
  Rig rig;
  EXPECT_TRUE(rig.Run(1, false));
}

}  // namespace
}  // namespace axccl::kernels::cuda
