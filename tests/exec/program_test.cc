#include "src/exec/prepared/program.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "src/verify/verify.h"
#include "tests/algo/cases.h"

namespace axccl::exec {
namespace {

using plan::Buffer;
using plan::Operand;
using plan::OpKind;

using Programs = std::vector<std::shared_ptr<const Program>>;

Programs MakeAll(const std::shared_ptr<const plan::Plan>& plan) {
  Programs programs;
  for (int rank = 0; rank < plan->schedule.contract.ranks; ++rank) {
    auto program = Program::Make(plan, rank);
    EXPECT_TRUE(program.ok()) << program.status().message();
    programs.push_back(program.value());
  }
  return programs;
}

// Runs all ranks' programs on symbols, which are the parts of a block that slots hold. Every move must read and write
// data of the part that its program names.
class Simulation {
 public:
  explicit Simulation(const Programs& programs) : programs_(programs) {}

  void Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < programs_.size(); ++rank) {
        for (size_t lane = 0; lane < programs_[rank]->lanes.size(); ++lane) moved |= RunLane(rank, lane);
      }
    }
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      for (size_t lane = 0; lane < programs_[rank]->lanes.size(); ++lane)
        ASSERT_EQ((next_[{rank, lane}]), programs_[rank]->lanes[lane].size()) << "rank " << rank << " never ends";
    }
  }

 private:
  bool RunLane(size_t rank, size_t lane) {
    const std::vector<Step>& steps = programs_[rank]->lanes[lane];
    size_t& next = next_[{rank, lane}];
    const size_t first = next;
    for (; next < steps.size(); ++next) {
      const Step& step = steps[next];
      if (step.kind == OpKind::kWait) {
        if (line_[{static_cast<size_t>(step.peer), step.from_lane, step.endpoint}] < step.value) break;
      } else if (step.kind == OpKind::kSignal) {
        uint16_t& value = line_[{rank, lane, step.endpoint}];
        EXPECT_EQ(step.value, value + 1) << "signals of an endpoint count up by one";
        value = step.value;
      } else {
        Move(rank, lane, step);
      }
    }
    return next != first;
  }

  void Move(size_t rank, size_t lane, const Step& step) {
    const Program& program = *programs_[rank];
    ASSERT_LE(step.operands + step.num_dst + size_t{step.num_src}, program.operands.size());
    ASSERT_LE(step.data_parts + size_t{step.parts}, program.data_parts.size());
    for (size_t part = 0; part < step.parts; ++part) {
      const uint16_t data = program.data_parts[step.data_parts + part];
      for (size_t i = 0; i < size_t{step.num_dst} + step.num_src; ++i) {
        const Operand& o = program.operands[step.operands + i];
        ASSERT_EQ(o.parts, step.parts);
        if (o.buffer != Buffer::kScratch) {
          EXPECT_EQ(data, o.part + part) << "a user buffer holds the part that the program names";
        } else if (i < step.num_dst) {
          slot_[{o.rank, lane, o.part + part}] = data;
        } else {
          ASSERT_TRUE(slot_.contains({o.rank, lane, o.part + part})) << "reads a slot that no rank has written";
          EXPECT_EQ((slot_[{o.rank, lane, o.part + part}]), data) << "reads a slot of data of another part";
        }
      }
    }
  }

  const Programs& programs_;
  std::map<std::pair<size_t, size_t>, size_t> next_;
  std::map<std::tuple<size_t, size_t, size_t>, uint16_t> line_, slot_;
};

class ProgramTest : public testing::TestWithParam<int> {};

TEST_P(ProgramTest, FollowsTheScheduleAndKnowsItsParts) {
  algo::ForEachAlgorithm(GetParam(), [](const plan::Contract& contract, std::string_view algorithm) {
    for (const int lanes : {1, 3}) {
      SCOPED_TRACE(algo::Describe(contract, algorithm, lanes));
      auto schedule = algo::Generate(contract, algorithm, lanes);
      ASSERT_TRUE(schedule.ok());
      auto plan = verify::MakePlan(std::move(schedule).value());
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const Programs programs = MakeAll(plan.value());
      if (testing::Test::HasFailure()) return;
      Simulation(programs).Run();
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

// Direct programs announce in the first steps of lane 0, and no slot that shares its endpoint is in a line.
TEST_P(ProgramTest, PrologueAndInlineSlotsAreAsTheExecutorExpects) {
  algo::ForEachAlgorithm(GetParam(), [](const plan::Contract& contract, std::string_view algorithm) {
    SCOPED_TRACE(algo::Describe(contract, algorithm, 1));
    auto schedule = algo::Generate(contract, algorithm, 1);
    ASSERT_TRUE(schedule.ok());
    auto plan = verify::MakePlan(std::move(schedule).value());
    ASSERT_TRUE(plan.ok());
    size_t operands = 0;
    for (const auto& program : MakeAll(plan.value())) {
      if (operands == 0) operands = program->plan_operands;
      EXPECT_EQ(program->plan_operands, operands) << "ranks would forget prepared calls at different times";
      EXPECT_GE(program->plan_operands, program->operands.size());
      const std::vector<Step>& steps = program->lanes[0];
      EXPECT_EQ(program->prologue, program->plan->schedule.direct ? program->plan->schedule.program.size() : 0u);
      ASSERT_LE(program->prologue, steps.size());
      std::vector<int> signalled;
      for (size_t i = 1; i < program->prologue; ++i) {
        EXPECT_EQ(steps[i].kind, OpKind::kWait);
        signalled.push_back(steps[i].peer);
      }
      if (program->prologue != 0) {
        EXPECT_EQ(steps[0].kind, OpKind::kSignal);
        EXPECT_EQ(steps[0].peer, plan::kAllPeers);
        for (int peer = 0, at = 0; peer < contract.ranks; ++peer) {
          if (peer != program->rank) {
            EXPECT_EQ(signalled[static_cast<size_t>(at++)], peer);
          }
        }
      }
      std::map<int, int> users;
      ASSERT_EQ(program->inline_endpoint.size(), program->plan->schedule.slots);
      for (const int16_t endpoint : program->inline_endpoint) {
        EXPECT_LT(endpoint, static_cast<int>(program->plan->schedule.endpoints));
        if (endpoint >= 0) {
          EXPECT_EQ(++users[endpoint], 1) << "two slots in one line";
        }
      }
    }
  });
}

// The minimum: every byte of every input is read once, every byte of every output is written once, and nothing else.
class DirectProgramTest : public testing::TestWithParam<int> {};

TEST_P(DirectProgramTest, TouchesEveryByteOnce) {
  const int ranks = GetParam();
  algo::ForEachAlgorithm(ranks, [ranks](const plan::Contract& contract, std::string_view algorithm) {
    if (algorithm != "direct") return;
    SCOPED_TRACE(algo::Describe(contract, algorithm, 1));
    auto plan = verify::MakePlan(algo::Generate(contract, algorithm, 1).value());
    ASSERT_TRUE(plan.ok());
    const int parts = plan.value()->schedule.parts;
    EXPECT_EQ(plan.value()->schedule.slots, 0);
    // (rank, block, part) -> number of accesses
    std::map<std::tuple<int, int, int>, int> reads, writes;
    for (const auto& program : MakeAll(plan.value())) {
      for (const Step& step : program->lanes[0]) {
        for (uint32_t i = 0; i < uint32_t{step.num_dst} + step.num_src; ++i) {
          const Operand& o = program->operands[step.operands + i];
          ASSERT_EQ(o.buffer, i < step.num_dst ? Buffer::kOutput : Buffer::kInput);
          for (int part = o.part; part < o.part + o.parts; ++part)
            ++(i < step.num_dst ? writes : reads)[{o.rank, o.block, part}];
        }
      }
    }
    size_t inputs = 0, outputs = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs += static_cast<size_t>(plan::InputBlocks(contract, rank) * parts);
      outputs += static_cast<size_t>(plan::OutputBlocks(contract, rank) * parts);
    }
    EXPECT_EQ(reads.size(), inputs);
    EXPECT_EQ(writes.size(), outputs);
    for (const auto& [place, times] : reads) EXPECT_EQ(times, 1);
    for (const auto& [place, times] : writes) EXPECT_EQ(times, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DirectProgramTest, testing::Values(2, 3, 4, 5, 6, 7, 8));
INSTANTIATE_TEST_SUITE_P(Ranks, ProgramTest, testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

TEST(Program, ScheduleThatNeverEndsIsAnError) {
  auto plan = std::make_shared<plan::Plan>();
  plan->schedule = algo::Generate(plan::Contract{plan::Kind::kBarrier, 2, 0}, "oneshot", 1).value();
  plan->schedule.program[1][0].ops.clear();
  const auto program = Program::Make(plan, 0);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), Code::kInternalError);
  EXPECT_NE(program.status().message().find("rank 0 lane 0 never ends"), std::string::npos)
      << program.status().message();
}

}  // namespace
}  // namespace axccl::exec
