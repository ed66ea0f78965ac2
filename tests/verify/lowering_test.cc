// Executors do more with plans than run them in order: after the prologue they may replace a direct plan by another,
// and they run neighbouring operations at once. The verifier refuses plans for which that would be wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/text.h"
#include "src/plan/together.h"
#include "src/verify/together.h"
#include "src/verify/verify.h"
#include "tests/algo/cases.h"

namespace axccl::verify {
namespace {

using plan::Contract;
using plan::Kind;
using plan::Op;
using plan::OpKind;
using plan::Schedule;

std::string Verdict(const Schedule& schedule) {
  Facts facts;
  const Status status = Verify(schedule, &facts);
  return status.ok() ? "ok" : std::string(status.message());
}

bool Has(const std::string& verdict, const std::string& words) { return verdict.find(words) != std::string::npos; }

Op Sync(OpKind kind, int peer, uint16_t endpoint, uint32_t id) {
  Op op;
  op.kind = kind;
  op.peer = static_cast<int16_t>(peer);
  op.endpoint = endpoint;
  op.id = id;
  return op;
}

// Visits every direct plan for groups of 2 to 4 ranks.
template <class F>
void ForEachDirect(int lanes, F f) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    algo::ForEachAlgorithm(ranks, [&](const Contract& contract, std::string_view algorithm) {
      const Schedule schedule = algo::Generate(contract, algorithm, lanes).value();
      if (!schedule.direct) return;
      SCOPED_TRACE(algo::Describe(contract, algorithm, lanes));
      f(schedule);
    });
  }
}

// ---- lanes of direct plans -----------------------------------------------------------------------------------------

// A lane above 0 exchanges signals of its own before it waits for lane 0. In order this is correct, but if the executor
// changes to another plan after the prologue, that plan finds these signals in its lines.
TEST(PrologueTest, LanesThatBeginBeforeItAreRefused) {
  for (const int lanes : {2, 3}) {
    ForEachDirect(lanes, [&](const Schedule& schedule) {
      EXPECT_EQ(Verdict(schedule), "ok");
      Schedule early = schedule;
      const uint16_t endpoint = early.endpoints++;
      uint32_t id = 1u << 20;
      for (int r = 0; r < schedule.contract.ranks; ++r) {
        std::vector<Op>& ops = early.program[r][lanes - 1].ops;
        std::vector<Op> exchange;
        exchange.push_back(Sync(OpKind::kSignal, plan::kAllPeers, endpoint, id++));
        for (int q = 0; q < schedule.contract.ranks; ++q) {
          if (q == r) continue;
          exchange.push_back(Sync(OpKind::kWait, q, endpoint, id++));
          exchange.back().from_lane = static_cast<uint16_t>(lanes - 1);
          exchange.back().value = 1;
        }
        ops.insert(ops.begin(), exchange.begin(), exchange.end());
      }
      const std::string verdict = Verdict(early);
      EXPECT_TRUE(Has(verdict, "lane " + std::to_string(lanes - 1) +
                                   " of a direct schedule must begin with a wait for a token of lane 0"))
          << verdict;
    });
  }
}

// Breaks the beginning of such a lane by one change, in every way: the wait is missing, or follows later operations.
TEST(PrologueTest, TheTokenComesFirst) {
  ForEachDirect(2, [&](const Schedule& schedule) {
    for (int r = 0; r < schedule.contract.ranks; ++r) {
      Schedule dropped = schedule, swapped = schedule;
      std::vector<Op>& ops = swapped.program[r][1].ops;
      dropped.program[r][1].ops.erase(dropped.program[r][1].ops.begin());
      EXPECT_NE(Verdict(dropped), "ok");
      std::swap(ops[0], ops[1]);
      EXPECT_TRUE(Has(Verdict(swapped), "must begin with a wait for a token")) << Verdict(swapped);
      // Operations that do nothing may precede it, because executors skip them.
      Schedule idle = schedule;
      std::vector<Op>& with_nop = idle.program[r][1].ops;
      with_nop.insert(with_nop.begin(), Sync(OpKind::kNop, 0, 0, 1u << 20));
      EXPECT_EQ(Verdict(idle), "ok");
    }
  });
}

// ---- operations that run at once -----------------------------------------------------------------------------------

Schedule Parse(const std::string& head, const std::string& program) {
  Result<Schedule> schedule = plan::Parse("axccl-plan 1\nalgorithm hand\n" + head + program);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return schedule.ok() ? *schedule : Schedule();
}

constexpr const char* kAlone =
    "kind all_to_all\nranks 1\nroot 0\nparts 1\nlanes 1\nslots 0\nendpoints 0\ndirect no\ninline\n";

// One after the other, both are right; at once, in any order of bytes, the second may read what is not written yet.
TEST(TogetherTest, NoOperationReadsWhatAnotherWrites) {
  const std::string head =
      "kind gather\nranks 2\nroot 0\nparts 1\nlanes 1\nslots 1\nendpoints 2\ndirect no\ninline -\n";
  const std::string rank1 = "rank 1 lane 0\n#10 copy slot[0].0 <- in[1].0.0\n#11 signal 0 e0\n#12 wait 0 e1 v1\n";
  const std::string right =
      "rank 0 lane 0\n#0 copy out[0].0.0 <- in[0].0.0\n#1 wait 1 e0 v1\n#2 copy out[0].1.0 <- slot[0].0\n#3 signal 1 "
      "e1\n";
  EXPECT_EQ(Verdict(Parse(head, right + rank1)), "ok");
  const std::string detour =
      "rank 0 lane 0\n#0 copy out[0].1.0 <- in[0].0.0\n#4 copy out[0].0.0 <- out[0].1.0\n#1 wait 1 e0 v1\n"
      "#2 copy out[0].1.0 <- slot[0].0\n#3 signal 1 e1\n";
  const Schedule schedule = Parse(head, detour + rank1);
  EXPECT_TRUE(Has(Verdict(schedule), "together: ")) << Verdict(schedule);
  const Status status = CheckTogether(schedule, 0, 0, plan::FindTogether(schedule.program[0][0]));
  EXPECT_EQ(status.message(),
            "together: rank 0 lane 0 op 0 is made at once with rank 0 lane 0 op 4, which writes "
            "input[0].block 0.part 0 that it reads where rank 0 runs in place");
  // Alone, each of them is right.
  const size_t ops = schedule.program[0][0].ops.size();
  EXPECT_TRUE(CheckTogether(schedule, 0, 0, std::vector<uint16_t>(ops, 1)).ok());
}

TEST(TogetherTest, NoTwoOperationsWriteTheSamePlace) {
  const std::string twice = "rank 0 lane 0\n#0 copy out[0].0.0 <- in[0].0.0\n#1 copy out[0].0.0 <- in[0].0.0\n";
  EXPECT_TRUE(Has(Verdict(Parse(kAlone, twice)), "together: ")) << Verdict(Parse(kAlone, twice));
  EXPECT_TRUE(Has(Verdict(Parse(kAlone, twice)), "and both write output[0].block 0.part 0"));
}

// A row that is right out of place but wrong in place, where the input of one rank is the output of another.
TEST(TogetherTest, InPlaceCounts) {
  const Schedule schedule = algo::Generate({Kind::kReduceScatter, 3, 0}, "push", 1).value();
  Schedule crossed = schedule;
  // Rank 0 reduces for rank 2 and then for rank 1, but from rank 2's block: in place it is overwritten by then.
  size_t changed = 0;
  for (Op& op : crossed.program[0][0].ops) {
    if (op.kind != OpKind::kReduce || op.dst[0].rank != 1) continue;
    for (plan::Operand& src : op.src) {
      if (src.rank != 2) continue;
      src.block = 2;
      ++changed;
    }
  }
  ASSERT_EQ(changed, 1u);
  const Status status = CheckTogether(crossed, 0, 0, plan::FindTogether(crossed.program[0][0]));
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(Has(std::string(status.message()), "that it reads where rank 2 runs in place")) << status.message();
}

// Whatever lies between neighbours that run at once, a lowering that joins too many is refused.
TEST(TogetherTest, TooLongRowsAreRefused) {
  long rows = 0;
  ForEachDirect(1, [&](const Schedule& schedule) {
    for (int r = 0; r < schedule.contract.ranks; ++r) {
      std::vector<uint16_t> together = plan::FindTogether(schedule.program[r][0]);
      EXPECT_TRUE(CheckTogether(schedule, r, 0, together).ok());
      for (size_t i = 0; i < together.size(); ++i) {
        rows += together[i] > 1;
        const bool moves = schedule.program[r][0].ops[i].kind == OpKind::kCopy ||
                           schedule.program[r][0].ops[i].kind == OpKind::kReduce;
        if (!moves || (i > 0 && together[i - 1] > 1)) continue;
        // The row's next neighbour is a signal or a wait, or the row is the last.
        std::vector<uint16_t> longer = together;
        ++longer[i];
        EXPECT_FALSE(CheckTogether(schedule, r, 0, longer).ok()) << "rank " << r << " op " << i;
      }
    }
  });
  EXPECT_GT(rows, 0);
}

}  // namespace
}  // namespace axccl::verify
