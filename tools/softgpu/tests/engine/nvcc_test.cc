// Kernels compiled by nvcc, for an old and a new architecture.
#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

#include "tools/softgpu/tests/engine/launch.h"

namespace softgpu::engine::test {
namespace {

class Nvcc : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Module> LoadFile(const std::string& name) {
    std::ifstream file(std::string(SOFTGPU_KERNELS) + "/" + name + "_" + GetParam() + ".ptx");
    return LoadOrFail(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  template <class... P>
  void Go(const Module& module, const char* kernel, uint32_t blocks, uint32_t threads, P... parameters) {
    Launch launch;
    launch.kernel = kernel;
    launch.grid.x = blocks;
    launch.block.x = threads;
    launch.options.seed = seed;
    launch.parameters = Parameters(parameters...);
    ASSERT_EQ(RunKernel(module, launch), "") << kernel << ", seed " << seed;
  }
  uint64_t seed = 0;
};

INSTANTIATE_TEST_SUITE_P(Architectures, Nvcc, testing::Values("75", "90"));

TEST_P(Nvcc, Reductions) {
  const auto module = LoadFile("reduce");
  ASSERT_NE(module, nullptr);
  for (seed = 0; seed < 4; ++seed) {
    std::vector<float> in(5000);
    std::iota(in.begin(), in.end(), -100.0f);
    float sum = 0;
    Go(*module, "sum", 3, 256, in.data(), &sum, 5000);
    EXPECT_EQ(sum, 5000.0f * 4999 / 2 - 500000);
    std::vector<int> numbers(3000);
    std::iota(numbers.begin(), numbers.end(), -50);
    std::vector<long long> partial(7);
    long long all = 0;
    Go(*module, "last_block", 7, 96, numbers.data(), partial.data(), &all, 3000);
    EXPECT_EQ(all, 3000LL * 2999 / 2 - 150000);
  }
}

TEST_P(Nvcc, ChainsOfBlocks) {
  const auto module = LoadFile("reduce");
  ASSERT_NE(module, nullptr);
  for (seed = 0; seed < 6; ++seed) {
    std::vector<int> flags(20), data(20 * 64);
    Go(*module, "chain", 20, 64, flags.data(), data.data());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(data[19 * 64 + static_cast<size_t>(i)], 19);
  }
}

int64_t Choose(size_t what, int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (what) {
    case 0:
      return static_cast<int64_t>(x + y);
    case 1:
      return static_cast<int64_t>(x - y);
    case 2:
      return static_cast<int64_t>(x * y);
    case 3:
      return b == 0 ? 0 : a / b;
    case 4:
      return b == 0 ? 0 : a % b;
    case 5:
      return static_cast<int64_t>(x << (y & 63));
    case 6:
      return a >> (b & 63);
    case 7:
      return std::max(a, b);
    case 8:
      return std::popcount(x) + std::countl_zero(y);
    case 9:
      return a ^ b;
  }
  uint64_t reversed = 0;
  for (int i = 0; i < 64; ++i) reversed |= (x >> i & 1) << (63 - i);
  return static_cast<int64_t>(reversed);
}

TEST_P(Nvcc, SwitchesAndLocalArrays) {
  const auto module = LoadFile("reduce");
  ASSERT_NE(module, nullptr);
  std::mt19937_64 random(Seed());
  std::vector<int64_t> a(1000), b(1000), out(1000);
  for (auto& value : a) value = static_cast<int64_t>(random());
  for (auto& value : b) value = static_cast<int64_t>(random()) >> (random() % 64);
  Go(*module, "switches", 8, 128, a.data(), b.data(), out.data(), 1000);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], Choose(i % 11, a[i], b[i])) << i << " seed " << Seed();
  std::vector<int> in(100), best(64);
  for (auto& value : in) value = static_cast<int>(random() % 1000);
  Go(*module, "local_array", 2, 32, in.data(), best.data(), 100);
  for (int t = 0; t < 64; ++t) {
    int counts[16] = {};
    for (int i = 0; i < 100; ++i) counts[(in[static_cast<size_t>(i)] + t) & 15] += i;
    const auto most = std::max_element(counts, counts + 16);
    EXPECT_EQ(best[static_cast<size_t>(t)], (most - counts) * 1000000 + *most);
  }
}

TEST_P(Nvcc, CallsThroughTables) {
  const auto module = LoadFile("reduce");
  ASSERT_NE(module, nullptr);
  std::vector<int> out(36);
  Go(*module, "indirect", 1, 36, out.data());
  constexpr int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (int i = 0; i < 36; ++i) {
    const int x = i % 12;
    EXPECT_EQ(out[static_cast<size_t>(i)], i % 3 == 0 ? 2 * x : i % 3 == 1 ? x * x : fibonacci[x]);
  }
}

// The nearest value of a format by trying all of them; ties to the even one, overflow to the given code.
uint32_t Nearest(float x, int exponent_bits, int mantissa_bits, uint32_t largest, uint32_t overflow, uint32_t nan) {
  if (std::isnan(x)) return nan;
  const uint32_t sign = std::signbit(x) ? 1u << (exponent_bits + mantissa_bits) : 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto value = [&](uint32_t bits) {
    const int exponent = static_cast<int>(bits >> mantissa_bits);
    const double fraction = bits & ((1u << mantissa_bits) - 1);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa_bits)
                         : std::ldexp(fraction + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  };
  const double magnitude = std::fabs(static_cast<double>(x));
  uint32_t low = 0, high = largest + 1;  // value(low) <= magnitude < value(high)
  if (magnitude >= value(high)) return sign | overflow;
  while (high - low > 1) (value((low + high) / 2) <= magnitude ? low : high) = (low + high) / 2;
  const double below = magnitude - value(low), above = value(high) - magnitude;
  const uint32_t chosen = below < above || (below == above && low % 2 == 0) ? low : high;
  return sign | (chosen > largest ? overflow : chosen);
}

TEST_P(Nvcc, NarrowFormats) {
  const auto module = LoadFile("narrow");
  ASSERT_NE(module, nullptr);
  std::mt19937 random(static_cast<uint32_t>(Seed()));
  std::vector<float> in = {0,      -0.0f, 1,   -2.5f, 65504, 65519.9f, 65520, 1e9f,      -1e9f,      448,
                           463.9f, 464,   500, 57344, 61439, 61440,    1e-8f, HUGE_VALF, -HUGE_VALF, NAN};
  while (in.size() < 4096) {
    const uint32_t bits = random();
    in.push_back(std::bit_cast<float>(in.size() % 2 == 0 ? bits : (bits & 0x807ff000) | (0x66u + bits % 0x34) << 23));
  }
  const size_t n = in.size();
  std::vector<uint16_t> half(n), bfloat(n);
  std::vector<uint8_t> e4m3(n), e5m2(n);
  std::vector<float> back(4 * n);
  Go(*module, "narrow", 16, 256, in.data(), half.data(), bfloat.data(), e4m3.data(), e5m2.data(), back.data(),
     static_cast<int>(n));
  for (size_t i = 0; i < n; ++i) {
    SCOPED_TRACE(testing::Message() << in[i] << " seed " << Seed());
    EXPECT_EQ(half[i], Nearest(in[i], 5, 10, 0x7bff, 0x7c00, 0x7fff));
    EXPECT_EQ(bfloat[i], Nearest(in[i], 8, 7, 0x7f7f, 0x7f80, 0x7fff));
    EXPECT_EQ(e4m3[i] & (std::isnan(in[i]) ? 0x7f : 0xff), Nearest(in[i], 4, 3, 0x7e, 0x7e, 0x7f));
    // e5m2 has several NaNs.
    const uint32_t nan = std::max<uint32_t>(e5m2[i] & 0x7f, 0x7d);
    EXPECT_EQ(e5m2[i] & (std::isnan(in[i]) ? 0x7f : 0xff), Nearest(in[i], 5, 2, 0x7b, 0x7b, nan));
    if (std::isnan(in[i]) || std::isinf(in[i])) continue;
    // The value that was converted back rounds to the same code again.
    EXPECT_EQ(Nearest(back[4 * i], 5, 10, 0x7bff, 0x7c00, 0x7fff), half[i]);
    EXPECT_EQ(Nearest(back[4 * i + 2], 4, 3, 0x7e, 0x7e, 0x7f), e4m3[i]);
    EXPECT_EQ(Nearest(back[4 * i + 3], 5, 2, 0x7b, 0x7b, 0x7f), e5m2[i]);
  }
}

float HalfValue(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const float fraction = static_cast<float>(bits & 1023);
  const float magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return bits >> 15 & 1 ? -magnitude : magnitude;
}

TEST_P(Nvcc, PairsOfHalves) {
  const auto module = LoadFile("narrow");
  ASSERT_NE(module, nullptr);
  std::mt19937 random(static_cast<uint32_t>(Seed()));
  std::vector<uint32_t> a(512), b(512), sums(512), products(512), c(512), d(512), most(512);
  // Finite halves: no exponent of all ones.
  for (auto* list : {&a, &b, &c, &d}) {
    for (auto& value : *list) value = random() & 0xbbffbbff;
  }
  Go(*module, "arithmetic", 2, 256, a.data(), b.data(), sums.data(), products.data(), c.data(), d.data(), most.data(),
     512);
  for (size_t i = 0; i < 512; ++i) {
    for (int shift : {0, 16}) {
      const float x = HalfValue(a[i] >> shift & 0xffff), y = HalfValue(b[i] >> shift & 0xffff);
      EXPECT_EQ(sums[i] >> shift & 0xffff, Nearest(x + y, 5, 10, 0x7bff, 0x7c00, 0x7fff)) << x << " + " << y;
      EXPECT_EQ(products[i] >> shift & 0xffff, Nearest(x * y, 5, 10, 0x7bff, 0x7c00, 0x7fff)) << x << " * " << y;
      const float u = std::bit_cast<float>((c[i] >> shift) << 16), v = std::bit_cast<float>((d[i] >> shift) << 16);
      EXPECT_EQ(std::bit_cast<float>((most[i] >> shift) << 16), u < v ? v : u) << u << ", " << v;
    }
  }
}

TEST_P(Nvcc, LinesWithFlags) {
  const auto module = LoadFile("copy");
  ASSERT_NE(module, nullptr);
  for (seed = 0; seed < 8; ++seed) {
    std::vector<uint64_t> in(1000), out(1000);
    std::mt19937_64 random(seed);
    for (auto& value : in) value = random();
    struct alignas(16) Line {
      uint32_t words[4];
    };
    std::vector<Line> lines(1000);
    Go(*module, "lines", 2, 128, lines.data(), in.data(), out.data(), 1000);
    EXPECT_EQ(in, out);
    alignas(16) uint32_t flag = 0;
    std::vector<Line> data(96), copy(96);
    Go(*module, "released", 2, 96, &flag, data.data(), copy.data());
    for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(copy[i].words[0], i);
  }
}

TEST_P(Nvcc, AsyncCopiesAndWideAtomics) {
  const auto module = LoadFile("copy");
  ASSERT_NE(module, nullptr);
  struct alignas(16) Quad {
    int words[4];
  };
  std::vector<Quad> in(4 * 128), out(4 * 128);
  for (size_t i = 0; i < in.size(); ++i) in[i].words[2] = static_cast<int>(i);
  Go(*module, "staged", 1, 128, in.data(), out.data());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i].words[2], static_cast<int>(i / 128 * 128 + 127 - i % 128));
  uint64_t words[4] = {};
  Go(*module, "counters", 3, 50, words);
  EXPECT_EQ(words[0], 150ull << 33);
  EXPECT_EQ(words[1], 49ull << 40);
  EXPECT_EQ(words[2], 450u);
  EXPECT_EQ(std::bit_cast<double>(words[3]), 75.0);
}

}  // namespace
}  // namespace softgpu::engine::test
