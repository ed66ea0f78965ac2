// Checks that the oracle of group order distinguishes orders and roundings, and its arithmetic on cases computed by
// hand.
#include "tests/harness/left_fold.h"

#include <gtest/gtest.h>

#include "tests/harness/random.h"

namespace axccl::harness {
namespace {

TEST(LeftFold, TellsOrdersAndRoundingsApart) {
  constexpr size_t kElements = 2000;
  for (const ncclDataType_t type : kFoldTypes) {
    for (const FoldOp op : kFoldOps) {
      for (const int n : {3, 4, 8}) {
        if (!HasFoldOp(type, op)) continue;
        const LeftFold fold(type, op, n, kElements, Seed());
        std::vector<int> up, down;
        for (int r = 0; r < n; ++r) up.push_back(r), down.insert(down.begin(), r);
        const auto wanted = fold.Result(up);
        // If the data is exact in float, or nearly so, the difference shows in a chain that rounds to the type at every
        // step.
        const bool exact = type == ncclFloat8e4m3 || (op == FoldOp::kProd && TypeBytes(type) < 4);
        const size_t seen = fold.Differences(wanted, exact ? fold.RoundedEachStep(up) : fold.Result(down));
        EXPECT_GT(seen, kElements / 20) << fold.Text();
      }
    }
  }
}

TEST(LeftFold, OneRankIsItsOwnFold) {
  for (const ncclDataType_t type : kFoldTypes) {
    for (const FoldOp op : {FoldOp::kSum, FoldOp::kProd, FoldOp::kAvg}) {
      const LeftFold fold(type, op, 1, 100, Seed());
      EXPECT_EQ(fold.Result({0}), fold.Input(0)) << fold.Text();
    }
  }
}

TEST(LeftFold, AddsAndMultipliesByTheRule) {
  const LeftFold sum(ncclFloat32, FoldOp::kSum, 3, 50, Seed());
  const LeftFold product(axcclComplex128, FoldOp::kProd, 2, 50, Seed());
  const auto sums = sum.Result({2, 0, 1}), products = product.Result({0, 1});
  for (size_t e = 0; e < 50; ++e) {
    const auto in = [&](int r) { return DecodeFloat(ncclFloat32, LoadElement(sum.Input(r).data(), ncclFloat32, e)); };
    const float first = static_cast<float>(in(2) + in(0));  // the double is exact, or as good as that
    const auto wanted = EncodeFloat(ncclFloat32, static_cast<float>(static_cast<double>(first) + in(1)));
    EXPECT_EQ(LoadElement(sums.data(), ncclFloat32, e), wanted) << sum.Text();
    const auto part = [&](int r, size_t i) {
      return DecodeFloat(ncclFloat64, LoadElement(product.Input(r).data(), ncclFloat64, 2 * e + i));
    };
    const double ac = part(0, 0) * part(1, 0), bd = part(0, 1) * part(1, 1);
    EXPECT_EQ(LoadElement(products.data(), ncclFloat64, 2 * e), EncodeFloat(ncclFloat64, ac - bd)) << product.Text();
  }
}

}  // namespace
}  // namespace axccl::harness
