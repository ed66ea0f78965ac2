// What is counted of a kernel's warps (trace.h).
#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

// Of a kernel whose first parameter is an address of zeros.
Effort EffortOf(const std::string& body, uint32_t threads = 32) {
  static uint64_t zeros[8] = {};
  const auto module = LoadOrFail(KernelText(R"(
    .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<12>; .shared .align 8 .b8 own[64];
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0];
)" + body,
                                            1));
  if (module == nullptr) return {};
  Launch launch;
  launch.block.x = threads;
  launch.options.trace = true;
  launch.parameters = Parameters(reinterpret_cast<uint64_t>(zeros));
  ForgetEfforts();
  EXPECT_EQ(RunKernel(*module, launch), "");
  return LeastEffort();
}

TEST(Trace, LoadsTogetherAreOneTrip) {
  EXPECT_EQ(EffortOf("st.global.u32 [%rd0], 0;").trips, 0u);
  EXPECT_EQ(EffortOf(R"(ld.global.u32 %r1, [%rd0]; ld.u32 %r2, [%rd0+8]; ld.global.v2.u32 {%r3, %r4}, [%rd0+16];
    add.u32 %r1, %r1, %r4; st.global.u32 [%rd0+32], %r1;)")
                .trips,
            1u);
  EXPECT_EQ(EffortOf("ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+32], 0;").trips, 0u) << "nothing reads it";
}

TEST(Trace, LoadsBehindAUseAreAnother) {
  EXPECT_EQ(EffortOf(R"(ld.global.u64 %rd1, [%rd0]; add.u64 %rd1, %rd1, %rd0; ld.global.u32 %r1, [%rd1];
    st.global.u32 [%rd0+32], %r1;)")
                .trips,
            2u);
  EXPECT_EQ(EffortOf(R"(ld.global.u32 %r1, [%rd0]; st.shared.u32 [own], %r1; ld.global.u32 %r2, [%rd0+8];
    st.shared.u32 [own+4], %r2; st.global.u32 [%rd0+32], 0;)")
                .trips,
            2u);
  EXPECT_EQ(EffortOf("atom.global.add.u32 %r1, [%rd0], 0; st.global.u32 [%rd0+32], %r1;").trips, 1u);
}

TEST(Trace, BarriersPassTripsOn) {
  EXPECT_EQ(EffortOf(R"(setp.lt.u32 %p1, %r0, 32; @%p1 bra SECOND; ld.global.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1;
    SECOND: bar.sync 0; @!%p1 bra END; ld.global.u32 %r2, [%rd0]; st.global.u32 [%rd0+32], %r2; END: ret;)",
                     64)
                .trips,
            2u);
}

TEST(Trace, OtherMemoryAndWhatFollowsTheLastStoreIsFree) {
  EXPECT_EQ(EffortOf(R"(mov.u64 %rd1, own; cvta.shared.u64 %rd1, %rd1; st.u32 [%rd1], 1; ld.u32 %r1, [%rd1];
    ld.shared.u32 %r2, [own]; add.u32 %r1, %r1, %r2; st.global.u32 [%rd0+32], 0;)")
                .trips,
            0u);
  EXPECT_EQ(EffortOf("st.global.u32 [%rd0+32], 0; ld.global.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1;").trips, 0u);
}

TEST(Trace, CountsInstructions) {
  EXPECT_EQ(
      EffortOf("add.u32 %r1, %r0, 1; add.u32 %r1, %r1, 1; st.global.u32 [%rd0+32], 0; mov.u32 %r1, 0;").instructions,
      5u);
}

}  // namespace
}  // namespace softgpu::engine::test
