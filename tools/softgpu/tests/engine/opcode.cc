#include "tools/softgpu/tests/engine/opcode.h"

#include <random>

#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string Body(const OpcodeCase& c) {
  std::string body = R"(
  .reg .pred %p, %q; .reg .b64 %pa, %pb, %pc, %pd, %off, %n; .reg .b32 %t, %x;
  .reg .bIN %a, %b, %c; .reg .bOUT %d, %e;
  mov.u32 %t, %tid.x; mov.u32 %x, %ctaid.x; mad.lo.s32 %t, %x, 256, %t;
  ld.param.u64 %n, [p4]; cvt.u64.u32 %off, %t; setp.ge.u64 %p, %off, %n; @%p exit;
  shl.b64 %off, %off, 3;
  ld.param.u64 %pa, [p0]; ld.param.u64 %pb, [p1]; ld.param.u64 %pc, [p2]; ld.param.u64 %pd, [p3];
  add.s64 %pa, %pa, %off; add.s64 %pb, %pb, %off; add.s64 %pc, %pc, %off; add.s64 %pd, %pd, %off;
  ld.global.bIN %a, [%pa]; ld.global.bIN %b, [%pb]; ld.global.bIN %c, [%pc];
  mov.bOUT %d, 0;
  )" + c.text + "\n  st.global.bOUT [%pd], %d;\n  ret;";
  body = Replace(body, ".bIN", ".b" + std::to_string(c.in_bits));
  return Replace(body, ".bOUT", ".b" + std::to_string(c.out_bits));
}

struct Operands {
  std::vector<uint64_t> a, b, c;
};

Operands MakeOperands(const OpcodeCase& test) {
  std::mt19937_64 random(Seed());
  const std::vector<uint64_t>& edges = test.values != nullptr ? *test.values : EdgeIntegers();
  Operands operands;
  for (uint64_t x : edges) {
    for (uint64_t y : edges) {
      operands.a.push_back(x);
      operands.b.push_back(y);
      operands.c.push_back(edges[random() % edges.size()]);
    }
  }
  for (int i = 0; i < 1000 && test.values == nullptr; ++i) {
    operands.a.push_back(random());
    operands.b.push_back(random() >> (random() % 64));
    operands.c.push_back(random() >> (random() % 64));
  }
  return operands;
}

}  // namespace

const std::vector<uint64_t>& EdgeIntegers() {
  static const std::vector<uint64_t> edges = {0,
                                              1,
                                              2,
                                              3,
                                              7,
                                              15,
                                              16,
                                              17,
                                              31,
                                              32,
                                              33,
                                              63,
                                              64,
                                              65,
                                              255,
                                              0x7f,
                                              0x80,
                                              0x7fff,
                                              0x8000,
                                              0xffff,
                                              0x7fffffff,
                                              0x80000000,
                                              0xffffffff,
                                              0x7fffffffffffffff,
                                              0x8000000000000000,
                                              ~0ull,
                                              ~1ull,
                                              0x0123456789abcdef};
  return edges;
}

void CheckOpcode(const OpcodeCase& test) {
  SCOPED_TRACE(test.text + " (SOFTGPU_SEED=" + std::to_string(Seed()) + ")");
  const auto module = LoadOrFail(KernelText(Body(test), 5));
  ASSERT_NE(module, nullptr);
  const Operands in = MakeOperands(test);
  const uint64_t count = in.a.size();
  std::vector<uint64_t> out(count, 0);
  Launch launch;
  launch.block.x = 256;
  launch.grid.x = static_cast<uint32_t>((count + 255) / 256);
  launch.parameters = Parameters(in.a.data(), in.b.data(), in.c.data(), out.data(), count);
  ASSERT_EQ(RunKernel(*module, launch), "");
  const uint64_t in_mask = test.in_bits == 64 ? ~0ull : (1ull << test.in_bits) - 1;
  const uint64_t out_mask = test.out_bits == 64 ? ~0ull : (1ull << test.out_bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t wanted = test.oracle(in.a[i] & in_mask, in.b[i] & in_mask, in.c[i] & in_mask) & out_mask;
    if (out[i] == wanted || (test.close && test.close(out[i], wanted))) continue;
    ADD_FAILURE() << std::hex << "a=0x" << (in.a[i] & in_mask) << " b=0x" << (in.b[i] & in_mask) << " c=0x"
                  << (in.c[i] & in_mask) << ": 0x" << out[i] << ", not 0x" << wanted;
    return;
  }
}

void CheckOpcodes(const std::vector<OpcodeCase>& cases) {
  for (const OpcodeCase& test : cases) CheckOpcode(test);
}

}  // namespace softgpu::engine::test
