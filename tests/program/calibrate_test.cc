// The program of a calibration, and the fabric that comes out of it. What the figures are depends on the machine; here
// local operations give zeros, so that it takes no time.
#include "tools/axccl-program/calibrate.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/program/check.h"
#include "src/program/kinds.h"
#include "src/program/simulate/machines.h"
#include "src/program/simulate/on_machines.h"
#include "src/program/text.h"
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
  const auto sample = [](double products, double flops, std::array<double, 3> bytes, double per_product) {
    return ProductSample{{products, flops, bytes[0], bytes[1], bytes[2]},
                         products * per_product + flops * 2e-10 + bytes[0] * 3e-9 + bytes[1] * 1e-9 + bytes[2] * 5e-9};
  };
  const auto samples = [&](double per_product) {
    return std::vector<ProductSample>{
        sample(1, 1e4, {1e3, 1e3, 1e3}, per_product), sample(8, 1e5, {4e3, 1e3, 2e3}, per_product),
        sample(1, 1e8, {1e5, 2e5, 1e5}, per_product), sample(1, 1e6, {1e6, 1e4, 1e4}, per_product),
        sample(1, 1e6, {1e4, 1e6, 1e4}, per_product), sample(1, 1e6, {1e4, 1e4, 1e6}, per_product)};
  };
  program::Measured::Product fit = FitProducts(samples(1e-6));
  EXPECT_NEAR(fit.seconds, 1e-6, 1e-9);
  EXPECT_NEAR(fit.per_flop, 2e-10, 1e-13);
  EXPECT_NEAR(fit.per_left_byte, 3e-9, 1e-12);
  EXPECT_NEAR(fit.per_right_byte, 1e-9, 1e-12);
  EXPECT_NEAR(fit.per_result_byte, 5e-9, 1e-12);
  fit = FitProducts(samples(-1e-6));
  EXPECT_EQ(fit.seconds, 0);
  EXPECT_GT(fit.per_flop, 0);
}

// What is left fits the samples anew. With -1 us a product, 1e4 operations would take 2 us; without, x is best for
// which (1 - x / 1 us)^2 + (1 - 2x / 3 us)^2 is least: 15/13 us. Bytes have a sample of their own each.
TEST(Calibration, FitsOnceMoreWithoutANegativeFigure) {
  const program::Measured::Product fit = FitProducts({{{1, 1e4, 0, 0, 0}, 1e-6},
                                                      {{1, 2e4, 0, 0, 0}, 3e-6},
                                                      {{0, 0, 1e3, 0, 0}, 3e-6},
                                                      {{0, 0, 0, 1e3, 0}, 4e-6},
                                                      {{0, 0, 0, 0, 1e3}, 5e-6}});
  EXPECT_EQ(fit.seconds, 0);
  EXPECT_NEAR(fit.per_flop, 1.154e-10, 1e-16);
  EXPECT_NEAR(fit.per_left_byte, 3e-9, 1e-15);
  EXPECT_NEAR(fit.per_right_byte, 4e-9, 1e-15);
  EXPECT_NEAR(fit.per_result_byte, 5e-9, 1e-15);
}

// Products of as many operations and bytes, of which one has the larger result: that takes longer where the result's
// bytes do.
TEST(Calibration, TellsNarrowProductsFromWideOnes) {
  std::vector<ProductSample> samples;
  for (const auto& [m, n, k] : {std::array{256.0, 256.0, 256.0},
                                {512.0, 64.0, 64.0},
                                {64.0, 512.0, 64.0},
                                {64.0, 64.0, 512.0},
                                {16.0, 16.0, 16.0},
                                {512.0, 512.0, 512.0}}) {
    const double flops = 2 * m * n * k, left = 4 * m * k, right = 4 * k * n, result = 4 * m * n;
    samples.push_back(
        {{1, flops, left, right, result}, 1e-6 + flops * 1e-11 + left * 1e-10 + right * 1e-10 + result * 2e-10});
  }
  program::Machines machines;
  machines.measured.products[DataType::kFloat32] = FitProducts(samples);
  const program::MachinesModel model(machines);
  const auto seconds = [&](const std::string& left, const std::string& right, const std::string& result) {
    const Result<program::Program> program =
        program::Parse("axccl-program 1\nranks 1\npart main on [0]\n  argument %0 f32[" + left +
                       "]\n  argument %1 f32[" + right + "]\n  %2 f32[" + result + "] = dot %0 %1\n  return\n");
    const program::Function& function = program.value().parts[0].function;
    return model.LocalSeconds(function.operations[0], {&function.arguments[0].type, &function.arguments[1].type});
  };
  const double narrow = seconds("512,256", "256,128", "512,128"), flat = seconds("512,128", "128,256", "512,256");
  EXPECT_NEAR(flat - narrow, 256 * 1024 * 1e-10, 1e-8) << "the result is 256 KiB larger, and what it is made of less";
}

}  // namespace
}  // namespace axccl::tools
