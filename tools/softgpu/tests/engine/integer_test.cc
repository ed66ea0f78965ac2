// Integer, logic, shift and bit-field instructions, compared with host arithmetic.
#include <algorithm>
#include <bit>

#include "tools/softgpu/tests/engine/launch.h"
#include "tools/softgpu/tests/engine/opcode.h"

namespace softgpu::engine::test {
namespace {

using u64 = uint64_t;
using Wide = __int128;

// Oracles work on the mathematical values of the operands.
Wide Value(u64 bits, char kind, int width) {
  if (kind == 'u') return bits;
  const int shift = 64 - width;
  return static_cast<int64_t>(bits << shift) >> shift;
}

struct Shape {
  const char* type;
  char kind;
  int width;
};
constexpr Shape kShapes[] = {{"u16", 'u', 16}, {"s16", 's', 16}, {"u32", 'u', 32},
                             {"s32", 's', 32}, {"u64", 'u', 64}, {"s64", 's', 64}};

using Math = Wide (*)(Wide a, Wide b, Wide c, int width);

void ForShapes(const std::string& opcode, const std::string& operands, Math math) {
  for (const Shape& shape : kShapes) {
    CheckOpcode({opcode + "." + shape.type + " " + operands, shape.width, shape.width, [=](u64 a, u64 b, u64 c) {
                   return static_cast<u64>(math(Value(a, shape.kind, shape.width), Value(b, shape.kind, shape.width),
                                                Value(c, shape.kind, shape.width), shape.width));
                 }});
  }
}

TEST(Integer, AddSubtractMultiply) {
  ForShapes("add", "%d, %a, %b;", [](Wide a, Wide b, Wide, int) { return a + b; });
  ForShapes("sub", "%d, %a, %b;", [](Wide a, Wide b, Wide, int) { return a - b; });
  ForShapes("mul.lo", "%d, %a, %b;",
            [](Wide a, Wide b, Wide, int) { return static_cast<Wide>(static_cast<u64>(a) * static_cast<u64>(b)); });
  ForShapes("mad.lo", "%d, %a, %b, %c;", [](Wide a, Wide b, Wide c, int) {
    return static_cast<Wide>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
  });
}

TEST(Integer, HighHalves) {
  ForShapes("mul.hi", "%d, %a, %b;", [](Wide a, Wide b, Wide, int width) {
    if (a < 0 || b < 0) return (a * b) >> width;
    return static_cast<Wide>((static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b)) >> width);
  });
  ForShapes("mad.hi", "%d, %a, %b, %c;", [](Wide a, Wide b, Wide c, int width) {
    if (a < 0 || b < 0) return ((a * b) >> width) + c;
    return static_cast<Wide>((static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b)) >> width) + c;
  });
}

TEST(Integer, DivideMinMax) {
  // Division by zero and the overflow of the smallest value have the results of GPUs.
  ForShapes("div", "%d, %a, %b;", [](Wide a, Wide b, Wide, int) { return b == 0 ? Wide{-1} : a / b; });
  ForShapes("rem", "%d, %a, %b;", [](Wide a, Wide b, Wide, int) { return b == 0 ? a : a % b; });
  ForShapes("min", "%d, %a, %b;", [](Wide a, Wide b, Wide, int) { return std::min(a, b); });
  ForShapes("max", "%d, %a, %b;", [](Wide a, Wide b, Wide, int) { return std::max(a, b); });
  ForShapes("sad", "%d, %a, %b, %c;", [](Wide a, Wide b, Wide c, int) { return c + (a < b ? b - a : a - b); });
}

TEST(Integer, WideProducts) {
  const auto u32 = [](u64 a) { return a & 0xffffffff; };
  const auto s32 = [](u64 a) { return static_cast<u64>(static_cast<int64_t>(static_cast<int32_t>(a))); };
  CheckOpcodes({
      {"mul.wide.u32 %d, %a, %b;", 32, 64, [=](u64 a, u64 b, u64) { return u32(a) * u32(b); }},
      {"mul.wide.s32 %d, %a, %b;", 32, 64, [=](u64 a, u64 b, u64) { return s32(a) * s32(b); }},
      {"mul.wide.s16 %d, %a, %b;", 16, 32,
       [](u64 a, u64 b, u64) { return static_cast<u64>(int32_t{static_cast<int16_t>(a)} * static_cast<int16_t>(b)); }},
      {"{ .reg .b64 %w; cvt.u64.u32 %w, %c; mad.wide.u32 %d, %a, %b, %w; }", 32, 64,
       [=](u64 a, u64 b, u64 c) { return u32(a) * u32(b) + u32(c); }},
      {"abs.s32 %d, %a;", 32, 32, [=](u64 a, u64, u64) { return static_cast<int32_t>(a) < 0 ? 0 - a : a; }},
      {"neg.s64 %d, %a;", 64, 64, [](u64 a, u64, u64) { return 0 - a; }},
      {"add.sat.s32 %d, %a, %b;", 32, 32,
       [](u64 a, u64 b, u64) {
         return static_cast<u64>(
             std::clamp<int64_t>(int64_t{static_cast<int32_t>(a)} + static_cast<int32_t>(b), INT32_MIN, INT32_MAX));
       }},
      {"mul24.lo.u32 %d, %a, %b;", 32, 32, [](u64 a, u64 b, u64) { return (a & 0xffffff) * (b & 0xffffff); }},
      {"mul24.hi.u32 %d, %a, %b;", 32, 32, [](u64 a, u64 b, u64) { return ((a & 0xffffff) * (b & 0xffffff)) >> 16; }},
      {"dp4a.s32.u32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) {
         for (int k = 0; k < 4; ++k)
           c += static_cast<u64>(static_cast<int8_t>(a >> (8 * k)) * static_cast<int>(b >> (8 * k) & 0xff));
         return c;
       }},
      {"max.s16x2.relu %d, %a, %b;", 32, 32,
       [](u64 a, u64 b, u64) {
         u64 result = 0;
         for (int k = 0; k < 32; k += 16)
           result |= static_cast<u64>(static_cast<uint16_t>(
                         std::max({static_cast<int16_t>(a >> k), static_cast<int16_t>(b >> k), int16_t{0}})))
                     << k;
         return result;
       }},
  });
}

TEST(Integer, Carries) {
  CheckOpcodes({
      // 128-bit values of the halves (a, b) and (b, c).
      {"{ .reg .b64 %lo; add.cc.u64 %lo, %a, %b; addc.u64 %d, %b, %c; }", 64, 64,
       [](u64 a, u64 b, u64 c) { return b + c + (a + b < a); }},
      {"{ .reg .b64 %lo; sub.cc.u64 %lo, %a, %b; subc.u64 %d, %b, %c; }", 64, 64,
       [](u64 a, u64 b, u64 c) { return b - c - (a < b); }},
      {"{ .reg .b32 %lo; mad.lo.cc.u32 %lo, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0; }", 32, 32,
       [](u64 a, u64 b, u64 c) { return (a * b + c) >> 32; }},
      {"{ .reg .b32 %u, %v; add.cc.u32 %u, %a, %b; addc.cc.u32 %v, %a, %a; addc.u32 %d, %c, 0; }", 32, 32,
       [](u64 a, u64 b, u64 c) {
         const u64 first = (a + b) >> 32;
         return c + ((a + a + first) >> 32);
       }},
  });
}

TEST(Integer, Logic) {
  CheckOpcodes({
      {"and.b32 %d, %a, %b;", 32, 32, [](u64 a, u64 b, u64) { return a & b; }},
      {"or.b64 %d, %a, %b;", 64, 64, [](u64 a, u64 b, u64) { return a | b; }},
      {"xor.b16 %d, %a, %b;", 16, 16, [](u64 a, u64 b, u64) { return a ^ b; }},
      {"not.b64 %d, %a;", 64, 64, [](u64 a, u64, u64) { return ~a; }},
      {"cnot.b32 %d, %a;", 32, 32, [](u64 a, u64, u64) { return u64{a == 0}; }},
      {"lop3.b32 %d, %a, %b, %c, 0x96;", 32, 32, [](u64 a, u64 b, u64 c) { return a ^ b ^ c; }},
      {"lop3.b32 %d, %a, %b, %c, 0xca;", 32, 32, [](u64 a, u64 b, u64 c) { return (a & b) | (~a & c); }},
      {"lop3.b32 %d, %a, %b, %c, 0x1b;", 32, 32,
       [](u64 a, u64 b, u64 c) {
         u64 result = 0;
         for (int k = 0; k < 32; ++k)
           result |= u64{0x1bu >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1} << k;
         return result;
       }},
  });
}

TEST(Integer, Shifts) {
  CheckOpcodes({
      {"{ .reg .b32 %s; cvt.u32.u64 %s, %b; shl.b64 %d, %a, %s; }", 64, 64,
       [](u64 a, u64 b, u64) { return static_cast<uint32_t>(b) >= 64 ? 0 : a << static_cast<uint32_t>(b); }},
      {"{ .reg .b32 %s; cvt.u32.u64 %s, %b; shr.s64 %d, %a, %s; }", 64, 64,
       [](u64 a, u64 b, u64) {
         return static_cast<u64>(static_cast<int64_t>(a) >> std::min<uint32_t>(static_cast<uint32_t>(b), 63));
       }},
      {"shl.b32 %d, %a, %b;", 32, 32, [](u64 a, u64 b, u64) { return b >= 32 ? 0 : a << b; }},
      {"shr.u32 %d, %a, %b;", 32, 32, [](u64 a, u64 b, u64) { return b >= 32 ? 0 : a >> b; }},
      {"shr.s32 %d, %a, %b;", 32, 32,
       [](u64 a, u64 b, u64) { return static_cast<u64>(static_cast<int32_t>(a) >> std::min<u64>(b, 31)); }},
      {"{ .reg .b32 %s; cvt.u32.u16 %s, %b; shr.s16 %d, %a, %s; }", 16, 16,
       [](u64 a, u64 b, u64) { return static_cast<u64>(static_cast<int16_t>(a) >> std::min<u64>(b, 15)); }},
      {"shf.l.wrap.b32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) { return (c & 31) == 0 ? b : b << (c & 31) | a >> (32 - (c & 31)); }},
      {"shf.r.wrap.b32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) { return (c & 31) == 0 ? a : a >> (c & 31) | b << (32 - (c & 31)); }},
      {"shf.l.clamp.b32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) { return c >= 32  ? a
                                        : c == 0 ? b
                                                 : b << c | a >> (32 - c); }},
      {"shf.r.clamp.b32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) { return c >= 32  ? b
                                        : c == 0 ? a
                                                 : a >> c | b << (32 - c); }},
  });
}

u64 SlowExtract(u64 a, u64 position, u64 length, int width, bool is_signed) {
  position &= 0xff, length &= 0xff;
  const int top = width - 1;
  const bool sign =
      is_signed && length != 0 && (a >> std::min<u64>(position + length - 1, static_cast<u64>(top)) & 1) != 0;
  u64 result = 0;
  for (u64 i = 0; i <= static_cast<u64>(top); ++i) {
    const bool inside = i < length && position + i <= static_cast<u64>(top);
    result |= u64{inside ? (a >> (position + i) & 1) != 0 : sign} << i;
  }
  return result;
}

u64 SlowInsert(u64 a, u64 b, u64 position, u64 length, int width) {
  for (u64 i = 0; i < (length & 0xff) && (position & 0xff) + i < static_cast<u64>(width); ++i) {
    const u64 at = (position & 0xff) + i;
    b = (b & ~(1ull << at)) | (a >> i & 1) << at;
  }
  return b;
}

TEST(Integer, BitFields) {
  CheckOpcodes({
      {"bfe.u32 %d, %a, %b, %c;", 32, 32, [](u64 a, u64 b, u64 c) { return SlowExtract(a, b, c, 32, false); }},
      {"bfe.s32 %d, %a, %b, %c;", 32, 32, [](u64 a, u64 b, u64 c) { return SlowExtract(a, b, c, 32, true); }},
      {"{ .reg .b32 %x1, %x2; cvt.u32.u64 %x1, %b; cvt.u32.u64 %x2, %c; bfe.u64 %d, %a, %x1, %x2; }", 64, 64,
       [](u64 a, u64 b, u64 c) { return SlowExtract(a, b, c, 64, false); }},
      {"{ .reg .b32 %x1, %x2; cvt.u32.u64 %x1, %b; cvt.u32.u64 %x2, %c; bfe.s64 %d, %a, %x1, %x2; }", 64, 64,
       [](u64 a, u64 b, u64 c) { return SlowExtract(a, b, c, 64, true); }},
      {"bfi.b32 %d, %a, %b, %c, 9;", 32, 32, [](u64 a, u64 b, u64 c) { return SlowInsert(a, b, c, 9, 32); }},
      {"{ .reg .b32 %x1; cvt.u32.u64 %x1, %c; bfi.b64 %d, %a, %b, 12, %x1; }", 64, 64,
       [](u64 a, u64 b, u64 c) { return SlowInsert(a, b, 12, c, 64); }},
      {"popc.b64 %d, %a;", 64, 32, [](u64 a, u64, u64) { return static_cast<u64>(std::popcount(a)); }},
      {"clz.b32 %d, %a;", 32, 32,
       [](u64 a, u64, u64) { return static_cast<u64>(std::countl_zero(static_cast<uint32_t>(a))); }},
      {"brev.b32 %d, %a;", 32, 32,
       [](u64 a, u64, u64) {
         u64 result = 0;
         for (int i = 0; i < 32; ++i) result = result << 1 | (a >> i & 1);
         return result;
       }},
      {"bfind.u32 %d, %a;", 32, 32,
       [](u64 a, u64, u64) {
         return a == 0 ? ~0ull : 31ull - static_cast<u64>(std::countl_zero(static_cast<uint32_t>(a)));
       }},
      {"bfind.shiftamt.s32 %d, %a;", 32, 32,
       [](u64 a, u64, u64) {
         const uint32_t bits = static_cast<int32_t>(a) < 0 ? ~static_cast<uint32_t>(a) : static_cast<uint32_t>(a);
         return bits == 0 ? ~0ull : static_cast<u64>(std::countl_zero(bits));
       }},
      {"prmt.b32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) {
         u64 result = 0;
         for (int i = 0; i < 4; ++i) {
           const u64 selector = c >> (4 * i) & 15, byte = ((b << 32 | a) >> (8 * (selector & 7))) & 0xff;
           result |= (selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (8 * i);
         }
         return result;
       }},
      {"prmt.b32.rc8 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64, u64 c) { return (a >> (8 * (c & 3)) & 0xff) * 0x01010101; }},
  });
}

TEST(Integer, Comparisons) {
  const auto one = [](bool value) { return u64{value}; };
  CheckOpcodes({
      {"setp.lt.s32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", 32, 32,
       [=](u64 a, u64 b, u64) { return one(static_cast<int32_t>(a) < static_cast<int32_t>(b)); }},
      {"setp.lo.u32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", 32, 32, [=](u64 a, u64 b, u64) { return one(a < b); }},
      {"setp.ge.s64 %p|%q, %a, %b; selp.b64 %d, %a, %b, %q;", 64, 64,
       [=](u64 a, u64 b, u64) { return static_cast<int64_t>(a) >= static_cast<int64_t>(b) ? b : a; }},
      {"setp.ne.b32 %q, %c, 0; setp.eq.and.s16 %p, 5, 5, !%q; selp.u32 %d, 1, 0, %p;", 32, 32,
       [=](u64, u64, u64 c) { return one(c == 0); }},
      {"set.gt.u32.s32 %d, %a, %b;", 32, 32,
       [](u64 a, u64 b, u64) { return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? 0xffffffffull : 0; }},
      {"slct.b32.s32 %d, %a, %b, %c;", 32, 32,
       [](u64 a, u64 b, u64 c) { return static_cast<int32_t>(c) >= 0 ? a : b; }},
      {"setp.eq.s32 %p, %a, %b; not.pred %q, %p; xor.pred %p, %p, %q; selp.u32 %d, 1, 0, %p;", 32, 32,
       [=](u64, u64, u64) { return one(true); }},
  });
}

TEST(Integer, Conversions) {
  CheckOpcodes({
      {"cvt.s32.s8 %d, %a;", 32, 32, [](u64 a, u64, u64) { return static_cast<u64>(static_cast<int8_t>(a)); }},
      {"cvt.s64.s32 %d, %a;", 32, 64,
       [](u64 a, u64, u64) { return static_cast<u64>(int64_t{static_cast<int32_t>(a)}); }},
      {"cvt.u64.u32 %d, %a;", 32, 64, [](u64 a, u64, u64) { return a; }},
      {"cvt.u8.u32 %d, %a;", 32, 32, [](u64 a, u64, u64) { return a & 0xff; }},
      {"cvt.s8.s32 %d, %a;", 32, 32, [](u64 a, u64, u64) { return static_cast<u64>(static_cast<int8_t>(a)); }},
      {"cvt.sat.u8.s32 %d, %a;", 32, 32,
       [](u64 a, u64, u64) { return static_cast<u64>(std::clamp(static_cast<int32_t>(a), 0, 255)); }},
      {"cvt.sat.s16.s64 %d, %a;", 64, 32,
       [](u64 a, u64, u64) { return static_cast<u64>(std::clamp<int64_t>(static_cast<int64_t>(a), -32768, 32767)); }},
      {"cvt.pack.sat.s16.s32 %d, %a, %b;", 32, 32,
       [](u64 a, u64 b, u64) {
         const auto half = [](u64 x) {
           return static_cast<u64>(std::clamp(static_cast<int32_t>(x), -32768, 32767)) & 0xffff;
         };
         return half(a) << 16 | half(b);
       }},
      {"mov.b64 %d, {%a, %b};", 32, 64, [](u64 a, u64 b, u64) { return b << 32 | a; }},
      {"{ .reg .b32 %lo; mov.b64 {%lo, %d}, %a; }", 64, 32, [](u64 a, u64, u64) { return a >> 32; }},
  });
}

}  // namespace
}  // namespace softgpu::engine::test
