// Packed slots of rows as operands of the device's movers, compared with the host's movers, bit for bit: all types and
// combinations, one to four sources and one to three destinations, some of which are such slots and the others at any
// address, factors and divisors. Afterwards, rows have their flags, and nothing else is written.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/host/mover.h"
#include "tests/kernels/cuda/movers_on_fibers.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

constexpr size_t kMaxCount = 160;
constexpr size_t kCounts[] = {7, 28, 97, kMaxCount};
constexpr uint64_t kFlag = (uint64_t{1} << 40) + 77;
constexpr uint8_t kUntouched = 0xa7;

// A slot with room for some bytes.
class Slot {
 public:
  Slot() : memory_(cuda::kRowedSlotBytes + cuda::kRowBytes, kUntouched) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + (0 - at) % cuda::kRowBytes;
  }
  uint8_t* data() const { return data_; }
  uint8_t* At(size_t byte) const { return data_ + byte + byte / (16 * cuda::kRowPieces) * 16; }
  void Put(const uint8_t* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) *At(i) = bytes[i];
  }
  bool Has(const uint8_t* bytes, size_t size) const {
    size_t same = 0;
    for (size_t i = 0; i < size; ++i) same += *At(i) == bytes[i];
    return same == size;
  }
  bool IsFlagged(size_t size) const {
    for (uint32_t row = 0; row < cuda::PackedRows(size); ++row) {
      if (std::memcmp(data_ + row * cuda::kRowBytes + 16 * cuda::kRowPieces, &kFlag, sizeof(kFlag)) != 0) return false;
    }
    return true;
  }
  bool IsUntouchedBehind(size_t size) const {
    for (size_t i = cuda::StoredRows(size) * cuda::kRowBytes; i < cuda::kRowedSlotBytes; ++i) {
      if (data_[i] != kUntouched) return false;
    }
    return true;
  }

 private:
  std::vector<uint8_t> memory_;
  uint8_t* data_;
};

class CudaRowsTest : public testing::TestWithParam<Pair> {
 protected:
  CudaRowsTest() : type_(GetParam().type), combine_(GetParam().combine), size_(ElementSize(type_)) {}

  bool Scales() const { return type_ != DataType::kBool && !IsOpaque(type_) && combine_ == Combine::kSum; }
  Factor RandomFactor() const {
    Factor factor{};
    const double ordinary = static_cast<double>(Random()() % 64) / 16 - 1;
    if (ScalarType(type_) == DataType::kFloat64) {
      factor.f64 = ordinary;
    } else if (IsFloat(ScalarType(type_))) {
      factor.f32 = static_cast<float>(ordinary);
    } else {
      factor.i64 = static_cast<int64_t>(Random()()) >> (Random()() % 64);
    }
    return factor;
  }

  void CheckOne(size_t count, size_t num_src, size_t num_dst) {
    Generator& random = Random();
    const size_t bytes = count * size_, scalar = ElementSize(ScalarType(type_)), num = num_src + num_dst;
    const auto rows = static_cast<uint32_t>(1 + random() % ((1u << num) - 1));  // destinations first
    const bool aligned = random() % 2 == 0;
    std::vector<Slot> slots(num);
    std::vector<Guarded> guarded(num, Guarded(kMaxCount * size_ + 128));
    std::vector<std::vector<uint8_t>> data(num_src, std::vector<uint8_t>(bytes));
    std::vector<void*> place;
    for (size_t i = 0; i < num; ++i) {
      if (aligned) {
        guarded[i].PlaceOnLine(bytes);
      } else {
        guarded[i].Place(bytes, size_, random);
      }
      place.push_back((rows >> i & 1) != 0 ? slots[i].data() : guarded[i].data());
    }
    std::vector<const void*> from;
    std::vector<Factor> factors;
    for (size_t k = 0; k < num_src; ++k) {
      const size_t i = num_dst + k;
      for (size_t e = 0; e < bytes / scalar; ++e)
        StoreElement(data[k].data(), e, scalar, RandomElement(ScalarType(type_), random));
      if ((rows >> i & 1) != 0) {
        slots[i].Put(data[k].data(), bytes);
      } else {
        std::memcpy(place[i], data[k].data(), bytes);
      }
      from.push_back(data[k].data());
      factors.push_back(RandomFactor());
    }
    std::vector<uint8_t> wanted(bytes);
    void* const to_wanted[1] = {wanted.data()};
    ReduceRequest request = {.dst = to_wanted,
                             .num_dst = 1,
                             .src = from.data(),
                             .num_src = static_cast<int>(num_src),
                             .count = count,
                             .type = type_,
                             .combine = combine_};
    if (Scales() && random() % 2 == 0) request.pre = factors.data();
    request.round_factored = random() % 2 == 0;
    if (Scales() && !IsFloat(ScalarType(type_)) && random() % 2 == 0) request.post_divisor = 1 + random() % 9;
    Reduce(request);
    const std::vector<const void*> sources(place.begin() + static_cast<ptrdiff_t>(num_dst), place.end());
    request.dst = place.data();
    request.num_dst = static_cast<int>(num_dst);
    request.src = sources.data();
    const auto threads = static_cast<uint32_t>(8 << random() % 2);
    ASSERT_TRUE(cuda::ReduceRowsOnFibers(request, rows, kFlag, threads, random()));
    for (size_t i = 0; i < num; ++i) {
      SCOPED_TRACE(testing::Message() << "operand " << i << " of " << num_dst << " + " << num_src << ", " << count
                                      << " elements, rows " << rows << ", aligned " << aligned << ", " << threads
                                      << " threads");
      const bool rowed = (rows >> i & 1) != 0;
      const uint8_t* const want = i < num_dst ? wanted.data() : data[i - num_dst].data();
      ASSERT_TRUE(rowed ? slots[i].Has(want, bytes) : std::memcmp(place[i], want, bytes) == 0);
      ASSERT_TRUE(guarded[i].Intact());
      if (rowed) {
        ASSERT_EQ(slots[i].IsFlagged(bytes), i < num_dst);
        ASSERT_TRUE(slots[i].IsUntouchedBehind(bytes));
      }
    }
  }

  const DataType type_;
  const Combine combine_;
  const size_t size_;
};

TEST_P(CudaRowsTest, GiveTheBitsOfTheHost) {
  for (const size_t count : kCounts) {
    for (const size_t num_src : {1, 3}) ASSERT_NO_FATAL_FAILURE(CheckOne(count, num_src, 1 + Random()() % 3));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaRowsTest, testing::ValuesIn(AllPairs()),
                         [](const auto& info) { return PairName(info.param); });

}  // namespace
}  // namespace axccl::kernels
