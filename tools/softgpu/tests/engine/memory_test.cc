// Loads, stores, atomics; flags between blocks and between executions; waiting.
#include <bit>
#include <thread>

#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

constexpr char kPrologue[] = R"(
    .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %rd<12>; .reg .b128 %q<4>;
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
)";

std::string RunTwo(const std::string& body, void* p0, uint64_t p1, Launch launch = {}, const std::string& scope = "") {
  const auto module = LoadOrFail(KernelText(kPrologue + body, 2, scope));
  if (module == nullptr) return "not loaded";
  launch.parameters = Parameters(p0, p1);
  return RunKernel(*module, launch);
}

Launch Threads(uint32_t threads, uint32_t blocks = 1) {
  Launch launch;
  launch.block.x = threads;
  launch.grid.x = blocks;
  return launch;
}

TEST(Memory, VectorsAndWidths) {
  alignas(32) uint8_t in[64];
  for (int i = 0; i < 64; ++i) in[i] = static_cast<uint8_t>(0xf0 + i);
  alignas(32) uint32_t out[16] = {};
  EXPECT_EQ(RunTwo(R"(
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+16]; st.global.v4.b32 [%rd0], {%r4, %r3, %r2, %r1};
    ld.s8 %r5, [%rd1]; st.u32 [%rd0+16], %r5; ld.global.u8 %r6, [%rd1]; st.u32 [%rd0+20], %r6;
    ld.relaxed.sys.global.v2.u64 {%rd2, %rd3}, [%rd1]; st.volatile.global.v2.u64 [%rd0+32], {%rd3, %rd2};
    ld.b128 %q0, [%rd1]; mov.b128 {%rd4, %rd5}, %q0; xor.b64 %rd4, %rd4, %rd2; xor.b64 %rd5, %rd5, %rd3; or.b64 %rd4, %rd4, %rd5;
    st.u64 [%rd0+48], %rd4; ld.v2.u8 {%h0, %h1}, [%rd1+2]; mov.b32 %r7, {%h1, %h0}; st.u32 [%rd0+56], %r7; st.u8 [%rd0+60], 300;)",
                   out, reinterpret_cast<uint64_t>(in)),
            "");
  uint32_t words[16];
  std::memcpy(words, in, 64);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], words[7 - i]);
  EXPECT_EQ(out[4], 0xfffffff0u);
  EXPECT_EQ(out[5], 0xf0u);
  EXPECT_EQ(std::memcmp(out + 8, in + 8, 8), 0);
  EXPECT_EQ(std::memcmp(out + 10, in, 8), 0);
  EXPECT_EQ(out[12] | out[13], 0u);
  EXPECT_EQ(out[14], 0x00f200f3u);
  EXPECT_EQ(out[15], 300u & 0xff);
}

TEST(Memory, SharedWindowsAndDynamicMemory) {
  uint32_t out[64] = {};
  Launch launch = Threads(64, 1);
  launch.dynamic_shared = 256;
  EXPECT_EQ(RunTwo(R"(
    .shared .align 4 .b8 fixed[24];
    mov.u64 %rd2, dyn; cvta.shared.u64 %rd2, %rd2; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd4, %rd2, %rd3; st.u32 [%rd4], %r0;
    isspacep.shared %p0, %rd4; isspacep.global %p1, %rd4; bar.sync 0; mov.u32 %r4, dyn;
    xor.b32 %r1, %r0, 63; shl.b32 %r1, %r1, 2; add.u32 %r4, %r4, %r1; ld.shared.u32 %r2, [%r4]; st.shared.u32 [fixed+20], 1;
    cvta.to.shared.u64 %rd5, %rd4; ld.shared.u32 %r3, [%rd5]; add.u32 %r2, %r2, %r3; @%p1 mov.u32 %r2, 0; @!%p0 mov.u32 %r2, 0;
    mov.u32 %r5, %dynamic_smem_size; add.u32 %r2, %r2, %r5;
    add.s64 %rd6, %rd0, %rd3; st.global.u32 [%rd6], %r2;)",
                   out, 0, launch, ".extern .shared .align 16 .b8 dyn[];"),
            "");
  for (uint32_t value : out) EXPECT_EQ(value, 63u + 256);
}

TEST(Memory, StructsAsParameters) {
  const auto module = LoadOrFail(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .align 8 .b8 s[24], .param .u8 small) {
  .reg .b64 %rd<6>; .reg .b32 %r<4>;
  ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [s+8]; ld.param.u8 %r0, [small]; mov.b64 %rd2, s; add.s64 %rd3, %rd2, 16;
  ld.param.u64 %rd4, [%rd3]; add.s64 %rd1, %rd1, %rd4; cvt.u64.u32 %rd5, %r0; add.s64 %rd1, %rd1, %rd5; st.u64 [%rd0], %rd1; })");
  ASSERT_NE(module, nullptr);
  const KernelInfo& info = Info(*module->FindKernel("k"));
  ASSERT_EQ(info.parameters.size(), 3u);
  EXPECT_EQ(info.parameters[1].offset, 8u);
  EXPECT_EQ(info.parameters[1].bytes, 24u);
  EXPECT_EQ(info.parameters[2].offset, 32u);
  EXPECT_EQ(info.parameter_bytes, 33u);
  uint64_t out = 0;
  Launch launch;
  launch.parameters = Parameters(&out, uint64_t{1}, uint64_t{20}, uint64_t{300}, uint8_t{7});
  EXPECT_EQ(RunKernel(*module, launch), "");
  EXPECT_EQ(out, 327u);
}

TEST(Atomics, AllOperations) {
  alignas(16) uint32_t words[32] = {};
  words[1] = 1000;
  words[2] = 0xffffffff;
  words[6] = 7;
  words[7] = std::bit_cast<uint32_t>(0.5f);
  EXPECT_EQ(RunTwo(R"(
    atom.global.add.u32 %r1, [%rd0], 1; red.global.min.u32 [%rd0+4], %r0; atom.and.b32 %r2, [%rd0+8], 0xffff00ff;
    shl.b32 %r3, 1, %r0; atom.or.b32 %r2, [%rd0+12], %r3; red.relaxed.gpu.global.max.s32 [%rd0+16], %r0; red.xor.b32 [%rd0+20], %r3;
    atom.inc.u32 %r4, [%rd0+24], 9; atom.add.f32 %r5, [%rd0+28], 0f3F800000; atom.acq_rel.sys.global.add.f64 %rd3, [%rd0+32], 0d3FF0000000000000;
    mov.u32 %r6, 0x3c003c00; atom.add.noftz.f16x2 %r7, [%rd0+40], %r6; atom.cas.b32 %r8, [%rd0+44], 0, %r0; atom.exch.b64 %rd4, [%rd0+48], %rd1;
    mov.b16 %h0, 0x3f80; atom.add.noftz.bf16 %h1, [%rd0+56], %h0; mov.b128 %q0, {%rd1, %rd0}; atom.exch.b128 %q1, [%rd0+64], %q0;
    red.dec.u32 [%rd0+60], 40;)",
                   words, 5, Threads(32)),
            "");
  EXPECT_EQ(words[0], 32u);
  EXPECT_EQ(words[1], 0u);
  EXPECT_EQ(words[2], 0xffff00ffu);
  EXPECT_EQ(words[3], 0xffffffffu);
  EXPECT_EQ(words[4], 31u);
  EXPECT_EQ(words[5], 0xffffffffu);
  EXPECT_EQ(words[6], 9u);  // 7 and 32 steps modulo 10
  EXPECT_EQ(std::bit_cast<float>(words[7]), 32.5f);
  EXPECT_EQ(std::bit_cast<double>(uint64_t{words[9]} << 32 | words[8]), 32.0);
  EXPECT_EQ(words[10], 0x50005000u);
  EXPECT_EQ(words[12], 5u);
  EXPECT_EQ(words[14], 0x4200u);
  EXPECT_EQ(words[15], 9u);
  EXPECT_EQ(words[16], 5u);
}

constexpr char kPass[] = R"(
    .reg .b64 %a<4>; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
    mul.wide.u32 %a0, %r1, 8; add.s64 %a0, %rd0, %a0; setp.eq.u32 %p1, %r1, 0; mov.u32 %r3, 1; @%p1 bra WRITE;
  WAIT: ld.acquire.gpu.global.u32 %r4, [%a0]; setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT;
    ld.global.u32 %r3, [%a0+4];
  WRITE: add.u32 %r3, %r3, %r1; st.global.u32 [%a0+12], %r3; st.release.gpu.global.u32 [%a0+8], 1;
  END: ret;)";

TEST(Flags, BlocksPassDataOn) {
  // Each block waits for its predecessor, even if they start in another order and are starved.
  for (uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    std::vector<uint32_t> words(2 * 33, 0);
    Launch launch = Threads(64, 32);
    launch.options.seed = seed;
    EXPECT_EQ(RunTwo(kPass, words.data(), 0, launch), "") << "seed " << seed;
    EXPECT_EQ(words[65], 1u + 31 * 32 / 2) << "seed " << seed;
  }
}

TEST(Flags, SameSeedSameOrder) {
  const auto order = [](uint64_t seed) {
    std::vector<uint32_t> words(1 + 512, 0);
    Launch launch = Threads(32, 512);
    launch.options.seed = seed;
    EXPECT_EQ(RunTwo(R"(setp.ne.u32 %p0, %r0, 0; @%p0 exit; mov.u32 %r1, %ctaid.x; atom.add.u32 %r2, [%rd0], 1;
                        mul.wide.u32 %rd2, %r2, 4; add.s64 %rd2, %rd2, %rd0; st.u32 [%rd2+4], %r1;)",
                     words.data(), 0, launch),
              "");
    return words;
  };
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
  EXPECT_EQ(order(0)[1], 0u);
}

struct Running {
  std::unique_ptr<Module> module;
  std::unique_ptr<Execution> execution;
};

Running Begin(const std::string& body, void* p0, uint64_t p1, uint32_t threads) {
  Running running;
  running.module = LoadOrFail(KernelText(kPrologue + body, 2));
  LaunchConfig config;
  config.kernel = running.module->FindKernel("k");
  config.block.x = threads;
  config.parameters = Parameters(p0, p1);
  std::string error;
  running.execution = Execution::Start(config, {}, nullptr, &error);
  EXPECT_NE(running.execution, nullptr) << error;
  return running;
}

constexpr char kWaitForFlag[] = R"(
  WAIT: ld.volatile.global.u32 %r1, [%rd0]; setp.ne.u32 %p0, %r1, 1; @%p0 bra WAIT;
    st.global.u32 [%rd0+4], 5;)";

TEST(Waiting, IsReportedWhenAllThreadsPoll) {
  for (const char* body : {kWaitForFlag,
                           // sleeping
                           "WAIT: ld.relaxed.gpu.global.u32 %r1, [%rd0]; nanosleep.u32 100; setp.ne.u32 %p0, %r1, 1; "
                           "@%p0 bra WAIT; st.global.u32 [%rd0+4], 5;",
                           // an atomic that changes nothing
                           "WAIT: atom.global.cas.b32 %r1, [%rd0], 1, 1; setp.ne.u32 %p0, %r1, 1; @%p0 bra WAIT; "
                           "st.global.u32 [%rd0+4], 5;",
                           // one thread polls for all
                           R"(.shared .align 4 .b32 s; setp.ne.u32 %p1, %r0, 0;
                              WAIT: @%p1 bra ALL; ld.volatile.global.u32 %r1, [%rd0]; st.shared.u32 [s], %r1;
                              ALL: bar.sync 0; ld.shared.u32 %r2, [s]; bar.sync 0; setp.ne.u32 %p0, %r2, 1; @%p0 bra WAIT; st.global.u32 [%rd0+4], 5;)"}) {
    uint32_t words[2] = {};
    Running running = Begin(body, words, 0, 96);
    EXPECT_EQ(running.execution->Run(1000000), State::kWaiting) << body;
    EXPECT_EQ(running.execution->Run(1000000), State::kWaiting);
    words[0] = 1;
    EXPECT_EQ(running.execution->Run(1000000), State::kDone);
    EXPECT_EQ(words[1], 5u);
  }
}

TEST(Waiting, IsNotReportedForWork) {
  // Volatile reads of different places and arithmetic are work.
  std::vector<uint32_t> words(4096, 3);
  Running running = Begin(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u64 %rd2, %rd0;
  LOOP: ld.volatile.global.u32 %r3, [%rd2]; add.u32 %r2, %r2, %r3; add.s64 %rd2, %rd2, 4; add.u32 %r1, %r1, 1;
    setp.lt.u32 %p0, %r1, 4096; @%p0 bra LOOP; st.global.u32 [%rd0], %r2;)",
                          words.data(), 0, 32);
  EXPECT_EQ(running.execution->Run(1000000), State::kDone);
  EXPECT_EQ(words[0], 3u * 4096);
}

// Two executions in two threads: one acquires what the other releases. ThreadSanitizer checks this.
void PingPong(const char* store, const char* load) {
  const auto body = [&](bool first) {
    return std::string(R"(
      setp.ne.u32 %p0, %r0, 0; @%p0 exit; mov.u32 %r1, 0;
    LOOP:)") +
           (first ? "" : std::string("W1: ") + load + " %r2, [%rd0]; setp.le.u32 %p1, %r2, %r1; @%p1 bra W1;") + R"(
      ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3; add.u32 %r1, %r1, 1; )" +
           (first ? std::string(store) + " [%rd0], %r1; W2: " + load +
                        " %r2, [%rd0+64]; setp.lt.u32 %p1, %r2, %r1; @%p1 bra W2;"
                  : std::string(store) + " [%rd0+64], %r1;") +
           " setp.lt.u32 %p2, %r1, 100; @%p2 bra LOOP;";
  };
  std::vector<uint32_t> words(64, 0);
  std::vector<std::thread> threads;
  for (const bool first : {true, false}) {
    threads.emplace_back([&, first] {
      Running running = Begin(body(first), words.data(), reinterpret_cast<uint64_t>(words.data() + 32), 32);
      State state;
      while ((state = running.execution->Run(100000)) == State::kRunning || state == State::kWaiting)
        std::this_thread::yield();
      EXPECT_EQ(state, State::kDone) << running.execution->error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(words[32], 200u);
}

TEST(Flags, ExecutionsInTwoThreads) { PingPong("st.release.sys.global.u32", "ld.acquire.sys.global.u32"); }
TEST(Flags, FencesInTwoThreads) {
  PingPong("fence.acq_rel.sys; st.relaxed.sys.global.u32", "fence.acq_rel.sys; ld.acquire.sys.global.u32");
}

TEST(Races, AreFoundBetweenBlocks) {
  const auto race = [](const std::string& body) {
    uint32_t words[64] = {};
    Launch launch = Threads(32, 4);
    launch.options.detect_races = true;
    return RunTwo(body, words, 0, launch);
  };
  EXPECT_NE(race("mov.u32 %r1, %ctaid.x; st.global.u32 [%rd0], %r1;").find("races"), std::string::npos);
  EXPECT_EQ(
      race("mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd0; st.global.u32 [%rd2], %r1;"),
      "");
  EXPECT_EQ(race("red.global.add.u32 [%rd0], 1;"), "");
  // Bytes side by side are different places.
  const std::string at_own_byte = "mov.u32 %r1, %ctaid.x; cvt.u64.u32 %rd2, %r1; add.s64 %rd2, %rd2, %rd0; ";
  EXPECT_EQ(race(at_own_byte + "st.global.u8 [%rd2], %r1;"), "");
  EXPECT_NE(race(at_own_byte + "ld.global.u8 %r2, [%rd2+1]; st.global.u8 [%rd2], %r1;").find("races"),
            std::string::npos);
  EXPECT_EQ(race(kPass), "");
  std::string relaxed = kPass;
  relaxed.replace(relaxed.find("st.release"), 10, "st.relaxed");
  EXPECT_NE(race(relaxed).find("races"), std::string::npos);
}

}  // namespace
}  // namespace softgpu::engine::test
