// The device's movers, compared with the host's, bit for bit: all types and combinations, one to five sources, one to
// three destinations, any alignment, counts from 0 over primes to several pieces of every thread, in place, factors and
// divisors.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/host/mover.h"
#include "tests/kernels/cuda/movers_on_fibers.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

constexpr int kMaxSrc = 5;
constexpr int kMaxDst = 3;
constexpr size_t kMaxCount = 263;
constexpr size_t kCounts[] = {0, 1, 2, 3, 5, 7, 13, 16, 17, 31, 64, 97, 128, 191, kMaxCount};

class CudaMoversTest : public testing::TestWithParam<Pair> {
 protected:
  CudaMoversTest() : type_(GetParam().type), combine_(GetParam().combine), size_(ElementSize(type_)) {}

  bool Scales() const { return type_ != DataType::kBool && !IsOpaque(type_) && combine_ == Combine::kSum; }

  Factor RandomFactor() const {
    Generator& random = Random();
    const double ordinary = (static_cast<double>(random() >> 11) * 0x1p-53 - 0.25) * 4;
    Factor factor{};
    if (ScalarType(type_) == DataType::kFloat64) {
      factor.f64 = ordinary;
    } else if (IsFloat(ScalarType(type_))) {
      factor.f32 = static_cast<float>(ordinary);
    } else {
      factor.i64 = static_cast<int64_t>(random()) >> (random() % 64);
    }
    return factor;
  }

  // All operands at random places, or at the same distance from a line.
  void Place(Guarded* guarded, bool together, size_t shift) {
    if (!together) return guarded->Place(kMaxCount * size_, size_, Random());
    guarded->PlaceOnLine(kMaxCount * size_ + 64);
    shift_ = shift;
  }

  void CheckOne(size_t count, int num_src, int num_dst) {
    Generator& random = Random();
    const bool together = random() % 3 != 0, in_place = random() % 3 == 0;
    shift_ = 0;
    const size_t shift = random() % (64 / size_) * size_;
    const size_t scalar = ElementSize(ScalarType(type_));
    std::vector<Guarded> src(static_cast<size_t>(num_src), Guarded(kMaxCount * size_ + 128));
    std::vector<Guarded> dst(static_cast<size_t>(num_dst), Guarded(kMaxCount * size_ + 128));
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    std::vector<Factor> factors;
    for (Guarded& guarded : src) {
      Place(&guarded, together, shift);
      for (size_t i = 0; i < count * size_ / scalar; ++i)
        StoreElement(guarded.data() + shift_, i, scalar, RandomElement(ScalarType(type_), random));
      sources.push_back(guarded.data() + shift_);
      factors.push_back(RandomFactor());
    }
    for (Guarded& guarded : dst) {
      Place(&guarded, together, shift);
      destinations.push_back(guarded.data() + shift_);
    }
    std::vector<uint8_t> wanted(count * size_ + 1);
    void* const to_wanted[1] = {wanted.data()};
    ReduceRequest request = {.dst = to_wanted,
                             .num_dst = 1,
                             .src = sources.data(),
                             .num_src = num_src,
                             .count = count,
                             .type = type_,
                             .combine = combine_};
    const bool scaled = Scales() && random() % 2 == 0;
    if (scaled) request.pre = factors.data();
    request.round_factored = random() % 2 == 0;
    if (Scales() && !IsFloat(ScalarType(type_)) && random() % 2 == 0) {
      const uint64_t divisors[] = {1, 2, 3, 8, 127, 128, 255, 1000003, random()};
      request.post_divisor = divisors[random() % std::size(divisors)];
    }
    Reduce(request);
    if (in_place) destinations[0] = const_cast<void*>(sources[0]);
    request.dst = destinations.data();
    request.num_dst = num_dst;
    const uint32_t threads[] = {1, 3, 4, 8};
    ASSERT_TRUE(cuda::ReduceOnFibers(request, threads[random() % 4], random()));
    for (int d = 0; d < num_dst; ++d)
      ASSERT_EQ(std::memcmp(destinations[d], wanted.data(), count * size_), 0)
          << "destination " << d << ", " << count << " elements, " << num_src << " sources, in place " << in_place
          << ", together " << together << ", scaled " << scaled << ", divisor " << request.post_divisor;
    for (int d = 0; d < num_dst; ++d) ASSERT_TRUE(dst[d].Intact());
    for (int k = 0; k < num_src; ++k) ASSERT_TRUE(src[k].Intact());
  }

  const DataType type_;
  const Combine combine_;
  const size_t size_;
  size_t shift_ = 0;
};

TEST_P(CudaMoversTest, GivesTheBitsOfTheHost) {
  for (const size_t count : kCounts) {
    for (int num_src = 1; num_src <= kMaxSrc; ++num_src) {
      ASSERT_NO_FATAL_FAILURE(CheckOne(count, num_src, 1 + static_cast<int>(Random()() % kMaxDst)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaMoversTest, testing::ValuesIn(AllPairs()),
                         [](const auto& info) { return PairName(info.param); });

// Opaque elements are copied, of every size and from every address.
TEST(CudaMovers, CopiesOpaqueElements) {
  Generator& random = Random();
  for (int bytes = 1; bytes <= kMaxOpaqueBytes; ++bytes) {
    for (const size_t count : kCounts) {
      const size_t total = count * static_cast<size_t>(bytes);
      Guarded src(total + 64), dst[2] = {Guarded(total + 64), Guarded(total + 64)};
      src.Place(total, 1, random);
      for (size_t i = 0; i < total; ++i) src.data()[i] = static_cast<uint8_t>(random());
      for (Guarded& d : dst) d.Place(total, 1, random);
      void* const to[2] = {dst[0].data(), dst[1].data()};
      const void* const from[1] = {src.data()};
      const ReduceRequest request = {.dst = to,
                                     .num_dst = 2,
                                     .src = from,
                                     .num_src = 1,
                                     .count = count,
                                     .type = OpaqueType(bytes),
                                     .combine = Combine::kSum};
      ASSERT_TRUE(cuda::ReduceOnFibers(request, 4, random()));
      for (Guarded& d : dst) {
        ASSERT_EQ(std::memcmp(d.data(), src.data(), total), 0) << bytes << " bytes, " << count << " elements";
        ASSERT_TRUE(d.Intact());
      }
    }
  }
}

}  // namespace
}  // namespace axccl::kernels
