// The program of a calibration, and the fabric that comes out of it. What the figures are depends on the machine; here
// local operations give zeros, so that it takes no time.
#include "tools/axccl-program/calibrate.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "src/program/check.h"
#include "src/program/kinds.h"
#include "src/program/simulate/machines.h"
#include "tools/axccl-program/calibration_program.h"

namespace axccl::tools {
namespace {

using program::OpKind;

TEST(Calibration, RunsOfRanksOfAnyNumberPassCheck) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    const CalibrationProgram calibration = MakeCalibration(ranks);
    const Status right = program::Check(calibration.program);
    EXPECT_TRUE(right.ok()) << ranks << " ranks: " << right.message();
    std::map<std::pair<OpKind, int>, double> largest;
    for (const CalibrationBlock& block : calibration.blocks) {
      EXPECT_LT(block.begin, block.end);
      EXPECT_LT(block.end, calibration.results);
      EXPECT_EQ(block.end - block.begin, static_cast<size_t>(block.count));
      if (block.measures == Measures::kProduct) continue;
      double& before = largest[{block.kind, block.group}];
      EXPECT_GT(block.bytes, before) << program::InfoOf(block.kind).name;
      before = block.bytes;
      EXPECT_EQ(block.group == 0 ? 0 : ranks % block.group, 0);
    }
  }
}

TEST(Calibration, WritesAFabric) {
  RunOptions how;
  how.local = [](const program::Operation& operation, program::TensorSpan) {
    return program::Tensor::Zeros(operation.results[0].type);
  };
  const Result<std::string> text = Calibrate(2, how, 1);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const Result<program::Machines> machines = program::ParseMachines(text.value());
  ASSERT_TRUE(machines.ok()) << machines.status().message() << "\n" << text.value();
  EXPECT_EQ(machines.value().ranks_per_machine, 2);
  const program::Measured& measured = machines.value().measured;
  EXPECT_TRUE(measured.one_stream);
  EXPECT_EQ(measured.products.size(), 2u);
  EXPECT_EQ(measured.operations.at(OpKind::kAdd).size(), 5u);
  for (const OpKind kind :
       {OpKind::kAllGather, OpKind::kAllReduce, OpKind::kAllToAll, OpKind::kCollectiveBroadcast,
        OpKind::kCollectivePermute, OpKind::kCollectiveReduce, OpKind::kReduceScatter, OpKind::kSend})
    EXPECT_EQ(measured.calls.at({kind, 2}).size(), 5u) << program::InfoOf(kind).name;
}

// Exact times give exact figures; one that would be negative is left out.
TEST(Calibration, FitsProducts) {
  const auto sample = [](double products, double flops, double bytes, double per_product) {
    return ProductSample{{products, flops, bytes}, products * per_product + flops * 2e-10 + bytes * 3e-9};
  };
  program::Measured::Product fit = FitProducts(
      {sample(1, 1e4, 1e3, 1e-6), sample(8, 1e5, 4e3, 1e-6), sample(1, 1e8, 1e5, 1e-6), sample(1, 1e6, 1e6, 1e-6)});
  EXPECT_NEAR(fit.seconds, 1e-6, 1e-9);
  EXPECT_NEAR(fit.per_flop, 2e-10, 1e-13);
  EXPECT_NEAR(fit.per_byte, 3e-9, 1e-12);
  fit = FitProducts({sample(1, 1e4, 1e3, -1e-6), sample(8, 1e6, 4e4, -1e-6), sample(1, 1e8, 1e5, -1e-6)});
  EXPECT_EQ(fit.seconds, 0);
  EXPECT_GT(fit.per_flop, 0);
}

// What is left fits the samples anew. With -1 us a product, 1e4 operations would take 2 us; without, x is best for
// which (1 - x / 1 us)^2 + (1 - 2x / 3 us)^2 is least: 15/13 us. Bytes have a sample of their own.
TEST(Calibration, FitsOnceMoreWithoutANegativeFigure) {
  const program::Measured::Product fit = FitProducts({{{1, 1e4, 0}, 1e-6}, {{1, 2e4, 0}, 3e-6}, {{0, 0, 1e3}, 3e-6}});
  EXPECT_EQ(fit.seconds, 0);
  EXPECT_NEAR(fit.per_flop, 1.154e-10, 1e-16);
  EXPECT_NEAR(fit.per_byte, 3e-9, 1e-15);
}

}  // namespace
}  // namespace axccl::tools
