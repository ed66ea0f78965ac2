// Copies in bulk on fibers (the twin has small stages: 64 bytes, and copies in bulk from 128 bytes on): which moves use
// them, and that they write the same bytes as the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/cuda/movers_on_fibers.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

constexpr size_t kLeast = 128, kStage = 64;
constexpr size_t kMostBytes = 1300;

size_t Below(size_t limit) { return Random()() % limit; }

// Returns how many bytes `body` writes in bulk.
template <class Body>
uint64_t InBulk(const Body& body) {
  const uint64_t before = fibers::BulkBytes();
  body();
  return fibers::BulkBytes() - before;
}

struct Copy {
  size_t bytes = 0;
  int num_dst = 1;
  size_t shift[4] = {};  // of operands, relative to a line; the source is the last
  bool in_place = false;
  fibers::Bulk bulk = fibers::Bulk::kAlways;

  size_t WantedInBulk() const {
    for (int i = 0; i < num_dst; ++i) {
      if ((!in_place || i != 0) && (shift[i] - shift[3]) % 16 != 0) return 0;
    }
    const size_t head = (0 - shift[3]) % 16;
    const size_t aligned = bytes > head ? (bytes - head) / 16 * 16 : 0;
    if (bulk == fibers::Bulk::kNever || aligned < kLeast) return 0;
    return aligned * static_cast<size_t>(num_dst - (in_place ? 1 : 0));
  }
};

void Check(const Copy& copy) {
  std::vector<Guarded> guarded(4, Guarded(kMostBytes + 64));
  std::vector<uint8_t*> at;
  for (size_t i = 0; i < 4; ++i) {
    guarded[i].PlaceOnLine(copy.bytes + copy.shift[i]);
    at.push_back(guarded[i].data() + copy.shift[i]);
  }
  std::vector<uint8_t> wanted(copy.bytes + 1);
  for (uint8_t& byte : wanted) byte = static_cast<uint8_t>(Random()());
  std::memcpy(at[3], wanted.data(), copy.bytes);
  void* to[3] = {copy.in_place ? at[3] : at[0], at[1], at[2]};
  const void* const from[1] = {at[3]};
  const ReduceRequest request = {.dst = to,
                                 .num_dst = copy.num_dst,
                                 .src = from,
                                 .num_src = 1,
                                 .count = copy.bytes,
                                 .type = DataType::kInt8,
                                 .combine = Combine::kSum};
  constexpr uint32_t kThreads[] = {1, 2, 3, 8};
  const uint64_t in_bulk =
      InBulk([&] { ASSERT_TRUE(cuda::ReduceOnFibers(request, kThreads[Below(4)], Random()(), copy.bulk)); });
  const std::string text = std::to_string(copy.bytes) + " bytes to " + std::to_string(copy.num_dst) + ", shift " +
                           std::to_string(copy.shift[3]) + ", in place " + std::to_string(copy.in_place);
  ASSERT_EQ(in_bulk, copy.WantedInBulk()) << text;
  for (int d = 0; d < copy.num_dst; ++d) ASSERT_EQ(std::memcmp(to[d], wanted.data(), copy.bytes), 0) << text;
  // Includes the bytes before an operand that does not begin at a line.
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(guarded[i].Intact()) << text;
    ASSERT_TRUE(std::all_of(guarded[i].data(), at[i], [](uint8_t byte) { return byte == 0xa5; })) << text;
  }
}

Copy Together(size_t bytes, size_t shift) {
  Copy copy;
  copy.bytes = bytes;
  copy.num_dst = 1 + static_cast<int>(Below(3));
  std::fill_n(copy.shift, 4, shift);
  copy.in_place = Below(3) == 0;
  return copy;
}

TEST(CudaBulk, CopiesEverySizeFromEveryShift) {
  for (size_t shift = 0; shift < 16; ++shift) {
    for (size_t bytes = kLeast - 2; bytes < kLeast + 40; ++bytes)
      ASSERT_NO_FATAL_FAILURE(Check(Together(bytes, shift)));
    // Around multiples of the stage size, beyond the number of stages of all issuers.
    for (size_t stages = 2; stages <= 19; ++stages) {
      for (const size_t bytes : {stages * kStage - 1, stages * kStage, stages * kStage + 17})
        ASSERT_NO_FATAL_FAILURE(Check(Together(bytes, shift)));
    }
  }
}

TEST(CudaBulk, CopiesToOneTwoAndThreeInPlaceAndNot) {
  for (int round = 0; round < 600; ++round) {
    Copy copy = Together(Below(kMostBytes), Below(64));
    for (size_t& shift : copy.shift) shift = shift % 16 + 16 * Below(4);
    ASSERT_NO_FATAL_FAILURE(Check(copy));
  }
}

TEST(CudaBulk, MakesNoOtherCopiesInBulk) {
  for (int round = 0; round < 300; ++round) {
    Copy copy = Together(kLeast + 16 + Below(500), Below(64));
    copy.num_dst = 2;
    copy.in_place = false;
    copy.shift[1] += 1 + Below(15);
    ASSERT_NO_FATAL_FAILURE(Check(copy));
    copy = Together(kLeast + 16 + Below(500), Below(64));
    copy.bulk = fibers::Bulk::kNever;
    ASSERT_NO_FATAL_FAILURE(Check(copy));
  }
}

// ---- boxes of rows ----

struct Rows {
  int64_t sizes[3];
  uint64_t begin, count;  // bytes
  int64_t strides[3][3];  // of operands, in bytes; the source is the last
  size_t base[3];
  int num_dst;

  BoxRange Range() const { return {3, sizes, begin, count}; }
};

// Rows of `row` bytes with gaps, whose strides are multiples of `alignment`.
Rows RandomRows(int64_t row, int64_t alignment) {
  Rows rows;
  rows.num_dst = 1 + static_cast<int>(Below(2));
  rows.sizes[0] = 1 + static_cast<int64_t>(Below(4));
  rows.sizes[1] = 2 + static_cast<int64_t>(Below(4));
  rows.sizes[2] = row;
  const auto all = static_cast<uint64_t>(rows.sizes[0] * rows.sizes[1] * row);
  const auto unit = static_cast<uint64_t>(alignment);
  rows.begin = Below(2) == 0 ? 0 : Below(all / 2) / unit * unit;
  rows.count = Below(2) == 0 ? all - rows.begin : 1 + Below(all - rows.begin);
  rows.count = std::max(rows.count / unit, uint64_t{1}) * unit;
  for (int i = 0; i < 3; ++i) {
    const auto gap = [&] { return alignment * static_cast<int64_t>(1 + Below(3)); };
    int64_t* const strides = rows.strides[i];
    strides[2] = 1;
    strides[1] = row + gap();
    strides[0] = strides[1] * rows.sizes[1] + gap();
    if (Below(3) == 0) std::swap(strides[0], strides[1]);
    if (strides[0] < strides[1]) strides[1] = strides[0] * rows.sizes[0] + gap();
    rows.base[i] = 64;
    // Backwards.
    if (Below(4) == 0) {
      rows.base[i] += static_cast<size_t>(strides[0] * (rows.sizes[0] - 1));
      strides[0] = -strides[0];
    }
  }
  return rows;
}

// Returns how many bytes are copied in bulk.
uint64_t CheckRows(const Rows& rows, fibers::Bulk bulk) {
  struct alignas(16) Words {
    uint8_t bytes[16];
  };
  std::vector<Words> memory[2][3];
  BoxOperand operands[2][3];
  for (int i = 0; i < 3; ++i) {
    memory[0][i].resize(1000);
    for (Words& words : memory[0][i]) {
      for (uint8_t& byte : words.bytes) byte = static_cast<uint8_t>(Random()());
    }
    memory[1][i] = memory[0][i];
    for (int device = 0; device < 2; ++device)
      operands[device][i] = {memory[device][i].data()->bytes + rows.base[i], rows.strides[i]};
  }
  CopyBox(rows.Range(), operands[0], rows.num_dst, operands[0][2], 1, false);
  const BoxReduceRequest request{rows.Range(),    operands[1],  rows.num_dst, &operands[1][2], 1,
                                 DataType::kInt8, Combine::kSum};
  const uint64_t in_bulk = InBulk([&] {
    ASSERT_TRUE(
        cuda::MoveBoxOnFibers(request, 1 + static_cast<uint32_t>(Below(6)), Random()(), nullptr, nullptr, bulk));
  });
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(std::memcmp(memory[0][i].data(), memory[1][i].data(), memory[0][i].size() * sizeof(Words)), 0)
        << "operand " << i << ", rows of " << rows.sizes[2] << ", range " << rows.begin << " + " << rows.count;
  return in_bulk;
}

TEST(CudaBulk, CopiesLongRuns) {
  int used = 0;
  for (int round = 0; round < 400 && !testing::Test::HasFailure(); ++round) {
    const Rows rows = RandomRows(static_cast<int64_t>(kStage + 16 * Below(15)), 16);
    const uint64_t in_bulk = CheckRows(rows, fibers::Bulk::kAlways);
    EXPECT_EQ(in_bulk, rows.count < kLeast ? 0 : rows.count * static_cast<uint64_t>(rows.num_dst));
    used += in_bulk != 0;
  }
  EXPECT_GT(used, 300);
}

TEST(CudaBulk, CopiesNoOtherRunsInBulk) {
  for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round) {
    const auto few = static_cast<int64_t>(kStage / 2), many = static_cast<int64_t>(2 * kStage);
    EXPECT_EQ(CheckRows(RandomRows(many, 16), fibers::Bulk::kNever), 0u);
    EXPECT_EQ(CheckRows(RandomRows(few, 16), fibers::Bulk::kAlways), 0u);
    Rows odd = RandomRows(many, 16);
    odd.base[2] += 8;
    EXPECT_EQ(CheckRows(odd, fibers::Bulk::kAlways), 0u);
  }
}

}  // namespace
}  // namespace axccl::kernels
