// What DistIR itself predicts for its training step, cut by our transforms and timed by its formulas
// (simulate/distir.h): distir_*.json of AXCCL_VECTORS (tests/harness/vectors.h), of which some rows are here, too.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/check.h"
#include "src/program/simulate.h"
#include "src/program/simulate/distir.h"
#include "src/program/transform.h"
#include "tests/harness/vectors.h"
#include "tests/program/distir_step.h"

namespace axccl::program {
namespace {

using harness::Json;

constexpr double kBoth = 0.02;  // of figures that were run, for tensors and stages at the same time
constexpr double kOne = 1e-6;

struct Row {
  int64_t layers, dim, batch, data, tensor, stages, microbatches;
  double seconds;
  std::vector<uint64_t> peaks;  // [stage]
};

Program Cut(const DistirStep& step, const Row& row) {
  const Parallelism p{row.tensor, row.data, 0, 0, row.stages, row.microbatches, PipelineOrder::k1F1B, -1};
  const Result<Transformed> cut = Parallelize(MakeDistirStep(step), p);
  EXPECT_TRUE(cut.ok()) << cut.status().message();
  return cut.ok() ? AsDistirPipeline(cut.value().program) : Program();
}

void Compare(const Row& row) {
  SCOPED_TRACE("layers " + std::to_string(row.layers) + ", d " + std::to_string(row.data) + ", h " +
               std::to_string(row.tensor) + ", p " + std::to_string(row.stages) + ", k " +
               std::to_string(row.microbatches));
  DistirModel model({});
  const Program timed = Cut({row.layers, row.dim, row.batch, row.stages, false}, row);
  ASSERT_TRUE(Check(timed).ok()) << Check(timed).message();
  const auto time = Simulate(timed, &model);
  ASSERT_TRUE(time.ok()) << time.status().message();
  const bool is_both = row.tensor > 1 && row.stages > 1;
  EXPECT_NEAR(time.value().seconds / row.seconds, 1, is_both ? kBoth : kOne);
  const Program counted = Cut({row.layers, row.dim, row.batch, 0, row.stages == 1}, row);
  const auto memory = Simulate(counted, &model);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  for (size_t s = 0; s < row.peaks.size(); ++s) {
    const double ratio = static_cast<double>(memory.value().parts[s].peak) / static_cast<double>(row.peaks[s]);
    if (row.stages == 1)
      EXPECT_EQ(memory.value().parts[s].peak, row.peaks[s]);
    else
      EXPECT_NEAR(ratio, 1, kBoth) << "stage " << s;
  }
}

Json ReadRows(const std::string& file) {
  std::ifstream in(std::string(std::getenv("AXCCL_VECTORS")) + "/" + file);
  return Json::parse(in)["rows"];
}

TEST(Distir, TimeAndMemoryOfSomeRows) {
  for (const Row& row : std::vector<Row>{
           {8, 512, 1024, 1, 1, 1, 1, 0.0015071642595555557, {50331652}},
           {8, 512, 1024, 1, 2, 1, 1, 0.006372431028825398, {37748740}},
           {8, 512, 1024, 2, 1, 1, 1, 0.0036634318120634933, {29360132}},
           {8, 512, 1024, 1, 1, 4, 4, 0.0045235325968253975, {13107200, 12058624, 12058624, 13107204}},
           {8, 512, 1024, 2, 2, 1, 1, 0.004748640355555558, {20971524}},
       })
    Compare(row);
}

TEST(Distir, TimeAndMemoryOfItsLastVersion) {
  if (!harness::VectorsMissing().empty()) GTEST_SKIP() << harness::VectorsMissing();
  size_t compared = 0;
  for (const Json& row : ReadRows("distir_final_grid.json")) {
    const int64_t stages = row["p"];
    std::vector<uint64_t> peaks;  // of the first pipeline: stages are neighbours there
    for (int64_t s = 0; s < stages; ++s) peaks.push_back(row["peak_bytes"][static_cast<size_t>(s)]);
    Compare({row["layers"], row["dim"], row["batch"], row["d"], row["h"], stages, row["k"], row["latency_s"], peaks});
    ++compared;
  }
  EXPECT_EQ(compared, 40u);
}

// The formulas of EuroMLSys'21: no launch, and of local operations other than products their arithmetic only, 4 per
// element. What all_gather moves is counted four times.
class EarlyModel : public DistirModel {
 public:
  EarlyModel(const DistirMachine& machine, double bytes_of_products)
      : DistirModel(machine), machine_(machine), bytes_of_products_(bytes_of_products) {}

  double LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const override {
    if (operation.kind == OpKind::kOptimizationBarrier) return 0;
    const double seconds = DistirModel::LocalSeconds(operation, operands);
    double bytes = 0;
    for (const TensorType* operand : operands) bytes += 4 * static_cast<double>(Elements(*operand));
    if (operation.kind == OpKind::kDotGeneral)
      return seconds - bytes * (1 - bytes_of_products_ / 4) / machine_.memory_bytes_per_second;
    return 4 * static_cast<double>(Elements(*operands[0])) / machine_.flops;
  }
  Result<double> Seconds(const Transfer& transfer) override {
    AXCCL_ASSIGN_OR_RETURN(const double seconds, DistirModel::Seconds(transfer));
    return transfer.operation.kind == OpKind::kAllGather ? 4 * seconds : seconds;
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
  for (const Json& row : ReadRows("distir_fig3.json")) {
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

// Pipelines of that commit send twice what a stage takes in the step that gave it, and send weights as they are first
// needed; they are not compared. Without copies, the first device sends all inputs to the second one, before anything
// else, four times their bytes.
TEST(Distir, Figure5OfEuroMlsys21WithoutPipelines) {
  if (!harness::VectorsMissing().empty()) GTEST_SKIP() << harness::VectorsMissing();
  constexpr int64_t kLayers = 64, kSize = 8192;
  constexpr double kLink = 200 * 8e9;
  size_t compared = 0;
  std::pair<double, std::string> best;
  for (const Json& row : ReadRows("distir_fig5.json")) {
    if (row["p"] != 1) continue;
    const Parallelism p{.tensor = row["h"], .data = row["d"]};
    const auto cut = Parallelize(MakeDistirStep({kLayers, kSize, kSize, 0, false}), p);
    ASSERT_TRUE(cut.ok()) << cut.status().message();
    EarlyModel model({0, 1.2e12, 1e14, kLink}, 2);
    const Program program = p.data > 1 ? WithGatheredResults(cut.value().program, p.data) : cut.value().program;
    const auto simulation = Simulate(program, &model);
    ASSERT_TRUE(simulation.ok()) << simulation.status().message();
    const double inputs = p.data > 1 ? 0 : 4.0 * (kLayers + 2) * 4 * kSize * kSize / kLink;
    const double samples = kSize / (simulation.value().seconds + inputs);
    EXPECT_NEAR(samples / double{row["code_3386edc"]}, 1, kOne) << row;
    best = std::max(best, {samples, "d " + std::to_string(p.data) + " h " + std::to_string(p.tensor)});
    ++compared;
  }
  EXPECT_EQ(compared, 15u);
  EXPECT_EQ(best.second, "d 4 h 4");
  EXPECT_NEAR(best.first, 55126, 0.5);
}

}  // namespace
}  // namespace axccl::program
