// Random programs on host ranks: what the library's collectives give is what the reference gives, bit for bit, for
// every operation of every rank; and each rank holds as many bytes as a simulation predicts.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/simulate.h"
#include "src/program/text.h"
#include "tests/harness/command.h"
#include "tests/harness/folder.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "tests/program/random_run.h"
#include "tools/axccl-program/compare.h"
#include "tools/axccl-program/replay.h"
#include "tools/axccl-program/run.h"

namespace axccl::program {
namespace {

// The i-th program of this run of the tests.
struct RandomCase {
  explicit RandomCase(int i) : random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(i))) {}

  harness::Random random;
  Program program = RandomRun(&random);
  std::vector<Tensors> inputs = RandomRunInputs(program, &random);
};

std::string NameOfCase(int i) {
  return "AXCCL_TEST_SEED=" + std::to_string(harness::Seed()) + " program " + std::to_string(i);
}

std::string OutputDifference(const std::vector<Tensors>& actual, const std::vector<Tensors>& expected) {
  if (actual.size() != expected.size()) return "another number of ranks";
  for (size_t rank = 0; rank < actual.size(); ++rank) {
    if (actual[rank].size() != expected[rank].size()) return "another number of outputs";
    for (size_t i = 0; i < actual[rank].size(); ++i) {
      const std::string difference = tools::Difference(actual[rank][i], expected[rank][i], 0);
      if (!difference.empty())
        return "rank " + std::to_string(rank) + ", output " + std::to_string(i) + ": " + difference;
    }
  }
  return "";
}

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
  const int programs = harness::FullTests() ? 3000 : harness::TimeScale() > 1 ? 30 : 100;
  int simulated = 0;
  for (int i = 0; i < programs; ++i) {
    SCOPED_TRACE(NameOfCase(i));
    const RandomCase c(i);
    const Status right = Check(c.program);
    ASSERT_TRUE(right.ok()) << right.message() << "\n" << Print(c.program);
    const Result<std::vector<Tensors>> reference = RunReference(c.program, c.inputs);
    ASSERT_TRUE(reference.ok()) << reference.status().message() << "\n" << Print(c.program);
    tools::Watch watch(&c.program, &c.inputs, 0);
    for (int rank = 0; rank < c.program.ranks; ++rank) ASSERT_TRUE(watch.Begin(rank, {0, c.program.ranks}).ok());
    tools::RunReport report;
    const Result<std::vector<Tensors>> run = tools::RunOnThreads(c.program, c.inputs, watch.observer(), &report);
    ASSERT_TRUE(run.ok()) << run.status().message() << "\n" << Print(c.program);
    for (int rank = 0; rank < c.program.ranks; ++rank) {
      const auto& different = watch.Of(rank);
      ASSERT_FALSE(different.has_value()) << different->text << "\n" << Print(c.program);
    }
    ASSERT_EQ(OutputDifference(run.value(), reference.value()), "") << Print(c.program);
    simulated += ComparePeaks(c.program, report.peaks) ? 1 : 0;
  }
  EXPECT_GT(simulated, programs / 10);
}

// Loops and branches go as told, and ranks still find each other.
TEST(RandomRun, Replays) {
  const int programs = harness::FullTests() ? 1000 : harness::TimeScale() > 1 ? 10 : 40;
  for (int i = 0; i < programs; ++i) {
    SCOPED_TRACE(NameOfCase(i));
    const RandomCase c(i);
    const Result<std::string> replay = tools::Replay(c.program, {{.trips = i % 3, .branch = i % 2}, 2});
    ASSERT_TRUE(replay.ok()) << replay.status().message() << "\n" << Print(c.program);
    EXPECT_NE(replay.value().find("a round: "), std::string::npos);
  }
}

#ifdef AXCCL_PROGRAM
// A process that has used the library does not start ranks, so the program does.
TEST(RandomRun, OnProcessesGivesWhatTheReferenceGives) {
  const harness::Folder folder;
  const std::string file = folder.Path("random.axp");
  const int programs = harness::FullTests() ? 300 : harness::TimeScale() > 1 ? 5 : 20;
  for (int i = 0; i < programs; ++i) {
    SCOPED_TRACE(NameOfCase(i));
    const RandomCase c(i);
    std::ofstream(file) << Print(c.program);
    const harness::Outcome o = harness::RunCommand(std::string("timeout 100 ") + AXCCL_PROGRAM + " run " + file +
                                                   " --processes --seed 5 --against reference");
    ASSERT_EQ(o.exit, 0) << o.text << Print(c.program);
    ASSERT_EQ(o.text, "equal to reference\n") << Print(c.program);
  }
}
#endif

}  // namespace
}  // namespace axccl::program
