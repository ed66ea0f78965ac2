// Random programs of NCCL's collectives under random settings: kinds, types, roots, counts, memory, in place or not,
// several outstanding, delayed ranks, little scratch memory, several lanes, one algorithm only. Every element is
// checked.
//
// Each run has its own seed, which is printed with a failure: AXCCL_TEST_SEED=<printed> replays all of them. The number
// of runs depends on the time (10 s, or 10 min with AXCCL_TEST_FULL=1), but not what they contain.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Case;
using harness::CaseRunner;
using harness::Clique;
using harness::FullTests;
using harness::Layout;
using harness::NowNs;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::Scramble;
using harness::Seed;

struct Program {
  uint64_t seed;
  Layout layout;
  RunOptions options;
  std::string text;
};

Program MakeProgram(uint64_t seed) {
  Random random(seed);
  Program program{seed, {}, {}, "seed " + std::to_string(seed)};
  const int n = static_cast<int>(2 + random.Below(4));
  program.layout = random.OneIn(3)   ? harness::Threads(n)
                   : random.OneIn(4) ? Layout{2, n / 2, 1}
                                     : harness::Processes(n);
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see order that another process makes between two threads
  if (program.layout.processes > 1) program.layout = harness::Processes(program.layout.nranks());
#endif
  program.text += ", " + program.layout.Text();
  const auto set = [&](const char* name, const char* value) {
    program.options.environment.emplace_back(name, value);
    program.text += std::string(", ") + name + "=" + value;
  };
  if (random.OneIn(3)) set("AXCCL_SCRATCH_BYTES", "64K");
  if (random.OneIn(3)) set("NCCL_MIN_CTAS", random.OneIn(2) ? "3" : "4");
  if (random.OneIn(4)) set("AXCCL_CMA", "0");
  if (random.OneIn(3))
    set("NCCL_ALGO",
        random.Pick(std::vector<const char*>{"ring", "tree", "rhd", "bruck", "pairwise", "direct", "oneshot"}));
  program.options.deadline = std::chrono::seconds(60);
  return program;
}

// Ranks agree only on the calls.
void RunProgram(RankContext& context, uint64_t seed) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  CaseRunner runner(context, clique, size_t{4} << 20);
  Random random(Scramble(seed, 1));
  Random own(Scramble(seed, 2, static_cast<uint64_t>(context.rank())));
  Case last = RandomCase(&random, context.nranks(), 1000);
  for (int i = 0; i < 120; ++i) {
    const size_t most = random.OneIn(8) ? 300000 : random.OneIn(2) ? 20000 : 200;
    Case next = RandomCase(&random, context.nranks(), most);
    // Runs of one plan that do not wait for each other.
    if (!random.OneIn(3)) {
      next = last;
      next.seed = random.Next();
    }
    last = next;
    if (own.OneIn(4)) usleep(static_cast<useconds_t>(own.Below(300)));
    ASSERT_TRUE(runner.Enqueue(next, {}));
    if (own.OneIn(5)) {
      ASSERT_TRUE(runner.Finish());
    }
  }
  ASSERT_TRUE(runner.Finish());
}

// The programs' buffers have room for this many bytes.
TEST(Fuzz, CasesKeepToTheirBytes) {
  Random random(Seed());
  for (int i = 0; i < 100000; ++i) {
    const Case c = RandomCase(&random, 5, 300000);
    ASSERT_LE(c.count * harness::TypeBytes(c.type), 300000u) << c.Text() << ", AXCCL_TEST_SEED=" << Seed();
  }
}

TEST(Fuzz, RandomProgramsUnderRandomSettings) {
  const uint64_t end = NowNs() + (FullTests() ? 600'000'000'000u : 5'000'000'000u);
  int runs = 0;
  for (; runs == 0 || (NowNs() < end && !HasFailure()); ++runs) {
    const Program program = MakeProgram(Scramble(Seed(), 77, static_cast<uint64_t>(runs)));
    SCOPED_TRACE("run " + std::to_string(runs) + ": " + program.text);
    harness::RunRanks(
        program.layout, [&](RankContext& context) { RunProgram(context, program.seed); }, program.options);
  }
  std::printf("%d programs of 120 calls\n", runs);
}

}  // namespace
}  // namespace axccl::tests
