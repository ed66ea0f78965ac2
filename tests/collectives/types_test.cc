// Types and operators beyond NCCL's, by known values and by bytes: similar types are kept apart, opaque elements of any
// size arrive whole, and operators that a type does not have are refused. Random cases of all types are in view_test
// and grid_test, all pairs of type and operator in the movers' own tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/element.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::Layout;
using harness::RankContext;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

// The result of two ranks that contribute `first` and `second`, from NCCL's call and from the one on views: checked to
// be equal in every element.
template <class T>
T Reduced(Clique& clique, T first, T second, ncclDataType_t type, ncclRedOp_t op) {
  constexpr int64_t kCount = 37;
  const std::vector<T> mine(kCount, clique.rank(0) == 0 ? first : second);
  std::vector<T> flat(kCount), spread(3 * kCount);
  EXPECT_OK(ncclAllReduce(mine.data(), flat.data(), kCount, type, op, clique.comm(), Cuda(clique.stream())));
  EXPECT_OK(axcclAllReduce(1, View(const_cast<T*>(mine.data()), {kCount}, {}, type),
                           View(spread.data(), {kCount}, {3}, type), op, axcclDefaultChannel(clique.comm()), nullptr,
                           Cuda(clique.stream())));
  EXPECT_TRUE(clique.Synchronize());
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(flat[i], flat[0]) << i;
    EXPECT_EQ(spread[3 * i], flat[0]) << i;
  }
  return flat[0];
}

void CheckNumbers(RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  // The same bits, with other signs.
  EXPECT_EQ(Reduced<int32_t>(clique, -1, 5, ncclInt32, ncclMax), 5);
  EXPECT_EQ(Reduced<uint32_t>(clique, 0xffffffffu, 5, ncclUint32, ncclMax), 0xffffffffu);
  EXPECT_EQ(Reduced<int16_t>(clique, -3, 2, axcclInt16, ncclMin), -3);
  EXPECT_EQ(Reduced<uint16_t>(clique, 0xfffd, 2, axcclUint16, ncclMin), 2);
  EXPECT_EQ(Reduced<int16_t>(clique, -7, 2, axcclInt16, ncclAvg), -2);
  EXPECT_EQ(Reduced<uint16_t>(clique, 0xfff0, 0x20, axcclUint16, ncclSum), 0x10);
  // 1 as half, 0.0078125 as bfloat16.
  EXPECT_EQ(Reduced<uint16_t>(clique, 0x3c00, 0x3c00, ncclFloat16, ncclSum), 0x4000);
  EXPECT_EQ(Reduced<uint16_t>(clique, 0x3c00, 0x3c00, ncclBfloat16, ncclSum), 0x3c80);
  EXPECT_EQ(Reduced<uint16_t>(clique, 0x3c00, 0x3c00, axcclUint16, ncclSum), 0x7800);

  EXPECT_EQ(Reduced<uint16_t>(clique, 0x0f0f, 0x3c00, axcclUint16, axcclXor), 0x330f);
  EXPECT_EQ(Reduced<int64_t>(clique, -4, 7, ncclInt64, axcclAnd), 4);
  EXPECT_EQ(Reduced<int8_t>(clique, 0x41, 0x12, ncclInt8, axcclOr), 0x53);
  EXPECT_EQ(Reduced<uint32_t>(clique, 0x100, 0x1, ncclUint32, axcclLogicalAnd), 1u);
  EXPECT_EQ(Reduced<uint32_t>(clique, 0x100, 0, ncclUint32, axcclLogicalAnd), 0u);
  EXPECT_EQ(Reduced<int64_t>(clique, int64_t{1} << 40, 0, ncclInt64, axcclLogicalOr), 1);

  using Complex64 = std::complex<float>;
  using Complex128 = std::complex<double>;
  EXPECT_EQ(Reduced<Complex64>(clique, {1, 2}, {3, -1}, axcclComplex64, ncclProd), Complex64(5, 5));
  EXPECT_EQ(Reduced<Complex128>(clique, {1, 2}, {3, -1}, axcclComplex128, ncclProd), Complex128(5, 5));
  EXPECT_EQ(Reduced<Complex64>(clique, {1, 2}, {3, -1}, axcclComplex64, ncclSum), Complex64(4, 1));
  EXPECT_EQ(Reduced<Complex128>(clique, {1, 2}, {3, -1}, axcclComplex128, ncclAvg), Complex128(2, 0.5));
}

void CheckBools(RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  for (const uint8_t a : {0, 1, 2, 255}) {
    for (const uint8_t b : {0, 1, 2, 255}) {
      for (const ncclRedOp_t any : {ncclSum, ncclMax, axcclOr, axcclLogicalOr})
        EXPECT_EQ(Reduced<uint8_t>(clique, a, b, axcclBool, any), a != 0 || b != 0) << +a << " " << +b << " " << any;
      for (const ncclRedOp_t all : {ncclProd, ncclMin, axcclAnd, axcclLogicalAnd})
        EXPECT_EQ(Reduced<uint8_t>(clique, a, b, axcclBool, all), a != 0 && b != 0) << +a << " " << +b << " " << all;
      EXPECT_EQ(Reduced<uint8_t>(clique, a, b, axcclBool, axcclXor), (a != 0) != (b != 0)) << +a << " " << +b;
    }
  }
}

TEST(Types, NumbersAreReducedByTheirType) {
  for (const Layout& layout : {harness::Processes(2), harness::Threads(2)}) RunRanks(layout, CheckNumbers);
}

TEST(Types, BoolsAreTrueOrFalse) { RunRanks(harness::Threads(2), CheckBools); }

// Neither saturated nor normalised, unless it is scaled.
TEST(Types, OfASingleRankStayAsTheyAre) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin}) {
      for (const uint8_t bits : {0x7c, 0xfd})  // infinity, and a NaN with a sign and a payload
        EXPECT_EQ(Reduced<uint8_t>(clique, bits, 0, ncclFloat8e5m2, op), bits) << op;
      for (const uint32_t bits : {0x00000001u, 0xff800001u})
        EXPECT_EQ(Reduced<uint32_t>(clique, bits, 0, ncclFloat32, op), bits) << op;
      EXPECT_EQ(Reduced<uint8_t>(clique, 2, 0, axcclBool, op), 2) << op;
    }
    EXPECT_EQ(Reduced<uint8_t>(clique, 0x7c, 0, ncclFloat8e5m2, ncclAvg), 0x7b);
    EXPECT_EQ(Reduced<uint8_t>(clique, 0xfd, 0, ncclFloat8e5m2, ncclAvg), 0x7f);
  });
}

// ---- opaque elements ----

// Byte `byte` of element [row, col] of `rank`'s input.
char OpaqueByte(int rank, int64_t row, int64_t col, size_t byte) {
  return static_cast<char>(Scramble(Seed(), static_cast<uint64_t>((rank * 100 + row) * 100 + col), byte));
}

// A matrix of opaque elements with a gap after each row, and another between elements.
struct Matrix {
  int64_t rows, cols, col_stride, row_stride;
  size_t size;
  std::vector<char> bytes;
  View view;

  Matrix(int64_t rows, int64_t cols, int64_t col_stride, size_t size)
      : rows(rows),
        cols(cols),
        col_stride(col_stride),
        row_stride(cols * col_stride + 1),
        size(size),
        bytes(static_cast<size_t>(rows * row_stride) * size, 0x55),
        view(bytes.data(), {rows, cols}, {row_stride, col_stride}, axcclBits(size)) {}

  char* At(int64_t row, int64_t col) {
    return bytes.data() + (row * row_stride + col * col_stride) * static_cast<int64_t>(size);
  }
  template <class Sender>  // (row, col) -> rank, row and column there
  void Check(const Sender& sender) {
    std::vector<char> want(bytes.size(), 0x55);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        const auto [rank, from_row, from_col] = sender(row, col);
        for (size_t b = 0; b < size; ++b)
          want[static_cast<size_t>(At(row, col) - bytes.data()) + b] = OpaqueByte(rank, from_row, from_col, b);
      }
    }
    EXPECT_EQ(bytes, want) << size << " bytes an element, AXCCL_TEST_SEED=" << Seed();
  }
};

struct Place {
  int rank;
  int64_t row, col;
};

void CheckOpaque(RankContext& context, size_t size) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int64_t n = clique.nranks(), rows = 5 * n, cols = 7;
  const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
  const cudaStream_t stream = Cuda(clique.stream());
  Matrix in(rows, cols, 2, size), gathered(rows, cols * n, 1, size), exchanged(5, cols * n, 1, size);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      for (size_t b = 0; b < size; ++b) in.At(row, col)[b] = OpaqueByte(clique.rank(0), row, col, b);
    }
  }
  ASSERT_OK(axcclAllGather(1, in.view, gathered.view, 1, channel, nullptr, stream));
  ASSERT_OK(axcclAllToAll(1, in.view, exchanged.view, 0, 1, channel, nullptr, stream));
  // All of `in` as NCCL's calls see it, gaps included.
  const size_t elements = in.bytes.size() / size;
  std::vector<char> flat(in.bytes.size() * static_cast<size_t>(n)), received(in.bytes.size());
  ASSERT_OK(ncclAllGather(in.bytes.data(), flat.data(), elements, axcclBits(size), clique.comm(), stream));
  const int next = (clique.rank(0) + 1) % static_cast<int>(n),
            last = (clique.rank(0) + static_cast<int>(n) - 1) % static_cast<int>(n);
  ASSERT_OK(ncclGroupStart());
  ASSERT_OK(ncclSend(in.bytes.data(), elements, axcclBits(size), next, clique.comm(), stream));
  ASSERT_OK(ncclRecv(received.data(), elements, axcclBits(size), last, clique.comm(), stream));
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
  gathered.Check([&](int64_t row, int64_t col) { return Place{static_cast<int>(col / cols), row, col % cols}; });
  exchanged.Check([&](int64_t row, int64_t col) {
    return Place{static_cast<int>(col / cols), clique.rank(0) * 5 + row, col % cols};
  });
  const size_t mine = in.bytes.size() * static_cast<size_t>(clique.rank(0));
  EXPECT_TRUE(std::equal(in.bytes.begin(), in.bytes.end(), flat.begin() + static_cast<int64_t>(mine)));
  EXPECT_TRUE(std::equal(received.begin(), received.end(),
                         flat.begin() + static_cast<int64_t>(in.bytes.size() * static_cast<size_t>(last))));
}

TEST(Types, OpaqueElementsOfAnySizeArriveWhole) {
  for (const size_t size : {1, 3, 5, 12, 16}) {
    for (const Layout& layout : {harness::Processes(3), harness::Threads(2)})
      RunRanks(layout, [size](RankContext& context) { CheckOpaque(context, size); });
  }
}

// ---- refusals ----

struct Refusal {
  ncclDataType_t type;
  ncclRedOp_t op;
  const char* text;
};

const Refusal kRefusals[] = {
    {ncclFloat32, axcclXor,
     "argument op is xor, which datatype float does not have; it has sum, prod, max, min, avg and those of "
     "axcclRedOpCreateCallback"},
    {ncclBfloat16, axcclLogicalAnd, "argument op is logical and, which datatype bfloat16 does not have"},
    {axcclBool, ncclAvg,
     "argument op is avg, which datatype bool does not have; it has sum, prod, max, min, and, or, xor, logical and, "
     "logical or and those"},
    {axcclComplex64, ncclMax, "argument op is max, which datatype complex64 does not have; it has sum, prod, avg and"},
    {axcclComplex128, axcclOr, "argument op is or, which datatype complex128 does not have"},
    {axcclBits(3), ncclSum, "which datatype bits(3) does not have; opaque elements can be moved, or reduced with"},
    {static_cast<ncclDataType_t>(63), ncclSum, "datatype"},
    {static_cast<ncclDataType_t>(69), ncclSum, "datatype"},
    {axcclBits(0), ncclSum, "pass one of ncclDataType_t (0..11) or of axccl/types.h"},
    {axcclBits(17), ncclSum, "pass one of ncclDataType_t (0..11) or of axccl/types.h"},
    {ncclInt32, static_cast<ncclRedOp_t>(0x7fff0006), "neither built in"},
    {ncclInt32, static_cast<ncclRedOp_t>(0x7fff0000), "neither built in"},
};

TEST(Types, WhatATypeDoesNotHaveIsRefused) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    alignas(16) char in[16] = {}, out[16] = {};
    const cudaStream_t stream = Cuda(clique.stream());
    for (const Refusal& r : kRefusals) {
      EXPECT_EQ(ncclAllReduce(in, out, 1, r.type, r.op, clique.comm(), stream), ncclInvalidArgument) << r.text;
      EXPECT_TRUE(LastErrorHas("ncclAllReduce: ") && LastErrorHas(r.text)) << ncclGetLastError(nullptr);
      EXPECT_EQ(axcclAllReduce(1, View(in, {1}, {}, r.type), View(out, {1}, {}, r.type), r.op,
                               axcclDefaultChannel(clique.comm()), nullptr, stream),
                ncclInvalidArgument);
      EXPECT_TRUE(LastErrorHas("axcclAllReduce: ") && LastErrorHas(r.text)) << ncclGetLastError(nullptr);
    }
    ncclRedOp_t op;
    for (const ncclDataType_t type : {axcclBool, axcclComplex64, axcclComplex128, axcclBits(8)}) {
      EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, in, type, ncclScalarHostImmediate, clique.comm()), ncclInvalidArgument);
      EXPECT_TRUE(LastErrorHas("factors are integers and floats")) << ncclGetLastError(nullptr);
    }
    // The communicator still works.
    ASSERT_OK(ncclAllReduce(in, out, 4, ncclInt32, axcclXor, clique.comm(), stream));
    ASSERT_TRUE(clique.Synchronize());
  });
}

TEST(Types, DifferentTypesAreReported) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    uint16_t data[64] = {};
    const bool first = clique.rank(0) == 0;
    (void)ncclAllReduce(data, data, 64, first ? ncclFloat16 : ncclBfloat16, ncclSum, clique.comm(),
                        Cuda(clique.stream()));
    clique.ExpectMismatch({"half sum", "bfloat16 sum"});
  });
}

}  // namespace
}  // namespace axccl::tests
