// Figures 3 and 5 of DistIR's paper (EuroMLSys 2021), with the formulas of that time: distir_fig*.json of AXCCL_VECTORS
// (tests/harness/vectors.h), of which some rows are here, too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/check.h"
#include "src/program/simulate.h"
#include "src/program/simulate/distir.h"
#include "src/program/transform.h"
#include "tests/harness/vectors.h"
#include "tests/program/distir_pipeline.h"
#include "tests/program/distir_step.h"

namespace axccl::program {
namespace {

using harness::Json;

// The formulas of EuroMLSys'21: no launch, and of local operations other than products their arithmetic only, 4 per
// element. What all_gather and messages move is counted four times.
class EarlyModel : public DistirModel {
 public:
  EarlyModel(const DistirMachine& machine, double bytes_of_products)
      : DistirModel(machine), machine_(machine), bytes_of_products_(bytes_of_products) {}

  double LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const override {
    if (operation.kind == OpKind::kOptimizationBarrier || operation.kind == OpKind::kConcatenate) return 0;
    const double seconds = DistirModel::LocalSeconds(operation, operands);
    double bytes = 0;
    for (const TensorType* operand : operands) bytes += 4 * static_cast<double>(Elements(*operand));
    if (operation.kind == OpKind::kDotGeneral)
      return seconds - bytes * (1 - bytes_of_products_ / 4) / machine_.memory_bytes_per_second;
    return 4 * static_cast<double>(Elements(*operands[0])) / machine_.flops;
  }
  Result<double> Seconds(const Transfer& transfer) override {
    AXCCL_ASSIGN_OR_RETURN(const double seconds, DistirModel::Seconds(transfer));
    return transfer.operation.kind == OpKind::kAllReduce ? seconds : 4 * seconds;
  }

 private:
  const DistirMachine machine_;
  const double bytes_of_products_;  // an element
};

// Gathers the last two results, the gradient of the input and the loss, from the copies.
Program WithGatheredResults(Program program, int64_t copies) {
  Function& function = program.parts[0].function;
  const int64_t tensor_ranks = program.ranks / copies;
  Groups groups(static_cast<size_t>(tensor_ranks));
  for (int64_t r = 0; r < program.ranks; ++r) groups[static_cast<size_t>(r % tensor_ranks)].push_back(r);
  for (size_t i = function.results.size() - 2; i < function.results.size(); ++i) {
    const Operation* maker = nullptr;
    for (const Operation& operation : function.operations) {
      for (const Value& result : operation.results) maker = result.id == function.results[i] ? &operation : maker;
    }
    Value gathered{1'000'000 + static_cast<Id>(i), maker->results[0].type};
    gathered.type.dims[0] *= copies;
    const std::vector<Attribute> attributes{
        {Attr::kDim, int64_t{0}}, {Attr::kGroups, groups}, {Attr::kChannel, int64_t{9}}};
    function.operations.push_back({OpKind::kAllGather, gathered.id, {function.results[i]}, {gathered}, attributes, {}});
    function.results[i] = gathered.id;
  }
  return program;
}

TEST(Distir, Figure3OfEuroMlsys21) {
  if (!harness::VectorsMissing().empty()) GTEST_SKIP() << harness::VectorsMissing();
  size_t compared = 0;
  for (const Json& row : harness::ReadRows("distir_fig3.json")) {
    const int64_t ranks = row["world"];
    Parallelism p;
    p.data = ranks;
    const auto cut = Parallelize(MakeDistirStep({row["layers"], row["dim"], row["batch"], 0, false}), p);
    ASSERT_TRUE(cut.ok()) << cut.status().message();
    EarlyModel model({0, 7e11, 1.38e13, 77 * 1.25e8}, 4);
    const Program program = ranks > 1 ? WithGatheredResults(cut.value().program, ranks) : cut.value().program;
    ASSERT_TRUE(Check(program).ok()) << Check(program).message();
    const auto simulation = Simulate(program, &model);
    ASSERT_TRUE(simulation.ok()) << simulation.status().message();
    EXPECT_NEAR(simulation.value().seconds * 1e3, double{row["simulated_ms"]}, 0.005001) << row;
    ++compared;
  }
  EXPECT_EQ(compared, 81u);
}

constexpr int64_t kLayers = 64, kSize = 8192;  // of figure 5

// Samples per second. One stage: cut by our transforms; several: a pipeline as that version places and orders it.
double SamplesOf(const DistirPipeline& way) {
  constexpr double kLink = 200 * 8e9;
  EarlyModel model({0, 1.2e12, 1e14, kLink}, 2);
  Program program;
  if (way.stages > 1) {
    program = MakeDistirPipeline(way);
  } else {
    const Parallelism p{.tensor = way.tensor, .data = way.data};
    const auto cut = Parallelize(MakeDistirStep({kLayers, kSize, kSize, 0, false}), p);
    EXPECT_TRUE(cut.ok()) << cut.status().message();
    if (!cut.ok()) return 0;
    program = p.data > 1 ? WithGatheredResults(cut.value().program, p.data) : cut.value().program;
  }
  EXPECT_TRUE(Check(program).ok()) << Check(program).message();
  const auto simulation = Simulate(program, &model);
  EXPECT_TRUE(simulation.ok()) << simulation.status().message();
  if (!simulation.ok()) return 0;
  // Without copies, the first device sends all inputs to the second one, before anything else. Then the first stage
  // cuts inputs and labels into microbatches.
  const double inputs = way.data > 1 ? 0 : 4.0 * (kLayers + 2) * 4 * kSize * kSize / kLink;
  return kSize / (simulation.value().seconds + inputs + (way.stages > 1 ? 2e-6 : 0));
}

TEST(Distir, SomeRowsOfFigure5) {
  const struct {
    int64_t data, tensor, stages, microbatches;
    double samples;
  } rows[] = {
      {1, 1, 1, 1, 3725.9179555393866}, {4, 4, 1, 1, 55125.68302926329},   {1, 1, 2, 32, 4614.520034780173},
      {1, 1, 16, 8, 15462.81484360334}, {2, 1, 8, 16, 24676.452305704734}, {1, 8, 2, 4, 28294.06671230084},
      {2, 2, 4, 32, 29149.70390040028}, {8, 1, 2, 4, 28935.363725456496},
  };
  for (const auto& row : rows) {
    const double samples = SamplesOf({kLayers, kSize, kSize, row.data, row.tensor, row.stages, row.microbatches});
    EXPECT_NEAR(samples / row.samples, 1, 1e-9) << row.samples;
  }
}

TEST(Distir, Figure5OfEuroMlsys21) {
  if (!harness::VectorsMissing().empty()) GTEST_SKIP() << harness::VectorsMissing();
  std::map<std::string, std::pair<size_t, double>> groups;  // how many, and the largest deviation
  std::pair<double, std::string> best;
  for (const Json& row : harness::ReadRows("distir_fig5.json")) {
    const DistirPipeline way{kLayers, kSize, kSize, row["d"], row["h"], row["p"], row["k"]};
    const double samples = SamplesOf(way);
    const char* const group = way.stages == 1 ? "one stage" : way.tensor == 1 ? "stages" : "stages and tensors";
    auto& [count, largest] = groups[group];
    ++count;
    const double deviation = std::abs(samples / double{row["code_3386edc"]} - 1);
    largest = std::max(largest, deviation);
    EXPECT_LE(deviation, 1e-9) << row;
    best = std::max(best, {samples, row.dump()});
  }
  for (const auto& [group, of] : groups)
    std::printf("figure 5, %s: %zu rows, largest deviation %.2g\n", group.c_str(), of.first, of.second);
  EXPECT_EQ(groups["one stage"].first, 15u);
  EXPECT_EQ(groups["stages"].first, 47u);
  EXPECT_EQ(groups["stages and tensors"].first, 49u);
  const Json winner = Json::parse(best.second);
  EXPECT_EQ(winner["d"], 4);
  EXPECT_EQ(winner["h"], 4);
  EXPECT_NEAR(best.first, 55126, 0.5);
}

}  // namespace
}  // namespace axccl::program
