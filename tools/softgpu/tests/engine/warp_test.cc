// Shuffles, votes, barriers, mbarriers.
#include <bit>

#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

std::vector<uint32_t> RunThreads(const std::string& body, uint32_t threads = 32, uint64_t seed = 0) {
  const std::string prologue = R"(
    .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<8>; .shared .align 8 .b8 s[1024];
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;
  )";
  const auto module = LoadOrFail(KernelText(prologue + body + "\n st.global.u32 [%rd1], %r1; ret;", 1));
  std::vector<uint32_t> out(threads, 0xdeadbeef);
  if (module == nullptr) return out;
  Launch launch;
  launch.block.x = threads;
  launch.parameters = Parameters(out.data());
  launch.options.seed = seed;
  EXPECT_EQ(RunKernel(*module, launch), "");
  return out;
}

TEST(Warp, Shuffles) {
  const auto down = RunThreads("shfl.sync.down.b32 %r1|%p0, %r0, 3, 31, -1; @!%p0 add.u32 %r1, %r1, 100;");
  const auto up = RunThreads("shfl.sync.up.b32 %r1, %r0, 2, 0, 0xffffffff;");
  const auto butterfly = RunThreads("shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;");
  const auto index = RunThreads("shfl.sync.idx.b32 %r1, %r0, 5, 31, -1;");
  // Segments of 8: c = (32 - 8) << 8 | 31.
  const auto segment = RunThreads("shfl.sync.idx.b32 %r1, %r0, 1, 0x181f, -1;");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(down[i], i + 3 < 32 ? i + 3 : i + 100);
    EXPECT_EQ(up[i], i < 2 ? i : i - 2);
    EXPECT_EQ(butterfly[i], i ^ 16);
    EXPECT_EQ(index[i], 5u);
    EXPECT_EQ(segment[i], i / 8 * 8 + 1);
  }
}

TEST(Warp, Votes) {
  const auto ballot = RunThreads("and.b32 %r2, %r0, 3; setp.eq.u32 %p0, %r2, 1; vote.sync.ballot.b32 %r1, %p0, -1;");
  const auto all = RunThreads("setp.lt.u32 %p0, %r0, 31; vote.sync.all.pred %p1, %p0, -1; selp.u32 %r1, 1, 0, %p1;");
  const auto any = RunThreads("setp.lt.u32 %p0, %r0, 31; vote.sync.any.pred %p1, !%p0, -1; selp.u32 %r1, 1, 0, %p1;");
  const auto match = RunThreads("and.b32 %r2, %r0, 1; match.any.sync.b32 %r1, %r2, -1;");
  const auto sum = RunThreads("redux.sync.add.s32 %r1, %r0, -1;");
  const auto most = RunThreads("sub.u32 %r2, %r0, 5; redux.sync.min.s32 %r1, %r2, -1;");
  const auto elect = RunThreads("elect.sync %r2|%p0, 0xffffffff; selp.u32 %r1, 1, 0, %p0;");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(ballot[i], 0x22222222u);
    EXPECT_EQ(all[i], 0u);
    EXPECT_EQ(any[i], 1u);
    EXPECT_EQ(match[i], i % 2 == 0 ? 0x55555555u : 0xaaaaaaaau);
    EXPECT_EQ(sum[i], 496u);
    EXPECT_EQ(most[i], static_cast<uint32_t>(-5));
    EXPECT_EQ(elect[i], i == 0 ? 1u : 0u);
  }
}

TEST(Warp, DivergedLanesMeetInTwins) {
  // The same shuffle in two places, because compilers copy it into both arms of a branch.
  const auto out = RunThreads(R"(
    setp.lt.u32 %p0, %r0, 16; @%p0 bra LOW;
    mul.lo.u32 %r2, %r0, 10; shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1; bra END;
  LOW: mov.u32 %r3, %r0; shfl.sync.bfly.b32 %r1, %r3, 16, 31, -1;
  END: bar.warp.sync -1;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? (i + 16) * 10 : i - 16);
}

TEST(Warp, PartsOfWarpsShuffleSeparately) {
  const auto out = RunThreads(R"(
    setp.lt.u32 %p0, %r0, 8; mov.u32 %r1, 0; @!%p0 bra END;
    shfl.sync.down.b32 %r1, %r0, 1, 31, 0xff;
  END:)");
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(out[i], i + 1);
}

TEST(Warp, ExitedLanesAreNotWaitedFor) {
  const auto out = RunThreads("setp.gt.u32 %p0, %r0, 19; @%p0 exit; redux.sync.max.u32 %r1, %r0, -1;");
  EXPECT_EQ(out[3], 19u);
}

constexpr char kReverse[] = R"(
    shl.b32 %r2, %r0, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r0; bar.sync 0;
    mov.u32 %r4, %ntid.x; sub.u32 %r4, %r4, %r0; sub.u32 %r4, %r4, 1; shl.b32 %r4, %r4, 2; mov.u32 %r5, s; add.u32 %r5, %r5, %r4;
    ld.shared.u32 %r1, [%r5];)";

TEST(Block, BarrierOrdersSharedMemory) {
  for (uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    const auto out = RunThreads(kReverse, 200, seed);
    for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(out[i], 199 - i) << "seed " << seed;
  }
}

TEST(Block, BarrierReductions) {
  const auto count = RunThreads("setp.lt.u32 %p0, %r0, 70; bar.red.popc.u32 %r1, 0, %p0;", 100);
  const auto all = RunThreads("setp.lt.u32 %p0, %r0, 70; bar.red.and.pred %p1, 1, %p0; selp.u32 %r1, 1, 0, %p1;", 100);
  const auto any = RunThreads(
      "setp.lt.u32 %p0, %r0, 70; barrier.cta.red.or.aligned.pred %p1, 1, 100, !%p0; selp.u32 %r1, 1, 0, %p1;", 96 + 4);
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(count[i], 70u);
    EXPECT_EQ(all[i], 0u);
    EXPECT_EQ(any[i], 1u);
  }
}

TEST(Block, NamedBarriersOfSomeWarps) {
  // Warp 0 produces only for warp 1; warps 2 and 3 do not take part. bar.arrive does not wait.
  const auto out = RunThreads(R"(
    mov.u32 %r1, 5; setp.ge.u32 %p0, %r0, 64; @%p0 bra END; setp.ge.u32 %p0, %r0, 32; @%p0 bra CONSUME;
    shl.b32 %r2, %r0, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], 9; bar.arrive 3, 64; bra END;
  CONSUME: bar.sync 3, 64; sub.u32 %r2, %r0, 32; shl.b32 %r2, %r2, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; ld.shared.u32 %r1, [%r3];
  END:)",
                              128);
  for (uint32_t i = 32; i < 64; ++i) EXPECT_EQ(out[i], 9u);
}

TEST(Block, ClusterOfOne) {
  const auto out = RunThreads(R"(
    mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, 0;
  AGAIN: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p0, %r2, 5; @%p0 bra AGAIN;)",
                              96, 7);
  for (uint32_t value : out) EXPECT_EQ(value, 1u);
}

TEST(Block, MbarrierCountsArrivalsAndBytes) {
  const auto out = RunThreads(R"(
    mov.u32 %r2, s; setp.ne.u32 %p0, %r0, 0; @%p0 bra READY; mbarrier.init.shared.b64 [%r2], 33; fence.mbarrier_init.release.cluster;
  READY: bar.sync 0; @%p0 bra ARRIVE; mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r2], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+128], [%rd0], 64, [%r2];
  ARRIVE: mbarrier.arrive.shared.b64 %rd2, [%r2];
  WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0; @!%p1 bra WAIT;
    ld.shared.u32 %r1, [s+128];)");
  for (uint32_t value : out) EXPECT_EQ(value, 0xdeadbeefu);
}

TEST(Block, AsyncCopiesFillWithZero) {
  const auto out = RunThreads(R"(
    mov.u32 %r2, s; shl.b32 %r3, %r0, 4; and.b32 %r3, %r3, 0x1f0; add.u32 %r2, %r2, %r3;
    cp.async.ca.shared.global [%r2], [%rd0], 16, 4; cp.async.commit_group; cp.async.wait_group 0;
    ld.shared.u32 %r1, [%r2]; ld.shared.u32 %r4, [%r2+4]; add.u32 %r1, %r1, %r4;)");
  for (uint32_t value : out) EXPECT_EQ(value, 0xdeadbeefu);
}

}  // namespace
}  // namespace softgpu::engine::test
