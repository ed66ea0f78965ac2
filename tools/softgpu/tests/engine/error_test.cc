// Programs that must end in an error, and the text of the error.
#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

constexpr char kPrologue[] = R"(
.reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<12>; mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0];
)";

std::string RunChecked(const std::string& body, uint32_t threads = 64, Dim3 grid = {}) {
  alignas(16) static uint32_t memory[64];
  Ranges ranges;
  ranges.Add(memory, sizeof memory);
  const auto module = LoadOrFail(KernelText(kPrologue + body, 1));
  Launch launch;
  launch.block.x = threads;
  launch.grid = grid;
  launch.map = &ranges;
  launch.parameters = Parameters(static_cast<void*>(memory));
  return RunKernel(*module, launch);
}

void ExpectParts(const std::string& error, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(error.find(part), std::string::npos) << "no '" << part << "' in: " << error;
}

TEST(Error, AddressOutsideOfMemory) {
  ExpectParts(RunChecked("mul.wide.u32 %rd1, %r0, 8; add.s64 %rd1, %rd1, %rd0;\nst.global.u32 [%rd1], 1;"),
              {"kernel 'k'", "block (0, 0, 0)", "thread (32, 0, 0)", "line 10", "st.global.u32 [%rd1], 1", "0x",
               "is in no allocated memory"});
  EXPECT_EQ(RunChecked("mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0;\nst.global.u32 [%rd1], 1;"), "");
  ExpectParts(RunChecked("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+256];"), {"ld.global.v4.u32", "of 16 bytes"});
  ExpectParts(RunChecked("mov.u64 %rd1, 0; atom.global.add.u32 %r1, [%rd1], 1;", 32, {5, 1, 1}),
              {"atom.global.add", "address 0x0 "});
}

TEST(Error, SharedAndLocalWindows) {
  ExpectParts(RunChecked(".shared .b8 s[16]; mov.u32 %r1, 16; st.shared.u8 [%r1], 1;"), {"outside the shared memory"});
  ExpectParts(RunChecked(".local .b8 l[16]; mov.u64 %rd1, l; add.s64 %rd1, %rd1, 1048576; st.local.u8 [%rd1], 1;"),
              {"outside the local memory"});
}

TEST(Error, MisalignedAddress) {
  ExpectParts(RunChecked("ld.global.u32 %r1, [%rd0+2];"), {"is not aligned", "ld.global.u32"});
  ExpectParts(RunChecked("st.volatile.global.v2.u64 [%rd0+8], {%rd0, %rd0};"), {"is not aligned", "of 16 bytes"});
}

TEST(Error, Trap) { ExpectParts(RunChecked("setp.eq.u32 %p0, %r0, 40; @%p0 trap;"), {"thread (40, 0, 0)", "trap"}); }

TEST(Error, BarriersThatNoThreadLeaves) {
  ExpectParts(RunChecked("setp.lt.u32 %p0, %r0, 32; @%p0 bra OTHER; bar.sync 0; ret; OTHER: bar.sync 1;"),
              {"bar.sync", "none of them can go on"});
  ExpectParts(RunChecked("setp.lt.u32 %p0, %r0, 7; @%p0 bra OTHER; bar.warp.sync -1; ret; OTHER: bar.sync 0;", 32),
              {"none of them can go on"});
  ExpectParts(RunChecked("bar.sync 2, 96;"), {"bar.sync 2, 96"});
}

TEST(Error, UnknownInstructionsOnlyMatterWhereTheyRun) {
  std::string error;
  const auto module = Module::Load(
      ".version 8.0\n.visible .entry good() { .reg .b32 %a; add.u32 %a, 1, 2; ret; }\n"
      ".visible .entry bad() {\n .reg .b32 %a;\n tensormap.replace.x %a;\n ret; }\n"
      ".visible .entry odd() {\n .reg .b32 %a;\n add.u32.wobbly %a, %a, 1;\n ret; }\n"
      ".visible .entry lost() {\n add.u32 %nowhere, 1, 1; ret; }\n"
      ".visible .entry label() {\n bra NOWHERE; }\n",
      &error);
  ASSERT_NE(module, nullptr) << error;
  const auto start = [&](const char* name) {
    Launch launch;
    launch.kernel = name;
    return RunKernel(*module, launch);
  };
  EXPECT_EQ(start("good"), "");
  ExpectParts(start("bad"), {"kernel 'bad'", "line 5", "tensormap.replace.x %a", "unknown instruction 'tensormap'"});
  ExpectParts(start("odd"), {"line 9", "'.wobbly'"});
  ExpectParts(start("lost"), {"%nowhere"});
  ExpectParts(start("label"), {"NOWHERE"});
}

TEST(Error, FunctionsThatAreNotUnderstoodOnlyMatterWhereTheyAreCalled) {
  const auto module = LoadOrFail(KernelText(
      R"(.reg .pred %p; .reg .b64 %a; ld.param.u64 %a, [p0]; setp.eq.u64 %p, %a, 0; @%p bra END;
setp.eq.u64 %p, %a, 1; @%p bra LOST;
call odd; bra END; LOST: call lost; END: ret;)",
      1,
      ".func odd() {\n .reg .b32 %a;\n add.u32.wobbly %a, %a, 1;\n ret; }\n.func lost() { add.u32 %nowhere, 1, 1; }"));
  const auto start = [&](uint64_t which) {
    Launch launch;
    launch.parameters = Parameters(which);
    return RunKernel(*module, launch);
  };
  EXPECT_EQ(start(0), "");
  ExpectParts(start(1), {"call lost", "line 8", "%nowhere"});
  ExpectParts(start(2), {"call odd", "line 6", "'.wobbly'"});
  EXPECT_EQ(start(0), "");
  ExpectParts(DecodeAll(*module->FindKernel("k")), {"'.wobbly'"});
}

TEST(Error, TextThatIsNoPtx) {
  std::string error;
  EXPECT_EQ(Module::Load(".version 8.0\nhello world", &error), nullptr);
  ExpectParts(error, {"line 2", "hello"});
  EXPECT_EQ(Module::Load(".visible .entry k(.param .u64 a", &error), nullptr);
  EXPECT_EQ(Module::Load(".global .u32 x = y;", &error), nullptr);
  ExpectParts(error, {"'x'", "'y'"});
}

TEST(Error, Launches) {
  const auto module = LoadOrFail(".version 8.0\n.visible .entry k(.param .u64 a) .maxntid 64, 1, 1 { ret; }");
  Launch launch;
  ExpectParts(RunKernel(*module, launch), {"parameters", "8 are needed"});
  launch.parameters = Parameters(uint64_t{0});
  launch.block.x = 65;
  ExpectParts(RunKernel(*module, launch), {"65 threads", "1 to 64"});
  launch.block.x = 64;
  EXPECT_EQ(RunKernel(*module, launch), "");
  launch.grid.y = 0;
  ExpectParts(RunKernel(*module, launch), {"empty grid"});
}

TEST(Error, Assertions) {
  const char text[] = R"(.version 8.0
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 what[6] = {120, 32, 62, 32, 51};
.visible .entry k() { .reg .b64 %rd<2>; mov.u64 %rd0, what; cvta.global.u64 %rd1, %rd0;
  { .param .b64 p0; st.param.b64 [p0], %rd1; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4; call.uni __assertfail, (p0, p1, p2, p3, p4); }
  ret; })";
  const auto module = LoadOrFail(text);
  ExpectParts(RunKernel(*module, {}), {"assertion failed: x > 3"});
}

}  // namespace
}  // namespace softgpu::engine::test
