// multimem instructions, on multicast addresses behind which there are arrays of the test.
#include <algorithm>
#include <bit>
#include <functional>

#include "tools/softgpu/engine/small_float.h"
#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

constexpr int kDevices = 3;
constexpr size_t kBytes = 1024;
constexpr uint64_t kMulticast = uint64_t{1} << 40;

// The memory of the devices, with a margin on both sides, and one array that all kernels may use.
struct Memory : Ranges {
  Memory() { Add(out, sizeof out); }
  bool FindMulticast(uint64_t address, MulticastWindow* window) const override {
    if (address < kMulticast || address >= kMulticast + kBytes) return false;
    window->begin = kMulticast;
    window->end = kMulticast + kBytes;
    for (const auto& one : device) window->copies.push_back(reinterpret_cast<uintptr_t>(one + kBytes));
    return true;
  }
  void Fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (auto& one : device) {
      for (uint8_t& byte : one) byte = static_cast<uint8_t>(random());
    }
  }
  template <class T>
  T& At(int of, size_t index) {
    return reinterpret_cast<T*>(device[of] + kBytes)[index];
  }
  alignas(16) uint8_t device[kDevices][3 * kBytes] = {};
  alignas(16) uint8_t out[kBytes] = {};
};

constexpr char kPrologue[] = R"(
    .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<8>; .reg .f64 %g<8>; .reg .b64 %m, %o; .reg .b32 %t;
    .reg .b64 %x; mov.u32 %t, %tid.x; mul.wide.u32 %x, %t, BYTES;
    ld.param.u64 %m, [p0]; add.s64 %m, %m, %x; ld.param.u64 %o, [p1]; add.s64 %o, %o, %x;
)";

// Runs 64 lanes of the body, whose accesses have `bytes`.
std::string RunLanes(const std::string& body, uint32_t bytes, Memory* memory, uint64_t multicast = kMulticast) {
  std::string text = kPrologue + body;
  text.replace(text.find("BYTES"), 5, std::to_string(bytes));
  const auto module = LoadOrFail(KernelText(text, 2));
  if (module == nullptr) return "not loaded";
  Launch launch;
  launch.block.x = 64;
  launch.map = memory;
  launch.parameters = Parameters(multicast, static_cast<void*>(memory->out));
  return RunKernel(*module, launch);
}

std::string Registers(char kind, uint32_t count) {
  if (count == 1) return std::string("%") + kind + "0";
  std::string list;
  for (uint32_t i = 0; i < count; ++i) list += (i == 0 ? "{%" : ", %") + std::string(1, kind) + std::to_string(i);
  return list + "}";
}

// A vector of `count` registers of that kind, which a plain store writes as `store` says.
struct Form {
  std::string type;
  char kind;
  std::string store;
  uint32_t bytes;  // of a register
  std::vector<uint32_t> counts;

  std::string Suffix(uint32_t count) const { return (count == 1 ? "." : ".v" + std::to_string(count) + ".") + type; }
  // Stores the registers one by one.
  std::string StoreAll(uint32_t count) const {
    std::string text;
    for (uint32_t i = 0; i < count; ++i)
      text += "st.global." + store + " [%o+" + std::to_string(i * bytes) + "], %" + kind + std::to_string(i) + ";";
    return text;
  }
};

// The result of ld_reduce in all forms for numbers of type T that `fold` combines, which must not depend on the order.
template <class T>
void CheckReduction(const Form& form, const std::string& op, const std::function<T(T, T)>& fold,
                    const std::function<T(T)>& make) {
  for (const uint32_t count : form.counts) {
    Memory memory;
    memory.Fill(Seed());
    for (int device = 0; device < kDevices; ++device) {
      for (size_t i = 0; i < kBytes / sizeof(T); ++i) memory.At<T>(device, i) = make(memory.At<T>(device, i));
    }
    const std::string body = "multimem.ld_reduce.relaxed.sys.global." + op + form.Suffix(count) + " " +
                             Registers(form.kind, count) + ", [%m];" + form.StoreAll(count);
    SCOPED_TRACE(body + " (SOFTGPU_SEED=" + std::to_string(Seed()) + ")");
    ASSERT_EQ(RunLanes(body, form.bytes * count, &memory), "");
    for (size_t i = 0; i < 64 * form.bytes * count / sizeof(T); ++i) {
      T wanted = memory.At<T>(0, i);
      for (int device = 1; device < kDevices; ++device) wanted = fold(wanted, memory.At<T>(device, i));
      ASSERT_EQ(std::memcmp(&wanted, memory.out + i * sizeof(T), sizeof(T)), 0) << "number " << i;
    }
  }
}

template <class T>
void CheckInteger(const std::string& type, std::initializer_list<const char*> ops) {
  const Form form = {type, sizeof(T) == 8 ? 'd' : 'r', sizeof(T) == 8 ? "b64" : "b32", sizeof(T), {1}};
  const std::map<std::string, std::function<T(T, T)>> folds = {
      {"add", [](T a, T b) { return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }},
      {"min", [](T a, T b) { return std::min(a, b); }},
      {"max", [](T a, T b) { return std::max(a, b); }},
      {"and", [](T a, T b) { return static_cast<T>(a & b); }},
      {"or", [](T a, T b) { return static_cast<T>(a | b); }},
      {"xor", [](T a, T b) { return static_cast<T>(a ^ b); }}};
  for (const char* op : ops) CheckReduction<T>(form, op, folds.at(op), [](T any) { return any; });
}

TEST(Multimem, ReducesIntegers) {
  CheckInteger<uint32_t>("u32", {"add", "min", "max"});
  CheckInteger<int32_t>("s32", {"add", "min", "max"});
  CheckInteger<uint64_t>("u64", {"add", "min", "max"});
  CheckInteger<int64_t>("s64", {"min", "max"});
  CheckInteger<uint32_t>("b32", {"and", "or", "xor"});
  CheckInteger<uint64_t>("b64", {"and", "or", "xor"});
}

// Whole numbers, whose sums are exact in every order.
template <class T>
T Whole(T any) {
  uint64_t bits = 0;
  std::memcpy(&bits, &any, sizeof any);
  return static_cast<T>(static_cast<int>(bits % 64) - 32);
}

TEST(Multimem, ReducesFloats) {
  CheckReduction<float>(
      {"f32", 'f', "f32", 4, {1, 2, 4}}, "add", [](float a, float b) { return a + b; }, Whole<float>);
  CheckReduction<double>(
      {"f64", 'g', "f64", 8, {1}}, "add", [](double a, double b) { return a + b; }, Whole<double>);
}

template <bool half>
void CheckShorts(const std::string& type) {
  const auto number = [](uint16_t bits) { return half ? HalfToFloat(bits) : BfloatToFloat(bits); };
  const auto bits = [](float value) { return half ? FloatToHalf(value) : FloatToBfloat(value); };
  const std::map<std::string, std::function<uint16_t(uint16_t, uint16_t)>> folds = {
      {"add", [=](uint16_t a, uint16_t b) { return bits(number(a) + number(b)); }},
      {"add.acc::f32", [=](uint16_t a, uint16_t b) { return bits(number(a) + number(b)); }},
      {"min", [=](uint16_t a, uint16_t b) { return bits(std::min(number(a), number(b))); }},
      {"max", [=](uint16_t a, uint16_t b) { return bits(std::max(number(a), number(b))); }}};
  for (const auto& [op, fold] : folds) {
    const auto make = [=](uint16_t any) { return bits(static_cast<float>(any % 64) + 1); };
    CheckReduction<uint16_t>({type, 'h', "b16", 2, {2, 4, 8}}, op, fold, make);
    CheckReduction<uint16_t>({type + "x2", 'r', "b32", 4, {1, 2, 4}}, op, fold, make);
  }
}

TEST(Multimem, ReducesShorts) {
  CheckShorts<true>("f16");
  CheckShorts<false>("bf16");
}

TEST(Multimem, RoundsShortsOnceOrAtEveryAddition) {
  Memory memory;
  // Above 2048, f16 has even numbers only, and above 256 bf16.
  for (const bool half : {true, false}) {
    const auto bits = [half](float value) { return half ? FloatToHalf(value) : FloatToBfloat(value); };
    const float large = half ? 2048 : 256;
    for (int device = 0; device < kDevices; ++device) {
      for (size_t i = 0; i < 128; ++i) memory.At<uint16_t>(device, i) = bits(device == 0 ? large : 1);
    }
    const std::string type = half ? "f16x2" : "bf16x2";
    ASSERT_EQ(RunLanes("multimem.ld_reduce.global.add." + type + " %r0, [%m]; st.u32 [%o], %r0;", 4, &memory), "");
    uint16_t out;
    std::memcpy(&out, memory.out, 2);
    EXPECT_EQ(out, bits(large));
    ASSERT_EQ(
        RunLanes("multimem.ld_reduce.weak.global.add.acc::f32." + type + " %r0, [%m]; st.u32 [%o], %r0;", 4, &memory),
        "");
    std::memcpy(&out, memory.out, 2);
    EXPECT_EQ(out, bits(large + 2));
  }
}

TEST(Multimem, StoresToAllDevices) {
  const std::vector<Form> forms = {{"b32", 'r', "b32", 4, {1}},         {"s64", 'd', "b64", 8, {1}},
                                   {"f64", 'g', "f64", 8, {1}},         {"f32", 'f', "f32", 4, {1, 2, 4}},
                                   {"f16", 'h', "b16", 2, {2, 4, 8}},   {"bf16", 'h', "b16", 2, {2, 4, 8}},
                                   {"f16x2", 'r', "b32", 4, {1, 2, 4}}, {"bf16x2", 'r', "b32", 4, {1, 2, 4}}};
  for (const Form& form : forms) {
    for (const uint32_t count : form.counts) {
      Memory memory;
      memory.Fill(Seed());
      const Memory before = memory;
      for (size_t i = 0; i < kBytes; ++i) memory.out[i] = static_cast<uint8_t>(i * 7 + i / 256);
      std::string body;
      for (uint32_t i = 0; i < count; ++i)
        body += "ld.global." + form.store + " %" + form.kind + std::to_string(i) + ", [%o+" +
                std::to_string(i * form.bytes) + "];";
      body += "multimem.st.release.sys.global" + form.Suffix(count) + " [%m], " + Registers(form.kind, count) + ";";
      SCOPED_TRACE(body);
      ASSERT_EQ(RunLanes(body, form.bytes * count, &memory), "");
      const size_t written = size_t{64} * form.bytes * count;
      for (int device = 0; device < kDevices; ++device) {
        const uint8_t* const now = memory.device[device];
        EXPECT_EQ(std::memcmp(now + kBytes, memory.out, written), 0);
        EXPECT_EQ(std::memcmp(now, before.device[device], kBytes), 0);
        EXPECT_EQ(std::memcmp(now + kBytes + written, before.device[device] + kBytes + written, 2 * kBytes - written),
                  0);
      }
    }
  }
}

void ExpectError(const std::string& error, const std::string& part) {
  EXPECT_NE(error.find(part), std::string::npos) << "no '" << part << "' in: " << error;
}

// All lanes of 64 add to, or compare with, the same two words of every device.
TEST(Multimem, ReducesTheMemoryOfAllDevices) {
  Memory memory;
  for (int device = 0; device < kDevices; ++device) {
    memory.At<uint32_t>(device, 0) = static_cast<uint32_t>(100 * device);
    memory.At<int32_t>(device, 1) = -5 * device;
    memory.At<uint64_t>(device, 1) = 1;
    memory.At<float>(device, 4) = static_cast<float>(device);
    memory.At<uint16_t>(device, 10) = FloatToHalf(static_cast<float>(device));
    memory.At<uint16_t>(device, 11) = FloatToHalf(1);
    memory.At<uint32_t>(device, 6) = 77;
  }
  const std::string body = R"(
      multimem.red.release.sys.add.u32 [%m], 3;
      cvt.s32.u32 %r0, %t; multimem.red.relaxed.gpu.global.min.s32 [%m+4], %r0;
      cvt.u64.u32 %d0, %t; shl.b64 %d0, 1, %t; multimem.red.global.or.b64 [%m+8], %d0;
      mov.f32 %f0, 0f3F000000; multimem.red.global.add.f32 [%m+16], %f0;
      mov.b32 %r1, 0x3c003c00; multimem.red.global.add.f16x2 [%m+20], %r1;
  )";
  ASSERT_EQ(RunLanes(body, 0, &memory), "");
  for (int device = 0; device < kDevices; ++device) {
    EXPECT_EQ(memory.At<uint32_t>(device, 0), static_cast<uint32_t>(100 * device + 64 * 3));
    EXPECT_EQ(memory.At<int32_t>(device, 1), -5 * device);
    EXPECT_EQ(memory.At<uint64_t>(device, 1), ~uint64_t{0});
    EXPECT_EQ(memory.At<float>(device, 4), static_cast<float>(device) + 32);
    EXPECT_EQ(HalfToFloat(memory.At<uint16_t>(device, 10)), static_cast<float>(device) + 64);
    EXPECT_EQ(HalfToFloat(memory.At<uint16_t>(device, 11)), 65);
    EXPECT_EQ(memory.At<uint32_t>(device, 6), 77u);
  }
  ExpectError(RunLanes("multimem.red.global.add.u32 [%m], 1;", 4, &memory, kMulticast + 2), "is not aligned");
}

TEST(Multimem, WrongAddressesAreErrors) {
  Memory memory;
  const std::string load = "multimem.ld_reduce.relaxed.gpu.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%m];";
  const std::string store = "multimem.st.relaxed.gpu.global.f32 [%m], %f0;";
  EXPECT_EQ(RunLanes(load, 16, &memory), "");
  ExpectError(RunLanes(load, 16, &memory, kMulticast + 8), "is not aligned");
  ExpectError(RunLanes(load, 16, &memory, kMulticast + 16), "is no multicast address");
  ExpectError(RunLanes(store, 4, &memory, kMulticast - 4), "is no multicast address");
  ExpectError(RunLanes(store, 4, &memory, reinterpret_cast<uintptr_t>(memory.out)), "is no multicast address");
  ExpectError(RunLanes("ld.global.f32 %f0, [%m];", 4, &memory), "is in no allocated memory");
  ExpectError(RunLanes("st.global.f32 [%m], %f0;", 4, &memory), "is in no allocated memory");
  ExpectError(RunLanes("red.global.add.u32 [%m], 1;", 4, &memory), "is in no allocated memory");
}

// None of these is an instruction of sm_90, as its assembler knows.
TEST(Multimem, OtherFormsAreErrors) {
  Memory memory;
  for (const char* text :
       {"multimem.ld_reduce.global.add.s64 %d0, [%m];", "multimem.ld_reduce.global.min.f32 %f0, [%m];",
        "multimem.ld_reduce.global.max.f64 %g0, [%m];", "multimem.ld_reduce.global.add.b32 %r0, [%m];",
        "multimem.ld_reduce.global.and.u32 %r0, [%m];", "multimem.ld_reduce.global.add.f16 %h0, [%m];",
        "multimem.ld_reduce.global.add.acc::f32.f32 %f0, [%m];",
        "multimem.ld_reduce.global.max.acc::f32.f16x2 %r0, [%m];",
        "multimem.ld_reduce.global.add.v2.u32 {%r0, %r1}, [%m];",
        "multimem.ld_reduce.global.add.v2.f64 {%g0, %g1}, [%m];", "multimem.ld_reduce.shared.add.u32 %r0, [%m];",
        "multimem.st.global.v4.b32 [%m], {%r0, %r1, %r2, %r3};", "multimem.st.global.f16 [%m], %h0;"})
    ExpectError(RunLanes(text, 16, &memory), "this form of 'multimem' is not supported");
}

}  // namespace
}  // namespace softgpu::engine::test
