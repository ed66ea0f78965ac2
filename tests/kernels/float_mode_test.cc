// The movers compute the same bits in every floating-point mode of the calling thread, which keeps its mode.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/host/box.h"
#include "kernels/host/mover.h"
#include "tests/harness/float_mode.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

using harness::FloatControls;
using harness::FloatMode;
using harness::ThreadFloatMode;

constexpr int64_t kRows = 40, kCols = 13;
constexpr size_t kCount = kRows * kCols;
constexpr int kSources = 3;

// How the movers are called: `scaled` with a factor for each source and one for the result.
enum class How : uint8_t { kPlain, kScaled, kBox, kScaledBox, kBoxes };
constexpr How kHows[] = {How::kPlain, How::kScaled, How::kBox, How::kScaledBox, How::kBoxes};

class FloatModeTest : public testing::TestWithParam<Pair> {
 protected:
  FloatModeTest() : type_(GetParam().type), size_(ElementSize(type_)) {
    const DataType scalar = ScalarType(type_);
    const size_t bytes = ElementSize(scalar);
    const uint64_t exponents = Exponents(scalar);
    Generator random(20240229);
    for (std::vector<uint8_t>& source : sources_) {
      source.resize(kCount * size_);
      for (size_t i = 0; i < source.size() / bytes; ++i) {
        uint64_t bits = random();
        // A third each: zero or subnormal, of similar magnitude, any bits, among them infinity and NaN.
        if (i % 3 == 0) bits &= ~exponents;
        if (i % 3 == 1) bits = (bits & ~(exponents & exponents << 2)) | (exponents & exponents >> 1);
        std::memcpy(source.data() + i * bytes, &bits, bytes);
      }
    }
    for (Factor& factor : factors_) {
      if (scalar == DataType::kFloat64) factor.f64 = 0.3;
      if (scalar != DataType::kFloat64) factor.f32 = 0.3f;
    }
  }

  static uint64_t Exponents(DataType scalar) {
    switch (scalar) {
      case DataType::kFloat64:
        return 0x7ffull << 52;
      case DataType::kFloat32:
        return 0x7f800000u;
      case DataType::kBfloat16:
        return 0x7f80u;
      case DataType::kFloat16:
        return 0x7c00u;
      case DataType::kFloat8E4M3:
        return 0x78u;
      default:
        return 0x7cu;
    }
  }

  // Calls a mover in that mode and returns the results. `isa`: -1 for the one that the library chooses.
  std::vector<uint8_t> Run(FloatMode mode, int isa, How how) {
    std::vector<uint8_t> result(kCount * size_);
    const bool scaled = how == How::kScaled || how == How::kScaledBox;
    const ThreadFloatMode thread(mode);
    const uint64_t controls = FloatControls();
    if (how == How::kPlain || how == How::kScaled) {
      RunFlat(isa, scaled, result.data());
    } else {
      RunBox(isa, scaled, how == How::kBoxes, result.data());
    }
    kept_ = FloatControls() == controls;
    return result;
  }

  void RunFlat(int isa, bool scaled, void* result) {
    void* const dst[] = {result};
    const void* src[kSources];
    for (int k = 0; k < kSources; ++k) src[k] = sources_[k].data();
    ReduceRequest request = {.dst = dst,
                             .num_dst = 1,
                             .src = src,
                             .num_src = kSources,
                             .count = kCount,
                             .type = type_,
                             .combine = GetParam().combine};
    if (scaled) request.pre = factors_;
    if (scaled) request.post = factors_;
    if (isa >= 0) return ReduceWithIsa(isa, request);
    scaled ? Reduce(request) : ReduceUnscaled(request);
  }

  // Transposes the sources.
  void RunBox(int isa, bool scaled, bool several, void* result) {
    constexpr int64_t kSizes[] = {kRows, kCols}, kPacked[] = {kCols, 1}, kTransposed[] = {1, kRows};
    const BoxOperand dst = {result, kPacked};
    BoxOperand src[kSources];
    for (int k = 0; k < kSources; ++k) src[k] = {sources_[k].data(), kTransposed};
    BoxReduceRequest request = {.range = {2, kSizes, 0, kCount},
                                .dst = &dst,
                                .num_dst = 1,
                                .src = src,
                                .num_src = kSources,
                                .type = type_,
                                .combine = GetParam().combine};
    if (scaled) request.pre = factors_;
    if (scaled) request.post = factors_;
    if (isa >= 0) return several ? ReduceBoxesWithIsa(isa, request) : ReduceBoxWithIsa(isa, request);
    several ? ReduceBoxes(request) : ReduceBox(request);
  }

  const DataType type_;
  const size_t size_;
  std::vector<uint8_t> sources_[kSources];
  Factor factors_[kSources] = {};
  bool kept_ = false;
};

TEST_P(FloatModeTest, BitsAndModeStay) {
  for (const How how : kHows) {
    const bool scales = GetParam().combine == Combine::kSum;
    if (!scales && (how == How::kScaled || how == How::kScaledBox)) continue;
    const std::vector<uint8_t> wanted = Run(FloatMode::kDefault, -1, how);
    for (int isa = -1; isa < NumIsas(); ++isa) {
      for (const FloatMode mode : harness::kFloatModes) {
        EXPECT_TRUE(Run(mode, isa, how) == wanted)
            << (isa < 0 ? "chosen" : IsaName(isa)) << ", " << FloatModeName(mode) << ", " << static_cast<int>(how);
        EXPECT_TRUE(kept_) << FloatModeName(mode);
      }
    }
  }
}

std::vector<Pair> FloatPairs() {
  std::vector<Pair> pairs;
  for (const Pair& pair : AllPairs()) {
    if (IsFloat(ScalarType(pair.type))) pairs.push_back(pair);
  }
  return pairs;
}

INSTANTIATE_TEST_SUITE_P(Movers, FloatModeTest, testing::ValuesIn(FloatPairs()),
                         [](const auto& info) { return PairName(info.param); });

}  // namespace
}  // namespace axccl::kernels
