// What the last version of DistIR predicts for its training step, cut by our transforms and timed by its formulas
// (simulate/distir.h): distir_final_grid.json of AXCCL_VECTORS (tests/harness/vectors.h), some rows of which are here.
#include <string>
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
  for (const Json& row : harness::ReadRows("distir_final_grid.json")) {
    const int64_t stages = row["p"];
    std::vector<uint64_t> peaks;  // of the first pipeline: stages are neighbours there
    for (int64_t s = 0; s < stages; ++s) peaks.push_back(row["peak_bytes"][static_cast<size_t>(s)]);
    Compare({row["layers"], row["dim"], row["batch"], row["d"], row["h"], stages, row["k"], row["latency_s"], peaks});
    ++compared;
  }
  EXPECT_EQ(compared, 40u);
}

}  // namespace
}  // namespace axccl::program
