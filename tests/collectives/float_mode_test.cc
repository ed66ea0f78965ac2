// Reductions on host ranks have the same bits whatever the floating-point modes of the application's threads, also
// where they differ from rank to rank, and calls leave these modes as they are.
#include "tests/harness/float_mode.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::FloatMode;
using harness::RankContext;
using harness::Scramble;
using harness::Seed;

struct Type {
  ncclDataType_t type;
  size_t size;
  uint64_t exponents;
  uint64_t third;  // about 1/3
};
constexpr Type kTypes[] = {{ncclFloat64, 8, 0x7ffull << 52, 0x3fd5555555555555u},
                           {ncclFloat32, 4, 0x7f800000u, 0x3eaaaaabu},
                           {ncclBfloat16, 2, 0x7f80u, 0x3eabu},
                           {ncclFloat16, 2, 0x7c00u, 0x3555u},
                           {ncclFloat8e4m3, 1, 0x78u, 0x2bu},
                           {ncclFloat8e5m2, 1, 0x7cu, 0x35u}};
constexpr int64_t kRows = 9, kCols = 7, kCount = kRows * kCols;

using Bytes = std::vector<char>;

// A third each of what a rank contributes: zero or subnormal, of similar magnitude, any bits.
Bytes Input(const Type& type, int rank) {
  Bytes bytes(kCount * type.size);
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint64_t e = type.exponents;
    uint64_t bits = Scramble(Seed(), static_cast<uint64_t>(rank) << 32 | type.type, i);
    if (i % 3 == 0) bits &= ~e;
    if (i % 3 == 1) bits = (bits & ~(e & e << 2)) | (e & e >> 1);
    std::memcpy(&bytes[i * type.size], &bits, type.size);
  }
  return bytes;
}

// Appends the result of a call to `results`.
class Calls {
 public:
  Calls(Clique* clique, const Type& type, Bytes* results)
      : clique_(*clique), type_(type), results_(*results), in_(Input(type, clique->rank(0))), out_(in_.size()) {}

  void Flat(ncclRedOp_t op) {
    EXPECT_OK(ncclAllReduce(in_.data(), out_.data(), kCount, type_.type, op, clique_.comm(), Cuda(clique_.stream())));
    Take();
  }
  // The transposed result.
  void OnViews(ncclRedOp_t op, double scale, unsigned flags) {
    axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
    options.scale = scale;
    options.flags = flags;
    EXPECT_OK(axcclAllReduce(1, View(in_.data(), {kRows, kCols}, {}, type_.type),
                             View(out_.data(), {kRows, kCols}, {1, kRows}, type_.type), op,
                             axcclDefaultChannel(clique_.comm()), &options, Cuda(clique_.stream())));
    Take();
  }
  void Scaled() {
    ncclRedOp_t third;
    uint64_t scalar = type_.third;
    ASSERT_OK(ncclRedOpCreatePreMulSum(&third, &scalar, type_.type, ncclScalarHostImmediate, clique_.comm()));
    Flat(third);
    EXPECT_OK(ncclRedOpDestroy(third, clique_.comm()));
  }

 private:
  void Take() {
    EXPECT_TRUE(clique_.Synchronize());
    results_.insert(results_.end(), out_.begin(), out_.end());
  }

  Clique& clique_;
  const Type& type_;
  Bytes& results_;
  Bytes in_, out_;
};

// All results of a rank whose thread has that mode from before the communicator is made.
Bytes ResultsIn(FloatMode mode, RankContext& context) {
  Bytes results;
  const harness::ThreadFloatMode thread(mode);
  const uint64_t controls = harness::FloatControls();
  Clique clique;
  if (!clique.Init(context)) return results;
  for (const Type& type : kTypes) {
    Calls calls(&clique, type, &results);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) calls.Flat(op);
    calls.Scaled();
    for (const unsigned flags : {0u, axcclGroupOrder}) {
      calls.OnViews(ncclMax, 0, flags);
      calls.OnViews(ncclAvg, 0, flags);
      calls.OnViews(ncclSum, 0.3, flags);
    }
  }
  EXPECT_TRUE(clique.Destroy());
  EXPECT_EQ(harness::FloatControls(), controls) << harness::FloatModeName(mode);
  return results;
}

TEST(FloatMode, ChangesNoBits) {
  harness::RunOptions options;
  options.environment = {{"NCCL_ALGO", "oneshot"}};  // always folds in the same order, each rank for itself
  for (const harness::Layout& layout : {harness::Processes(2), harness::Threads(3), harness::Processes(3)}) {
    harness::RunRanks(
        layout,
        [](RankContext& context) {
          const Bytes wanted = ResultsIn(FloatMode::kDefault, context);
          for (const FloatMode mode : harness::kFloatModes) {
            for (const bool all : {false, true}) {
              const Bytes results = ResultsIn(all || context.rank() == 1 ? mode : FloatMode::kDefault, context);
              EXPECT_TRUE(results == wanted) << harness::FloatModeName(mode) << (all ? " on all ranks" : " on rank 1")
                                             << ", AXCCL_TEST_SEED=" << Seed();
            }
          }
        },
        options);
  }
}

}  // namespace
}  // namespace axccl::tests
