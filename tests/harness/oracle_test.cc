// Tests the oracle: inputs have the properties they are chosen for, and wrong results are noticed.
#include "tests/harness/oracle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/harness/element.h"
#include "tests/harness/random.h"

namespace axccl::harness {
namespace {

constexpr Fold kAllFolds[] = {Fold::kSum, Fold::kProd, Fold::kMax, Fold::kMin, Fold::kAvg, Fold::kPreMulSum};

double CombineDoubles(Fold fold, double a, double b) {
  if (fold == Fold::kProd) return a * b;
  if (fold == Fold::kMax) return a > b ? a : b;
  if (fold == Fold::kMin) return a < b ? a : b;
  return a + b;
}

// Folds as a ring would, rounding to the type after every hop, starting at `start`.
double RingFold(const Case& c, int nranks, size_t element, int start) {
  double total = 0;
  std::vector<char> send(c.count * TypeBytes(c.type));
  for (int hop = 0; hop < nranks; ++hop) {
    const int rank = (start + hop) % nranks;
    FillSend(c, nranks, rank, send.data());
    double value = DecodeFloat(c.type, LoadElement(send.data(), c.type, element));
    if (c.fold == Fold::kPreMulSum) value *= DecodeFloat(c.type, PreMulScalar(c, nranks, rank));
    total = hop == 0 ? value : CombineDoubles(c.fold, total, value);
    total = DecodeFloat(c.type, EncodeFloat(c.type, total));
  }
  return total;
}

TEST(Oracle, FloatFoldsAreExactInEveryOrder) {
  for (const ncclDataType_t type : kAllTypes) {
    if (!IsFloatType(type)) continue;
    for (const Fold fold : kAllFolds) {
      if (fold == Fold::kAvg) continue;
      for (const int nranks : {1, 2, 3, 8, 33, 64}) {
        const Case c{Call::kAllReduce, type, fold, 5, 0, Seed() + static_cast<uint64_t>(nranks)};
        for (size_t element = 0; element < c.count; ++element) {
          const double expected = DecodeFloat(type, ExpectedElement(c, nranks, 0, element));
          ASSERT_EQ(RingFold(c, nranks, element, nranks / 3), expected) << c.Text() << " ranks " << nranks;
          ASSERT_EQ(RingFold(c, nranks, element, 0), expected) << c.Text() << " ranks " << nranks;
        }
      }
    }
  }
}

TEST(Oracle, SeesEverySingleWrongElement) {
  for (int call = 0; call < kNumCalls; ++call) {
    for (const ncclDataType_t type : kAllTypes) {
      const Case c{static_cast<Call>(call), type, Fold::kSum, 7, 1, Seed()};
      const int nranks = 3;
      const size_t elements = RecvElements(c, nranks, 1);
      std::vector<char> recv(elements * TypeBytes(type));
      for (size_t i = 0; i < elements; ++i) StoreElement(recv.data(), type, i, ExpectedElement(c, nranks, 1, i));
      ASSERT_EQ(CheckRecv(c, nranks, 1, recv.data()), "") << c.Text();
      for (size_t i = 0; i < elements; ++i) {
        const uint64_t right = LoadElement(recv.data(), type, i);
        StoreElement(recv.data(), type, i, right ^ 1);
        ASSERT_NE(CheckRecv(c, nranks, 1, recv.data()), "") << c.Text() << " element " << i;
        StoreElement(recv.data(), type, i, right);
      }
    }
  }
}

TEST(Oracle, DependsOnEveryRank) {
  // Leaving out or doubling a rank's contribution must show in some element.
  for (const ncclDataType_t type : kAllTypes) {
    const int nranks = 5;
    const Case c{Call::kAllReduce, type, Fold::kSum, 64, 0, Seed()};
    std::vector<char> send(c.count * TypeBytes(type));
    for (int rank = 0; rank < nranks; ++rank) {
      FillSend(c, nranks, rank, send.data());
      bool contributes = false;
      for (size_t i = 0; i < c.count; ++i) contributes |= LoadElement(send.data(), type, i) != 0;
      ASSERT_TRUE(contributes) << TypeName(type) << " rank " << rank;
    }
  }
}

TEST(Oracle, AveragesAllowTwoUnitsAndNoMore) {
  const Case c{Call::kAllReduce, ncclFloat32, Fold::kAvg, 3, 0, Seed()};
  std::vector<char> recv(3 * 4);
  for (size_t i = 0; i < 3; ++i) StoreElement(recv.data(), c.type, i, ExpectedElement(c, 4, 0, i));
  EXPECT_EQ(CheckRecv(c, 4, 0, recv.data()), "");
  const uint64_t right = LoadElement(recv.data(), c.type, 1);
  StoreElement(recv.data(), c.type, 1, right + 1);
  EXPECT_EQ(CheckRecv(c, 4, 0, recv.data()), "");
  StoreElement(recv.data(), c.type, 1, right + 5);
  EXPECT_NE(CheckRecv(c, 4, 0, recv.data()), "");
}

}  // namespace
}  // namespace axccl::harness
