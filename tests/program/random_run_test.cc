// Random programs on host ranks: what the library's collectives give is what the reference gives, bit for bit, for
// every operation of every rank; and each rank holds as many bytes as a simulation predicts.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/simulate.h"
#include "src/program/text.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "tests/program/random_run.h"
#include "tools/axccl-program/compare.h"
#include "tools/axccl-program/run.h"

namespace axccl::program {
namespace {

// Counts memory, which does not depend on times.
class NoTime : public Model {
 public:
  double LocalSeconds(const Operation&, const std::vector<const TensorType*>&) const override { return 0; }
  Result<double> Seconds(const Transfer&) override { return 0.0; }
};

// To the byte. False if the simulation would have to be told what loops and branches do.
bool ComparePeaks(const Program& program, const std::vector<uint64_t>& peaks) {
  NoTime model;
  const Result<Simulation> simulation = Simulate(program, &model);
  if (!simulation.ok()) return false;
  for (size_t i = 0; i < program.parts.size(); ++i) {
    for (const int64_t rank : program.parts[i].ranks)
      EXPECT_EQ(peaks[static_cast<size_t>(rank)], simulation.value().parts[i].peak) << "rank " << rank << "\n"
                                                                                    << Print(program);
  }
  return true;
}

TEST(RandomRun, GivesWhatTheReferenceGives) {
  const int programs = harness::FullTests() ? 1500 : 80;
  int simulated = 0;
  for (int i = 0; i < programs; ++i) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()) + " program " + std::to_string(i));
    harness::Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(i)));
    const Program program = RandomRun(&random);
    const auto inputs = RandomRunInputs(program, &random);
    const Status right = Check(program);
    ASSERT_TRUE(right.ok()) << right.message() << "\n" << Print(program);
    tools::Trace expected(program.ranks), actual(program.ranks);
    const Result<std::vector<Tensors>> reference = RunReference(program, inputs, expected.observer());
    ASSERT_TRUE(reference.ok()) << reference.status().message() << "\n" << Print(program);
    std::vector<uint64_t> peaks;
    const Result<std::vector<Tensors>> run = tools::RunOnThreads(program, inputs, actual.observer(), &peaks);
    ASSERT_TRUE(run.ok()) << run.status().message() << "\n" << Print(program);
    const std::string difference = actual.FirstDifference(expected, 0);
    ASSERT_EQ(difference, "") << Print(program);
    simulated += ComparePeaks(program, peaks) ? 1 : 0;
  }
  EXPECT_GT(simulated, programs / 10);
}

}  // namespace
}  // namespace axccl::program
