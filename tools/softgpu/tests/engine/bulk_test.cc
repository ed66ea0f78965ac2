// Copies in bulk and their mbarriers: what they do, what must wait for them, and what is an error.
#include <algorithm>
#include <functional>

#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

constexpr int kSeeds = 40;
constexpr char kPrologue[] = R"(
    .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<12>; .shared .align 16 .b8 s[4096];
    mov.u32 %r0, %tid.x; mov.u32 %r2, s; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2];
    cvt.u32.u64 %r5, %rd2;
)";

// The memory of kernels with three parameters.
struct Buffers {
  alignas(64) uint8_t from[4096];
  alignas(64) uint8_t to[4096];
};

struct Shape {
  uint32_t threads = 1;
  uint32_t blocks = 1;
  uint64_t seed = 0;
  uint64_t bytes = 0;  // the third parameter
  bool races = false;
};

std::string RunBulk(const std::string& body, Buffers* buffers, const Shape& run) {
  const auto module = LoadOrFail(KernelText(kPrologue + body + "\nret;", 3));
  if (module == nullptr) return "not loaded";
  Ranges ranges;
  ranges.Add(buffers->from, sizeof buffers->from);
  ranges.Add(buffers->to, sizeof buffers->to);
  Launch launch;
  launch.block.x = run.threads;
  launch.grid.x = run.blocks;
  launch.options.seed = run.seed;
  launch.options.detect_races = run.races;
  launch.map = &ranges;
  launch.parameters = Parameters(static_cast<void*>(buffers->from), static_cast<void*>(buffers->to), run.bytes);
  return RunKernel(*module, launch);
}

// No byte of one is in the other, so each tells where it is from.
void Fill(Buffers* buffers) {
  constexpr uint8_t kOld = 0xee;
  std::mt19937 random(static_cast<uint32_t>(Seed()));
  for (uint8_t& byte : buffers->from) byte = static_cast<uint8_t>(random() % kOld);
  std::fill(std::begin(buffers->to), std::end(buffers->to), kOld);
}

void ExpectError(const std::string& body, const std::string& part, Shape run = {}) {
  Buffers buffers;
  Fill(&buffers);
  const std::string error = RunBulk(body, &buffers, run);
  EXPECT_NE(error.find(part), std::string::npos) << "no '" << part << "' in '" << error << "', of:" << body;
  EXPECT_NE(error.find("of the PTX"), std::string::npos) << error;
}

// One thread copies from global memory to shared at 1024, and on to global memory. Parts that a test omits have a name.
constexpr char kInit[] = "mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;\n";
constexpr char kLoad[] =
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r5;\n"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd0], %r5, [%r2];\n";
constexpr char kWait[] = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra WAIT;\n";
constexpr char kStore[] =
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2+1024], %r5; cp.async.bulk.commit_group;\n";
constexpr char kEnd[] = "cp.async.bulk.wait_group 0;\n";

TEST(Bulk, CopiesThroughSharedMemory) {
  for (uint64_t seed = 0; seed < uint64_t{kSeeds}; ++seed) {
    Buffers buffers;
    Fill(&buffers);
    const uint64_t bytes = 16 * (1 + (seed * 37) % 190);
    const std::string body = std::string(kInit) + kLoad + kWait + kStore + kEnd;
    ASSERT_EQ(RunBulk(body, &buffers, {.seed = seed, .bytes = bytes}), "");
    ASSERT_EQ(std::memcmp(buffers.from, buffers.to, bytes), 0) << "seed " << seed;
    ASSERT_TRUE(std::all_of(buffers.to + bytes, std::end(buffers.to), [](uint8_t byte) { return byte == 0xee; }));
  }
}

TEST(Bulk, HasOtherSpellings) {
  Buffers buffers;
  Fill(&buffers);
  EXPECT_EQ(RunBulk(R"(
    mbarrier.init.shared.b64 [%r2], 2; fence.proxy.async; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 96;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2+512], [%rd0], 64, [%r2], %rd0;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2+640], [%r2+1024], 32, [%r2];
    mbarrier.arrive.release.cta.shared::cta.b64 %rd3, [%r2]; mbarrier.arrive.shared.b64 %rd3, [%r2];
    A: mbarrier.try_wait.shared.b64 %p1, [%r2], %rd3, 100; @!%p1 bra A;
    B: mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra B;
    C: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra C; mbarrier.inval.shared.b64 [%r2];
    cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd1+16], [%r2+512], 64, %rd0; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0; fence.proxy.async.global; fence.proxy.async.shared::cta; cp.async.bulk.wait_group 0;)",
                    &buffers, {}),
            "");
  EXPECT_EQ(std::memcmp(buffers.from, buffers.to + 16, 64), 0);
  EXPECT_EQ(buffers.to[15], 0xee);
  EXPECT_EQ(buffers.to[80], 0xee);
}

// The number of seeds that give the expected result.
int CountGood(const std::string& body, const std::function<bool(const Buffers&)>& good, Shape run) {
  int count = 0;
  for (uint64_t seed = 1; seed <= uint64_t{kSeeds}; ++seed) {
    Buffers buffers;
    Fill(&buffers);
    run.seed = seed;
    const std::string error = RunBulk(body, &buffers, run);
    count += error.empty() && good(buffers);
  }
  return count;
}

TEST(Bulk, AThreadThatDoesNotWaitFindsOldBytes) {
  const Shape run{.bytes = 512};
  const auto all = [](const Buffers& b) { return std::memcmp(b.from, b.to, 512) == 0; };
  EXPECT_EQ(CountGood(std::string(kInit) + kLoad + kWait + kStore + kEnd, all, run), kSeeds);
  EXPECT_LT(CountGood(std::string(kInit) + kLoad + kStore + kEnd + kWait, all, run), kSeeds / 2);
  // The thread itself reads the last byte, and stores it in the first byte after the copy.
  const std::string look = "ld.global.u8 %r6, [%rd1+511]; st.global.u8 [%rd1+512], %r6;\n";
  const auto seen = [](const Buffers& b) { return b.to[512] == b.from[511]; };
  const std::string begin = std::string(kInit) + kLoad + kWait + kStore;
  EXPECT_EQ(CountGood(begin + kEnd + look, seen, run), kSeeds);
  EXPECT_LT(CountGood(begin + "cp.async.bulk.wait_group.read 0;\n" + look + kEnd, seen, run), kSeeds);
  EXPECT_LT(CountGood(begin + "cp.async.bulk.wait_group 1;\n" + look + kEnd, seen, run), kSeeds);
  // A load of other bytes reuses a stage.
  const std::string again =
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd0+1024], 512, [%r2];\n"
      "W2: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 1; @!%p1 bra W2;\n";
  EXPECT_EQ(CountGood(begin + "cp.async.bulk.wait_group.read 0;\n" + again + kEnd, all, run), kSeeds);
  EXPECT_LT(CountGood(begin + again + kEnd, all, run), kSeeds);
}

TEST(Bulk, EachThreadHasItsOwnGroups) {
  // Every thread stores 16 bytes twice; it waits only for its first group.
  const std::string body = R"(
    mbarrier.init.shared::cta.b64 [%r2+2048], 1; shl.b32 %r6, %r0, 4; add.u32 %r7, %r2, %r6; st.shared.u32 [%r7], %r0;
    cvt.u64.u32 %rd3, %r6; add.s64 %rd4, %rd1, %rd3; fence.proxy.async.shared::cta;
    bar.sync 0;
    cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r7], 16; cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%rd4+2048], [%r7], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 1; ld.global.u32 %r8, [%rd4]; cp.async.bulk.wait_group 0; st.global.u32 [%rd4+4], %r8;)";
  const auto good = [](const Buffers& b) {
    for (uint32_t i = 0; i < 64; ++i) {
      uint32_t words[2], later;
      std::memcpy(words, b.to + 16 * i, 8);
      std::memcpy(&later, b.to + 2048 + 16 * i, 4);
      if (words[0] != i || words[1] != i || later != i) return false;
    }
    return true;
  };
  EXPECT_EQ(CountGood(body, good, {.threads = 64}), kSeeds);
}

// Compared with a count by the host: a thread does any of these operations, and tests whether the phase has ended.
TEST(Mbarriers, CountArrivalsAndBytes) {
  std::mt19937 random(static_cast<uint32_t>(Seed()));
  for (int round = 0; round < 30; ++round) {
    const uint32_t expected = 1 + random() % 5;
    std::string body = "mbarrier.init.shared.b64 [%r2], " + std::to_string(expected) + ";\n";
    uint32_t pending = expected, phase = 0;
    int64_t bytes = 0;
    std::vector<uint8_t> wanted;
    for (int step = 0; step < 40; ++step) {
      const uint32_t amount = 1 + random() % 64, some = 1 + random() % pending;
      const std::string number = std::to_string(amount);
      uint32_t arrives = 0;
      switch (random() % 5) {
        case 0:
          body += "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], " + number + ";";
          bytes += amount;
          break;
        case 1:
          body += "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], " + number + ";";
          bytes -= amount;
          break;
        case 2:
          body += "mbarrier.arrive.expect_tx.shared::cta.b64 %rd3, [%r2], " + number + ";";
          bytes += amount;
          arrives = 1;
          break;
        case 3:
          body += "mbarrier.arrive.shared::cta.b64 %rd3, [%r2], " + std::to_string(some) + ";";
          arrives = some;
          break;
        default:
          body += "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r2];";
          arrives = 1;
      }
      pending -= arrives;
      if (pending == 0 && bytes == 0) {
        phase ^= 1;
        pending = expected;
      }
      const std::string parity = std::to_string(random() % 2), wait = random() % 2 == 0 ? "test_wait" : "try_wait";
      body += " mbarrier." + wait + ".parity.shared.b64 %p1, [%r2], " + parity + "; selp.u32 %r6, 1, 0, %p1; " +
              "st.global.u8 [%rd1+" + std::to_string(wanted.size()) + "], %r6;\n";
      wanted.push_back(parity != std::to_string(phase));
      if (pending != 0) continue;
      // All arrivals are made already, but bytes are missing.
      body += "mbarrier.complete_tx.shared::cta.b64 [%r2], " + std::to_string(bytes) + ";\n";
      if (bytes < 0) break;
      bytes = 0;
      phase ^= 1;
      pending = expected;
    }
    Buffers buffers;
    Fill(&buffers);
    ASSERT_EQ(RunBulk(body, &buffers, {}), "") << body;
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(buffers.to[i], wanted[i]) << "step " << i << " of\n" << body;
  }
}

TEST(Mbarriers, AWarpThatWaitsLetsOthersRun) {
  // The second warp arrives after 1000 rounds; the first one waits for it.
  const std::string body = std::string("setp.ne.u32 %p0, %r0, 0; @%p0 bra READY; ") + kInit + R"(
    READY: bar.sync 0; setp.ge.u32 %p0, %r0, 32; @%p0 bra WORK;
    )" + kWait + R"( setp.eq.u32 %p2, %r0, 0; @%p2 st.global.u8 [%rd1], 7; ret;
    WORK: mov.u32 %r6, 0; LOOP: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 1000; @%p2 bra LOOP;
    setp.eq.u32 %p2, %r0, 32; @%p2 mbarrier.arrive.shared::cta.b64 _, [%r2];)";
  EXPECT_EQ(CountGood(body, [](const Buffers& b) { return b.to[0] == 7; }, {.threads = 64}), kSeeds);
  Buffers buffers;
  EXPECT_EQ(RunBulk(body, &buffers, {.threads = 64}), "");
}

// No thread of the copy's block waits for it, but another block does.
TEST(Bulk, GoesOnWithoutAWait) {
  const std::string body = std::string("mov.u32 %r6, %ctaid.x; setp.ne.u32 %p0, %r6, 0; @%p0 bra OTHER;\n") +
                           R"(st.shared.u64 [%r2+1024], 5; fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2+1024], 16; cp.async.bulk.commit_group;
    BACK: ld.acquire.gpu.global.u32 %r7, [%rd1+64]; setp.ne.u32 %p1, %r7, 1; @%p1 bra BACK; cp.async.bulk.wait_group 0; ret;
    OTHER: ld.relaxed.gpu.global.u32 %r7, [%rd1]; setp.ne.u32 %p1, %r7, 5; @%p1 bra OTHER; st.release.gpu.global.u32 [%rd1+64], 1;)";
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Buffers buffers;
    Fill(&buffers);
    EXPECT_EQ(RunBulk(body, &buffers, {.blocks = 2, .seed = seed}), "") << seed;
  }
}

TEST(Bulk, MisuseIsAnError) {
  const std::string load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ", init = kInit;
  const std::string store = "cp.async.bulk.global.shared::cta.bulk_group ";
  ExpectError(init + load + "[%r2+1032], [%rd0], 16, [%r2];", "multiples of 16");
  ExpectError(init + load + "[%r2+1024], [%rd0+4], 16, [%r2];", "multiples of 16");
  ExpectError(init + load + "[%r2+1024], [%rd0], 24, [%r2];", "multiples of 16");
  ExpectError(store + "[%rd1+8], [%r2+1024], 16;", "multiples of 16");
  ExpectError(init + load + "[%r2+4080], [%rd0], 32, [%r2];", "outside the shared memory");
  ExpectError(store + "[%rd1], [%r2+4080], 32;", "outside the shared memory");
  ExpectError(init + load + "[%r2+1024], [%rd0+4080], 32, [%r2];", "in no allocated memory");
  ExpectError(store + "[%rd1+4096], [%r2+1024], 16;", "in no allocated memory");
  ExpectError(load + "[%r2+1024], [%rd0], 16, [%r2];", "not initialised");
  ExpectError("mbarrier.init.shared.b64 [%r2], 1;" + load + "[%r2+1024], [%rd0], 16, [%r2];", "no fence.mbarrier_init");
  for (const char* use : {"mbarrier.arrive.shared.b64 _, [%r2+8];", "mbarrier.expect_tx.shared.b64 [%r2+8], 16;",
                          "mbarrier.try_wait.parity.shared.b64 %p1, [%r2+8], 0;",
                          "mbarrier.arrive.expect_tx.shared.b64 _, [%r2+8], 16;", "mbarrier.inval.shared.b64 [%r2+8];",
                          "mbarrier.inval.shared.b64 [%r2]; mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;"})
    ExpectError(init + use, "not initialised");
  ExpectError(init + "mbarrier.arrive.shared.b64 _, [%r2], 2;", "more arrivals");
  // Threads write the source of a copy, and the fence is too early or for other memory.
  const std::string write = "st.shared.u32 [%r2+1036], %r0; ", copy = store + "[%rd1], [%r2+1024], 16;";
  ExpectError(write + copy, "no fence.proxy.async");
  ExpectError("fence.proxy.async; " + write + copy, "no fence.proxy.async");
  ExpectError(write + "fence.proxy.async.global; " + copy, "no fence.proxy.async");
  ExpectError("cvta.shared.u64 %rd5, s; st.u32 [%rd5+1036], %r0; " + copy, "no fence.proxy.async");
  Buffers buffers;
  const std::string end = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
  EXPECT_EQ(RunBulk(write + "fence.proxy.async.shared::cta; " + copy + end, &buffers, {}), "");
  EXPECT_EQ(RunBulk("st.shared.u32 [%r2+1040], %r0; st.shared.u32 [%r2+1020], %r0; " + copy + end, &buffers, {}), "");
  // No thread waits for a copy that needs the block's shared memory.
  ExpectError(init + kLoad, "the block ended", {.bytes = 64});
  ExpectError(copy, "the block ended");
}

TEST(Bulk, RacesAreFound) {
  const std::string begin = std::string(kInit) + kLoad + kWait;
  const auto race = [](const std::string& body) {
    Buffers buffers;
    Fill(&buffers);
    return RunBulk(body, &buffers, {.blocks = 2, .seed = 3, .bytes = 64, .races = true});
  };
  EXPECT_EQ(race(begin), "");
  EXPECT_NE(race(begin + kStore + kEnd).find("races"), std::string::npos);
  EXPECT_NE(race("st.global.u32 [%rd0], 1;" + begin).find("races"), std::string::npos);
  // A flag orders the two blocks after the first has waited.
  const auto passed_on = [&](const std::string& wait) {
    return race(R"(st.shared.u32 [%r2+1024], 5; fence.proxy.async; mov.u32 %r6, %ctaid.x; setp.ne.u32 %p0, %r6, 0;
      @%p0 bra OTHER;)" +
                std::string(kStore) + wait +
                R"(st.release.gpu.global.u32 [%rd1+512], 1; cp.async.bulk.wait_group 0; ret;
      OTHER: ld.acquire.gpu.global.u32 %r7, [%rd1+512]; setp.ne.u32 %p1, %r7, 1; @%p1 bra OTHER; )" +
                kInit + R"(
      mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;
      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd1], 64, [%r2];)" +
                kWait);
  };
  EXPECT_EQ(passed_on(kEnd), "");
  EXPECT_NE(passed_on("").find("races"), std::string::npos);
}

}  // namespace
}  // namespace softgpu::engine::test
