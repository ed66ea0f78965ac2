// Ranks of one machine that die one after the other, also while the others shrink: the survivors agree on who is left,
// whatever each of them knew, and go on.
//
// Every trial has its own seed, printed with a failure; AXCCL_TEST_SEED=<printed> replays all of them.
// AXCCL_TEST_FULL=1 makes 200 trials.
#include "tests/comm/survivors_trial.h"

namespace axccl::tests {
namespace {

TEST(Survivors, AgreeWhoeverDiesWhen) {
  const int trials = harness::FullTests() ? 200 : 20;
  const TrialTimes times(trials);
  for (int i = 0; i < trials && !HasFailure(); ++i) {
    const SurvivorsTrial trial =
        MakeSurvivorsTrial(harness::Scramble(harness::Seed(), 71, static_cast<uint64_t>(i)), 6);
    SCOPED_TRACE("trial " + std::to_string(i) + ": " + trial.text);
    harness::RunRanks(harness::Processes(trial.ranks),
                      [&](harness::RankContext& context) { RunSurvivorsTrial(context, trial, &times[i]); });
  }
  times.Print();
}

}  // namespace
}  // namespace axccl::tests
