// Random programs on host ranks: what the library's collectives give is what the reference gives, bit for bit, for
// every operation of every rank.
#include <gtest/gtest.h>

#include <string>

#include "src/program/check.h"
#include "src/program/text.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "tests/program/random_run.h"
#include "tools/axccl-program/compare.h"
#include "tools/axccl-program/run.h"

namespace axccl::program {
namespace {

TEST(RandomRun, GivesWhatTheReferenceGives) {
  const int programs = harness::FullTests() ? 1500 : 80;
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
    const Result<std::vector<Tensors>> run = tools::RunOnThreads(program, inputs, actual.observer());
    ASSERT_TRUE(run.ok()) << run.status().message() << "\n" << Print(program);
    const std::string difference = actual.FirstDifference(expected, 0);
    ASSERT_EQ(difference, "") << Print(program);
  }
}

}  // namespace
}  // namespace axccl::program
