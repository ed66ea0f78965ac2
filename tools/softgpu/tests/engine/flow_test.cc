// Control flow: divergence, loops, calls, switches, scopes.
#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

constexpr char kPrologue[] = R"(
    .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<8>;
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;
)";

// One block of 64 threads; out[i] is the result of thread i.
std::vector<uint32_t> RunThreads(const std::string& body, const std::string& module_scope = "", uint32_t threads = 64) {
  const auto module = LoadOrFail(KernelText(kPrologue + body, 1, module_scope));
  std::vector<uint32_t> out(threads, 0xdeadbeef);
  if (module == nullptr) return out;
  Launch launch;
  launch.block.x = threads;
  launch.parameters = Parameters(out.data());
  EXPECT_EQ(RunKernel(*module, launch), "");
  return out;
}

TEST(Flow, BranchesMeetAgain) {
  const auto out = RunThreads(R"(
    and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; mov.u32 %r2, 7;
    @%p0 bra EVEN;
    add.u32 %r2, %r2, 100;
    bra.uni MEET;
  EVEN:
    add.u32 %r2, %r2, 200;
  MEET:
    activemask.b32 %r3; setp.eq.u32 %p1, %r3, 0xffffffff; @!%p1 mov.u32 %r2, 0;
    st.global.u32 [%rd1], %r2; ret;)");
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 207u : 107u);
}

TEST(Flow, LoopsOfDifferentLength) {
  const auto out = RunThreads(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  LOOP:
    add.u32 %r2, %r2, %r1; add.u32 %r1, %r1, 1; setp.le.u32 %p0, %r1, %r0; @%p0 bra LOOP;
    st.global.u32 [%rd1], %r2;)");
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i * (i + 1) / 2);
}

TEST(Flow, BranchTable) {
  const auto out = RunThreads(R"(
    and.b32 %r1, %r0, 3;
    ts: .branchtargets L0, L1, L2, L3;
    brx.idx %r1, ts;
  L0: mov.u32 %r2, 10; bra END;
  L1: mov.u32 %r2, 11; bra END;
  L2: mov.u32 %r2, 12; bra END;
  L3: mov.u32 %r2, 13;
  END: st.global.u32 [%rd1], %r2;)");
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 10 + i % 4);
}

TEST(Flow, ScopesHideNames) {
  const auto out = RunThreads(R"(
    mov.u32 %r1, 1;
    { .reg .b32 %r1; .reg .pred q; mov.u32 %r1, 50; setp.gt.u32 q, %r0, 31; @q bra DONE; mov.u32 %r1, 60; DONE: add.u32 %r2, %r1, 0; }
    { .reg .pred q; setp.gt.u32 q, %r0, 15; @q bra DONE; add.u32 %r2, %r2, 1; DONE: }
    add.u32 %r2, %r2, %r1; st.global.u32 [%rd1], %r2;)");
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], (i > 31 ? 50 : 60) + (i > 15 ? 0 : 1) + 1u);
}

constexpr char kFunctions[] = R"(
.func (.param .b32 r) twice(.param .b32 x);
.func (.reg .b32 r) three(.reg .b32 x) { add.u32 r, x, x; add.u32 r, r, x; ret; }
.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %a; ld.param.u32 %a, [x]; add.u32 %a, %a, %a; st.param.b32 [r], %a; ret; }
.func (.param .b32 r) plus5(.param .b32 x) { .reg .b32 %a; ld.param.u32 %a, [x]; add.u32 %a, %a, 5; st.param.b32 [r], %a; ret; }
.func (.param .b32 r) factorial(.param .b32 x) {
  .reg .b32 %a, %b; .reg .pred %p;
  ld.param.u32 %a, [x]; setp.le.u32 %p, %a, 1; @%p bra BASE;
  { .param .b32 q; .param .b32 s; add.u32 %b, %a, -1; st.param.b32 [q], %b; call.uni (s), factorial, (q); ld.param.b32 %b, [s]; }
  mul.lo.u32 %a, %a, %b; st.param.b32 [r], %a; ret;
BASE:
  st.param.b32 [r], 1; ret;
}
.global .align 8 .u64 table[2] = {twice, plus5};
)";

TEST(Flow, Calls) {
  const auto out = RunThreads(R"(
    .param .b32 in; .param .b32 back;
    st.param.b32 [in], %r0; call.uni (back), twice, (in); ld.param.b32 %r1, [back];
    call (%r2), three, (%r1); st.global.u32 [%rd1], %r2;)",
                              kFunctions);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 6 * i);
}

// Each function has an array in local memory and registers that must survive the calls that it makes.
std::string Nested(const std::string& name, const std::string& inner, int addend) {
  const std::string call =
      "{ .param .b32 q; .param .b32 s; st.param.b32 [q], %b; call.uni (s), " + inner + ", (q); ld.param.b32 %b, [s]; }";
  return ".func (.param .b32 r) " + name + R"((.param .b32 x) {
    .local .align 4 .b8 kept[64]; .reg .b32 %a, %b, %c, %i; .reg .b64 %l; .reg .pred %p, %more;
    ld.param.u32 %a, [x]; mov.u64 %l, kept; st.local.u32 [%l+60], %a; and.b32 %i, %a, 3; setp.ge.u32 %p, %i, 2;
    AGAIN: add.u32 %b, %a, %i;)" +
         (inner.empty() ? "" : call) + R"(
    ld.local.u32 %c, [%l+60]; add.u32 %c, %c, %b; @%p add.u32 %c, %c, 1; add.u32 %c, %c, )" +
         std::to_string(addend) + R"(; st.local.u32 [%l+60], %c;
    add.u32 %i, %i, -1; setp.ge.s32 %more, %i, 0; @%more bra AGAIN;
    st.param.b32 [r], %c; ret; })";
}

uint32_t NestedBy(uint32_t x, const std::vector<uint32_t>& addends) {
  uint32_t kept = x;
  for (auto i = static_cast<int>(x & 3); i >= 0; --i) {
    uint32_t b = x + static_cast<uint32_t>(i);
    if (addends.size() > 1) b = NestedBy(b, {addends.begin() + 1, addends.end()});
    kept += b + ((x & 3) >= 2 ? 1 : 0) + addends[0];
  }
  return kept;
}

TEST(Flow, FunctionsThatAreNeverUnderWayTogetherShareTheirPlaces) {
  const std::string functions = Nested("inner", "", 7) + Nested("middle", "inner", 100) +
                                Nested("left", "middle", 1000) + Nested("right", "inner", 20000);
  const std::string body = R"(.param .b32 in; .param .b32 back; .reg .pred %even;
    st.param.b32 [in], %r0; and.b32 %r1, %r0, 1; setp.eq.u32 %even, %r1, 0; @%even bra LEFT;
    call.uni (back), right, (in); bra END; LEFT: call.uni (back), left, (in);
    END: ld.param.b32 %r2, [back]; add.u32 %r2, %r2, %r1; st.global.u32 [%rd1], %r2;)";
  const auto out = RunThreads(body, functions);
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t odd = i % 2;
    EXPECT_EQ(out[i],
              odd + NestedBy(i, odd == 1 ? std::vector<uint32_t>{20000, 7} : std::vector<uint32_t>{1000, 100, 7}));
  }
  // Of three of the four, as the longest chain of calls has.
  const auto module = LoadOrFail(KernelText(kPrologue + body, 1, functions));
  const uint32_t bytes = Info(*module->FindKernel("k")).local_bytes;
  EXPECT_GE(bytes, 3 * 64u);
  EXPECT_LT(bytes, 4 * 80u);
}

TEST(Flow, CallsByAddressDiverge) {
  const auto out = RunThreads(R"(
    .param .b32 in; .param .b32 back;
    and.b32 %r1, %r0, 1; mul.wide.u32 %rd2, %r1, 8; mov.u64 %rd3, table; add.s64 %rd3, %rd3, %rd2; ld.global.u64 %rd4, [%rd3];
    st.param.b32 [in], %r0;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (back), %rd4, (in), proto; ld.param.b32 %r2, [back]; st.global.u32 [%rd1], %r2;)",
                              kFunctions);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 2 * i : i + 5);
}

TEST(Flow, Recursion) {
  const auto out = RunThreads(R"(
    .param .b32 in; .param .b32 back; and.b32 %r1, %r0, 7;
    st.param.b32 [in], %r1; call.uni (back), factorial, (in); ld.param.b32 %r1, [back]; st.global.u32 [%rd1], %r1;)",
                              kFunctions);
  constexpr uint32_t wanted[] = {1, 1, 2, 6, 24, 120, 720, 5040};
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], wanted[i % 8]);
}

TEST(Flow, SpecialRegisters) {
  const auto out = RunThreads(R"(
    mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mov.u32 %r3, %ntid.x; mov.u32 %r4, %lanemask_lt; popc.b32 %r4, %r4;
    mul.lo.u32 %r2, %r2, 1000; mad.lo.u32 %r2, %r3, 10000, %r2; mad.lo.u32 %r2, %r1, 1, %r2; sub.u32 %r4, %r4, %r1; add.u32 %r2, %r2, %r4;
    st.global.u32 [%rd1], %r2;)");
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 640000 + i / 32 * 1000 + i % 32);
}

TEST(Flow, LanesThatSpinStarveNoLane) {
  // Lane 0 waits for lane 1 of its own warp, in a loop before the code of lane 1, without any barrier.
  const auto out = RunThreads(R"(
    setp.ne.u32 %p0, %r0, 0; @%p0 bra OTHERS;
  SPIN: ld.volatile.global.u32 %r1, [%rd0+4]; setp.ne.u32 %p1, %r1, 77; @%p1 bra SPIN;
    st.global.u32 [%rd1], 1; ret;
  OTHERS: setp.ne.u32 %p0, %r0, 1; @%p0 ret;
    mov.u32 %r2, 0;
  WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 5000; @%p1 bra WORK;
    st.volatile.global.u32 [%rd1], 77;)");
  EXPECT_EQ(out[0], 1u);
  EXPECT_EQ(out[1], 77u);
}

TEST(Flow, LanesThatSpinOnWeakLoadsStarveNoLane) {
  const auto out = RunThreads(R"(
    setp.ne.u32 %p0, %r0, 0; @%p0 bra OTHERS;
  SPIN: ld.global.u32 %r1, [%rd0+4]; setp.ne.u32 %p1, %r1, 77; @%p1 bra SPIN;
    st.global.u32 [%rd1], 1; ret;
  OTHERS: setp.ne.u32 %p0, %r0, 1; @%p0 ret;
    st.global.u32 [%rd1], 77;)");
  EXPECT_EQ(out[0], 1u);
}

TEST(Flow, VariablesAndInitialisers) {
  const auto out = RunThreads(R"(
    ld.const.u32 %r1, [c+4]; ld.global.u64 %rd2, [pointer]; ld.u32 %r2, [%rd2]; ld.global.f32 %r3, [f];
    cvta.const.u64 %rd3, c; ld.u32 %r4, [%rd3+8]; ld.global.u8 %r5, [bytes+1]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    setp.ne.u32 %p0, %r3, 0x3fc00000; @%p0 mov.u32 %r1, 0; st.global.u32 [%rd1], %r1;)",
                              R"(
    .const .align 4 .u32 c[3] = {1, 20, 300};
    .global .align 4 .u32 x[2] = {4000, 50000};
    .global .align 8 .u64 pointer = generic(x)+4;
    .visible .global .align 4 .f32 f = 0f3FC00000;
    .global .align 1 .b8 bytes[3] = {1, 2};)");
  EXPECT_EQ(out[0], 20u + 50000 + 300 + 2);
}

TEST(Flow, LocalArrays) {
  const auto out = RunThreads(R"(
    .local .align 4 .b8 depot[40]; .reg .b64 %SP, %SPL;
    mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL; mov.u32 %r1, 0;
  FILL: mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %SP, %rd2; mad.lo.u32 %r2, %r1, 100, %r0; st.u32 [%rd3], %r2;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 10; @%p0 bra FILL;
    and.b32 %r3, %r0, 7; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %SPL, %rd2; ld.local.u32 %r4, [%rd3]; st.global.u32 [%rd1], %r4;)");
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 8 * 100 + i);
}

}  // namespace
}  // namespace softgpu::engine::test
