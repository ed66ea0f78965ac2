// Copy on every instruction set: every small size and some large ones, any alignment, one to three destinations, in
// place, cached and non-temporal, with sentinels around each destination.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/host/mover.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

constexpr size_t kMaxBytes = 1000003;
constexpr int kMaxDst = 3;

class CopyTest : public testing::Test {
 protected:
  CopyTest() : source_(kMaxBytes), dst_(kMaxDst, Guarded(kMaxBytes)), wanted_(kMaxBytes) {
    for (uint8_t& byte : wanted_) byte = static_cast<uint8_t>(Random()());
  }

  // In place, one of the destinations is the source.
  void CheckOne(int isa, size_t bytes, int num_dst, bool in_place, bool non_temporal) {
    source_.Place(bytes, 1, Random());
    std::memcpy(source_.data(), wanted_.data(), bytes);
    void* dst[kMaxDst];
    for (int d = 0; d < num_dst; ++d) {
      dst_[d].Place(bytes, 1, Random());
      dst[d] = dst_[d].data();
    }
    if (in_place) dst[Random()() % num_dst] = source_.data();
    CopyWithIsa(isa, dst, num_dst, source_.data(), bytes, non_temporal);
    ASSERT_TRUE(std::memcmp(source_.data(), wanted_.data(), bytes) == 0 && source_.Intact()) << "source changed";
    for (int d = 0; d < num_dst; ++d) {
      ASSERT_EQ(std::memcmp(dst[d], wanted_.data(), bytes), 0) << "destination " << d;
      ASSERT_TRUE(dst_[d].Intact()) << "wrote outside of destination " << d;
    }
  }

  void CheckSize(size_t bytes) {
    for (int isa = 0; isa < NumIsas(); ++isa) {
      for (int variant = 0; variant < 4 * kMaxDst; ++variant) {
        const int num_dst = 1 + variant / 4;
        const bool in_place = variant & 1;
        const bool non_temporal = variant & 2;
        SCOPED_TRACE(testing::Message() << IsaName(isa) << ", " << bytes << " bytes, " << num_dst << " destinations"
                                        << (in_place ? ", in place" : "") << (non_temporal ? ", non-temporal" : ""));
        CheckOne(isa, bytes, num_dst, in_place, non_temporal);
        if (HasFatalFailure()) return;
      }
    }
  }

  Guarded source_;
  std::vector<Guarded> dst_;
  std::vector<uint8_t> wanted_;
};

TEST_F(CopyTest, EverySmallSize) {
  for (size_t bytes = 0; bytes <= 600 && !HasFatalFailure(); ++bytes) CheckSize(bytes);
}

TEST_F(CopyTest, SizesAroundBlocksAndLargePrimes) {
  for (size_t bytes : {size_t{4031}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{4160}, size_t{8191}, size_t{8192},
                       size_t{8193}, size_t{65537}, kMaxBytes}) {
    CheckSize(bytes);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace axccl::kernels
