// Mutation testing: every single mutation of every generated schedule, for groups of 2 to 9 ranks.
//
// A mutant must be rejected, or be proved harmless by an argument that does not use the verifier:
//
//   order kept    the data operations are the same, and the order of every conflicting pair of accesses follows from
//   the
//                 operations that are left; so every run of the mutant does what a run of the original does
//   source order  a reduce lists its sources in another order, and only one rank computes that fold, so that all ranks
//                 still see the same bits; class `any` allows it
//   same value    an operation reads another place; it holds the same value, and no conflict is left unordered
//   right as well operations are moved or inserted, or several lanes are changed; the model finds no fault
//
// The model (model.h) checks the arguments, and the interpreter (interpreter.h) also runs all mutants that they accept.
// The verifier sees one in two mutants of groups of up to 4 ranks, and fewer of larger ones; the model and the
// interpreter see each of these that it accepts for up to 4 ranks, and one in six for more. Samples are drawn from the
// seed, and sanitizers get fewer. Of moves, insertions and changes of several lanes, it sees a sixteenth of that.
// AXCCL_TEST_FULL=1 examines all mutants (minutes). Each test prints what it did.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/text.h"
#include "src/verify/mutate.h"
#include "src/verify/verify.h"
#include "tests/algo/cases.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "tests/verify/interpreter.h"
#include "tests/verify/model.h"

namespace axccl::verify {
namespace {

using plan::Contract;
using plan::Schedule;

const bool sanitized = harness::TimeScale() != 1;

// One in how many mutants the verifier sees, and one in how many accepted ones the model and the interpreter see.
struct Sampling {
  uint64_t mutants = 1;
  uint64_t accepted = 1;
};

Sampling SamplingFor(int ranks) {
  if (harness::FullTests()) return {1, 1};
  Sampling s = ranks <= 4 ? Sampling{4, 1} : ranks <= 6 ? Sampling{8, 6} : Sampling{24, 6};
  if (sanitized) s = ranks <= 3 ? Sampling{4, 2} : Sampling{s.mutants * 25, s.accepted};
  return s;
}

// The findings of the tests of this file, printed at the end.
class Ledger : public ::testing::Environment {
 public:
  struct Entry {
    long count = 0;
    std::string example;
  };
  static std::map<std::tuple<std::string, std::string, std::string>, Entry>& Accepted() {
    static std::map<std::tuple<std::string, std::string, std::string>, Entry> accepted;
    return accepted;
  }
  void TearDown() override {
    if (Accepted().empty()) return;
    std::printf("accepted mutants that were examined, all proved harmless:\n");
    for (const auto& [key, entry] : Accepted()) {
      const auto& [change, reason, where] = key;
      std::printf("  %6ld  %-14s %-12s %-26s e.g. %s\n", entry.count, change.c_str(), reason.c_str(), where.c_str(),
                  entry.example.c_str());
    }
  }
};
const auto* const kLedger = ::testing::AddGlobalTestEnvironment(new Ledger);

// Returns "race", "dataflow", ... from a rejection.
std::string ClassOf(const Status& status) {
  const std::string_view message = status.message();
  const std::string_view mark = "rejected: ";
  const size_t begin = message.find(mark) + mark.size();
  return std::string(message.substr(begin, message.find(':', begin) - begin));
}

// Returns the fault of the first run that goes wrong; empty if none of the interleavings does.
std::string RunSome(const Schedule& schedule, uint64_t seed, int runs) {
  for (int i = 0; i < runs; ++i) {
    const auto in_place = static_cast<uint32_t>(i == 0 ? 0 : i == 1 ? ~0u : harness::Scramble(seed, i));
    std::string fault = RunOnce(schedule, {harness::Scramble(seed, i, 1), 5, in_place});
    if (!fault.empty()) return fault;
  }
  return std::string();
}

// Mutations of awaits and notifies, of which none is harmless: a chunk is told of too early, too late, or not at all.
bool IsOfChunk(const Schedule& schedule, const Mutation& m) {
  if (m.change > Change::kDuplicateOp) return false;
  const plan::OpKind kind = schedule.program[m.rank][m.lane].ops[m.index].kind;
  return kind == plan::OpKind::kAwait || kind == plan::OpKind::kNotify;
}

// Whether a mutation moves or inserts operations or changes several lanes. Its mutants need not do what the original
// does, so the model alone says whether they are right.
bool IsFree(const Schedule& original, const Mutation& m) {
  return m.change >= Change::kMoveOp && !IsOfChunk(original, m);
}

// Most of what is accepted are these, and each takes long to examine on its own, so fewer are.
uint64_t Rarer(const Schedule& original, const Mutation& m) {
  return IsFree(original, m) && !harness::FullTests() ? 16 : 1;
}

// Returns the reason why a mutant is equivalent to the original; if there is none, returns an empty text and sets `why`
// to the argument that failed.
std::string ReasonFor(const Mutation& mutation, bool free, Model* original, Model* model, std::string* why) {
  if (!free && model->KeepsOrderOf(original, why)) return "order kept";
  if (std::string fault = model->FindFault(); !fault.empty()) {
    *why += "; " + fault;
    return std::string();
  }
  if (free) return "right as well";
  if (model->Results() != original->Results()) {
    *why += "; operations write other values";
    return std::string();
  }
  return mutation.change == Change::kSwapSources ? "source order" : "same value";
}

// Calls f(schedule, name) for schedules with slices; of two slices, in every order of the blocks.
template <class F>
void ForEachChunked(int ranks, F f) {
  for (int slices = 1; slices <= 3; ++slices) {
    const auto make = [&](const Contract& contract, std::string_view algorithm, const algo::Chunking& chunking) {
      const auto orders = algo::ChunkOrders(contract.kind, algorithm);
      const bool another = !orders.empty() && chunking.order != orders[0];
      if ((plan::HasRoot(contract.kind) && contract.root != slices % ranks) || (another && slices != 2))
        return;  // enough
      Result<Schedule> schedule = algo::GenerateChunked(contract, algorithm, chunking);
      ASSERT_TRUE(schedule.ok()) << schedule.status().message();
      f(schedule.value(), algo::Describe(contract, algorithm, chunking));
    };
    algo::ForEachChunked(ranks, slices, make);
  }
}

class MutationTest : public ::testing::TestWithParam<int> {
 protected:
  void TryAll(const Contract& contract, std::string_view algorithm, int lanes, const plan::Placement& placement = {}) {
    Result<Schedule> generated = algo::Generate(contract, algorithm, lanes, placement);
    ASSERT_TRUE(generated.ok()) << generated.status().message();
    TryAllOf(*generated, algo::Describe(contract, algorithm, lanes) + " " + algo::Describe(placement));
  }

  void TryAllOf(const Schedule& original, const std::string& name) {
    SCOPED_TRACE(name);
    Facts facts;
    const Status status = Verify(original, &facts);
    ASSERT_TRUE(status.ok()) << status.message();
    Model model(original);
    ASSERT_EQ(model.FindFault(), "");
    ASSERT_EQ(model.Complete(), facts.complete);
    ASSERT_EQ(model.InGroupOrder(), facts.group_order);
    Schedule mutant = original;
    where_ = std::string(plan::KindName(original.contract.kind)) + " " + original.algorithm;
    for (const Mutation& m : Mutations(original)) {
      ++mutants_;
      if (!IsOfChunk(original, m) && random_.Below(sampling_.mutants * Rarer(original, m)) != 0) continue;
      Apply(m, &mutant);
      Try(original, &model, mutant, m);
      Undo(m, original, &mutant);
    }
  }

  void Try(const Schedule& original, Model* model, const Schedule& mutant, const Mutation& m) {
    Facts facts;
    const Status status = Verify(mutant, &facts);
    if (!status.ok()) {
      ++rejected_[ClassOf(status)];
      return;
    }
    ++accepted_;
    EXPECT_FALSE(IsOfChunk(original, m)) << Describe(original, m);
    if (random_.Below(sampling_.accepted) != 0) return;
    ++examined_;
    Model changed(mutant);
    std::string why;
    const std::string reason = ReasonFor(m, IsFree(original, m), model, &changed, &why);
    EXPECT_NE(reason, "") << "accepted without a reason: " << Describe(original, m) << ": " << why;
    EXPECT_EQ(facts.complete, changed.Complete()) << Describe(original, m);
    EXPECT_EQ(facts.group_order, changed.InGroupOrder()) << Describe(original, m);
    EXPECT_EQ(RunSome(mutant, random_.Next(), 4), "") << Describe(original, m);
    auto& entry = Ledger::Accepted()[{ChangeName(m.change), reason, where_}];
    if (entry.count++ == 0)
      entry.example = "ranks " + std::to_string(original.contract.ranks) + ": " + Describe(original, m);
  }

  Sampling sampling_ = SamplingFor(GetParam());
  harness::Random random_{harness::Scramble(harness::Seed(), GetParam())};
  std::string where_;
  long mutants_ = 0, accepted_ = 0, examined_ = 0;
  std::map<std::string, long> rejected_;
};

TEST_P(MutationTest, EveryMutantIsRejectedOrProvedHarmless) {
  const int n = GetParam();
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  algo::ForEachAlgorithm(n, [&](const Contract& contract, std::string_view algorithm) {
    for (const int lanes : {1, 2}) TryAll(contract, algorithm, lanes);
  });
  algo::ForEachMulticast(n, [&](const Contract& contract, std::string_view algorithm) {
    for (const int lanes : {1, 2}) TryAll(contract, algorithm, lanes);
  });
  if (n <= 4) ForEachChunked(n, [&](const Schedule& schedule, const std::string& name) { TryAllOf(schedule, name); });
  if (n == 7) {  // enough for a rank to write slots again
    const Contract contract = {plan::Kind::kReduceScatter, n, 0};
    TryAllOf(algo::GenerateChunked(contract, algo::kChunkedRing, {}).value(), "reduce_scatter chunked_ring");
  }
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    if (static_cast<int>(machine_of.size()) != n) continue;
    algo::ForEachHierarchical(n, [&](const Contract& contract, std::string_view algorithm) {
      if (contract.root % 2 != 0) return;  // enough, and takes half the time
      TryAll(contract, algorithm, 1, plan::Placement::Of(machine_of));
    });
  }
  std::printf("%d ranks, seed %llu: %ld mutants, 1 in %llu verified:", n,
              static_cast<unsigned long long>(harness::Seed()), mutants_,
              static_cast<unsigned long long>(sampling_.mutants));
  for (const auto& [name, count] : rejected_) std::printf(" %ld %s,", count, name.c_str());
  std::printf(" %ld accepted, of these 1 in %llu examined: %ld\n", accepted_,
              static_cast<unsigned long long>(sampling_.accepted), examined_);
  EXPECT_GT(examined_, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MutationTest, ::testing::Range(2, 10));

// The other direction, which also shows that model and interpreter notice faults: the model rejects what the verifier
// rejects for a race, a deadlock or its data, and a hostile run nearly always goes wrong.
class RejectionTest : public ::testing::TestWithParam<int> {};

TEST_P(RejectionTest, ModelAgreesAndRunsFail) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  harness::Random random(harness::Seed());
  const uint64_t one_in = harness::FullTests() ? 1 : sanitized ? 40 : GetParam() <= 3 ? 4 : 24;
  long faults = 0, harmless_leaks = 0, overwritten = 0, order_faults = 0, failed_runs = 0;
  const auto check_schedule = [&](const Schedule& original, const std::string& name) {
    Schedule mutant = original;
    for (const Mutation& m : Mutations(original)) {
      if (random.Below(one_in * Rarer(original, m)) != 0) continue;
      Apply(m, &mutant);
      Facts facts;
      const Status status = Verify(mutant, &facts);
      // A schedule with a broken structure has no meaning for the model.
      if (!status.ok() && ClassOf(status) != "structure") {
        const bool agrees = !Model(mutant).FindFault().empty(), free = IsFree(original, m);
        const bool ordering = ClassOf(status) == "race" || ClassOf(status) == "deadlock";
        ++faults;
        if (ClassOf(status) == "leak") {
          harmless_leaks += !agrees;
        } else if (free && !ordering && ClassOf(status) != "order") {
          // What the operation leaves may be overwritten, and what it is made at once with may store the same.
          overwritten += !agrees;
        } else if (ClassOf(status) != "late" && ClassOf(status) != "unannounced") {  // which are no faults of the data
          EXPECT_TRUE(agrees) << name << " " << Describe(original, m) << ": " << status.message();
        }
        if (ordering && !free) {  // what is done twice may store the same
          ++order_faults;
          failed_runs += !RunSome(mutant, random.Next(), 30).empty();
        }
      }
      Undo(m, original, &mutant);
    }
  };
  const auto check = [&](const Contract& contract, std::string_view algorithm, const plan::Placement& placement = {}) {
    check_schedule(algo::Generate(contract, algorithm, 1, placement).value(), algo::Describe(contract, algorithm, 1));
  };
  algo::ForEachAlgorithm(GetParam(), check);
  algo::ForEachMulticast(GetParam(), check);
  if (GetParam() <= 3) ForEachChunked(GetParam(), check_schedule);
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    if (static_cast<int>(machine_of.size()) != GetParam()) continue;
    algo::ForEachHierarchical(GetParam(), [&](const Contract& contract, std::string_view algorithm) {
      if (contract.root % 2 == 0) check(contract, algorithm, plan::Placement::Of(machine_of));
    });
  }
  std::printf(
      "%d ranks, 1 in %llu mutants: %ld rejected by both (of them %ld leaks harmless to the data, %ld overwritten); of "
      "%ld races and deadlocks %ld made a run fail\n",
      GetParam(), static_cast<unsigned long long>(one_in), faults, harmless_leaks, overwritten, order_faults,
      failed_runs);
  EXPECT_GT(order_faults, 0);
  EXPECT_GE(failed_runs, order_faults * 95 / 100);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RejectionTest, ::testing::Range(2, 5));

// A walk from each generated schedule over mutations that the verifier accepts, away from what generators write. Each
// step must be right by the model on its own, and must run correctly.
TEST(WalkTest, WhatIsAcceptedIsRight) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  harness::Random random(harness::Seed());
  const int proposals = harness::FullTests() ? 2000 : sanitized ? 8 : 40;
  long proposed = 0, accepted = 0, longest = 0;
  const auto walk = [&](Schedule at, const std::string& name) {
    long steps = 0;
    std::string story = name;
    for (int i = 0; i < proposals; ++i, ++proposed) {
      const std::vector<Mutation> mutations = Mutations(at);
      const Mutation m = random.Pick(mutations);
      Schedule next = at;
      Apply(m, &next);
      Facts facts;
      if (!Verify(next, &facts).ok()) continue;
      story += "; " + Describe(at, m);
      Model model(next);
      EXPECT_EQ(model.FindFault(), "") << story;
      EXPECT_EQ(model.Complete(), facts.complete) << story;
      EXPECT_EQ(RunSome(next, random.Next(), 3), "") << story;
      at = next;
      ++steps;
    }
    accepted += steps;
    longest = std::max(longest, steps);
  };
  for (int n = 2; n <= 4; ++n) {
    algo::ForEachAlgorithm(n, [&](const Contract& contract, std::string_view algorithm) {
      for (const int lanes : {1, 2}) {
        walk(algo::Generate(contract, algorithm, lanes).value(), algo::Describe(contract, algorithm, lanes));
      }
    });
    if (n < 4) ForEachChunked(n, walk);
  }
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    const plan::Placement placement = plan::Placement::Of(machine_of);
    if (placement.ranks() > 4) continue;
    algo::ForEachHierarchical(placement.ranks(), [&](const Contract& contract, std::string_view algorithm) {
      walk(algo::Generate(contract, algorithm, 1, placement).value(),
           algo::Describe(contract, algorithm, 1) + " " + algo::Describe(placement));
    });
  }
  std::printf("walks: %ld mutations proposed, %ld accepted, at most %ld on top of each other, all found right\n",
              proposed, accepted, longest);
  EXPECT_GT(accepted, proposed / 100);
}

// Generated schedules run correctly under a hostile scheduler, also with more ranks and lanes than mutation can afford.
TEST(InterpreterTest, GeneratedSchedulesRunRight) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  harness::Random random(harness::Seed());
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    algo::ForEachAlgorithm(n, [&](const Contract& contract, std::string_view algorithm) {
      const int lanes = 1 + static_cast<int>(random.Below(3));
      const Schedule schedule = algo::Generate(contract, algorithm, lanes).value();
      EXPECT_EQ(RunSome(schedule, random.Next(), sanitized ? 2 : 5), "") << algo::Describe(contract, algorithm, lanes);
    });
    ForEachChunked(n, [&](const Schedule& schedule, const std::string& name) {
      Facts facts;
      EXPECT_TRUE(Verify(schedule, &facts).ok()) << name;
      EXPECT_EQ(RunSome(schedule, random.Next(), 3), "") << name;
    });
  }
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    const plan::Placement placement = plan::Placement::Of(machine_of);
    algo::ForEachHierarchical(placement.ranks(), [&](const Contract& contract, std::string_view algorithm) {
      const Schedule schedule = algo::Generate(contract, algorithm, 2, placement).value();
      EXPECT_EQ(RunSome(schedule, random.Next(), 2), "")
          << algo::Describe(contract, algorithm, 2) << " " << algo::Describe(placement);
    });
  }
}

TEST(MutateTest, EachMutationChangesTheScheduleAndIsUndone) {
  const Contract contract = {plan::Kind::kAllReduce, 3, 0};
  const Schedule chunked = algo::GenerateChunked(contract, algo::kChunkedDirect, {2, true}).value();
  const Schedule nvls = algo::Generate(contract, "nvls", 1).value();
  std::map<Change, int> seen;
  const Schedule gather = algo::Generate({plan::Kind::kAllGather, 3, 0}, "direct", 1).value();
  for (const Schedule& original : {algo::Generate(contract, "twoshot", 2).value(), chunked, nvls, gather}) {
    for (const Mutation& m : Mutations(original)) {
      Schedule mutant = original;
      Apply(m, &mutant);
      EXPECT_NE(mutant, original) << Describe(original, m);
      Undo(m, original, &mutant);
      EXPECT_EQ(mutant, original) << Describe(original, m);
      ++seen[m.change];
    }
  }
  for (int c = 0; c < kNumChanges; ++c)
    EXPECT_GT(seen[static_cast<Change>(c)], 0) << ChangeName(static_cast<Change>(c));
}

// Counted by hand for a small schedule: 2 ranks, one copy, signal and wait each way.
TEST(MutateTest, CountsForASmallSchedule) {
  const Schedule s = plan::Parse(
                         "axccl-plan 1\nalgorithm x\nkind send_recv\nranks 2\nroot 0\nparts 1\nlanes 1\nslots 1\n"
                         "endpoints 1\ndirect no\ninline -\nrank 0 lane 0\n#0 copy slot[0].0 <- in[0].0.0\n"
                         "#1 signal 1 e0\nrank 1 lane 0\n#2 wait 0 e0 v1\n")
                         .value();
  std::map<Change, int> seen;
  for (const Mutation& m : Mutations(s)) ++seen[m.change];
  const std::map<Change, int> expected = {{Change::kDropOp, 3},          {Change::kSwapOps, 1},
                                          {Change::kSignalPeer, 2},      {Change::kSignalEndpoint, 1},
                                          {Change::kWaitPeer, 1},        {Change::kWaitEndpoint, 1},
                                          {Change::kWaitValue, 2},       {Change::kOperandBuffer, 4},
                                          {Change::kOperandRank, 2},     {Change::kOperandBlock, 2},
                                          {Change::kOperandPart, 2},     {Change::kOperandParts, 4},
                                          {Change::kDropSource, 1},      {Change::kDropDestination, 1},
                                          {Change::kDuplicateSource, 1}, {Change::kDuplicateDestination, 1},
                                          {Change::kFlipFinish, 1},      {Change::kDuplicateOp, 1},
                                          {Change::kInsertOp, 2},        {Change::kDropPair, 1},
                                          {Change::kAddPair, 3},         {Change::kInlineEndpoint, 1}};
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace axccl::verify
