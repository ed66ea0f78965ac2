// Simulated programs, with times and memory worked out by hand.
#include "src/program/simulate.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "src/program/check.h"
#include "src/program/kinds.h"
#include "src/program/simulate/busy.h"
#include "src/program/simulate/distir.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

Program ParseOrDie(const std::string& body, int ranks) {
  Result<Program> program = Parse("axccl-program 1\nranks " + std::to_string(ranks) + "\n" + body);
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return {};
  const Status right = Check(program.value());
  EXPECT_TRUE(right.ok()) << right.message();
  return program.value();
}

// Local operations take a second for each operand, communication 10 seconds and 1 for each rank of the group.
class CountingModel : public Model {
 public:
  double LocalSeconds(const Operation&, const std::vector<const TensorType*>& operands) const override {
    return static_cast<double>(operands.size());
  }
  Result<double> Seconds(const Transfer& transfer) override {
    ++asked;
    operand_bytes = transfer.operand_bytes;
    result_bytes = transfer.result_bytes;
    return 10.0 + static_cast<double>(transfer.ranks.size());
  }
  bool overlaps() const override { return overlap; }
  bool drops_donated() const override { return overlap; }

  bool overlap = true;
  int asked = 0;
  double operand_bytes = 0, result_bytes = 0;
};

struct Expected {
  double compute, communication, exposed;
};
void ExpectTimes(const Simulation& simulation, int rank, const Expected& expected) {
  const RankTimes& times = simulation.ranks[static_cast<size_t>(rank)];
  EXPECT_DOUBLE_EQ(times.compute, expected.compute) << "rank " << rank;
  EXPECT_DOUBLE_EQ(times.communication, expected.communication) << "rank " << rank;
  EXPECT_DOUBLE_EQ(times.exposed, expected.exposed) << "rank " << rank;
}

Simulation SimulateOrDie(const Program& program, Model* model, const SimulateOptions& options = {}) {
  Result<Simulation> simulation = Simulate(program, model, options);
  EXPECT_TRUE(simulation.ok()) << simulation.status().message();
  return simulation.ok() ? simulation.value()
                         : Simulation{.ranks = std::vector<RankTimes>(8), .parts = {}, .events = {}};
}

// The all_reduce goes from 1 to 13, beside the multiplications from 1 to 5; the last sum needs both and ends at 15.
TEST(Simulate, ComputesBesideCommunication) {
  const Program program = ParseOrDie(
      "part main on [0,1]\n  argument %0 f32[4]\n  %1 f32[4] = abs %0\n"
      "  %2 f32[4] = all_reduce %1 fold=add groups=[[0,1]] channel=1\n"
      "  %3 f32[4] = multiply %0 %0\n  %4 f32[4] = multiply %3 %0\n  %5 f32[4] = add %2 %4\n  return %5\n",
      2);
  CountingModel model;
  Simulation simulation = SimulateOrDie(program, &model, {.trips = {}, .branch = {}, .events = true});
  EXPECT_DOUBLE_EQ(simulation.seconds, 15);
  EXPECT_EQ(model.asked, 1);
  EXPECT_DOUBLE_EQ(model.operand_bytes, 16);
  for (int rank = 0; rank < 2; ++rank) ExpectTimes(simulation, rank, {7, 12, 8});
  ASSERT_EQ(simulation.events.size(), 10u);
  std::map<Id, SimulatedEvent> of_rank_1;
  for (const SimulatedEvent& event : simulation.events) {
    if (event.rank == 1) of_rank_1.emplace(event.operation->id, event);
  }
  EXPECT_TRUE(of_rank_1.at(2).communication);
  EXPECT_DOUBLE_EQ(of_rank_1.at(2).begin, 1);
  EXPECT_DOUBLE_EQ(of_rank_1.at(2).end, 13);
  EXPECT_DOUBLE_EQ(of_rank_1.at(4).begin, 3);
  EXPECT_DOUBLE_EQ(of_rank_1.at(5).begin, 13);
  // The same in one stream: 1 + 12 + 2 + 2 + 2.
  model.overlap = false;
  simulation = SimulateOrDie(program, &model);
  EXPECT_DOUBLE_EQ(simulation.seconds, 19);
  ExpectTimes(simulation, 0, {7, 12, 12});
}

// Ranks 0 and 1 come to it at 0, ranks 2 and 3, of another part, at 2; all leave at 16.
TEST(Simulate, CollectivesBeginWithTheLastRank) {
  const std::string all = "all_reduce %1 fold=add groups=[[0,1,2,3]] channel=1\n";
  const Program program = ParseOrDie(
      "part early on [0,1]\n  argument %1 f32[4]\n  %2 f32[4] = " + all +
          "  return %2\npart late on [2,3]\n  argument %0 f32[4]\n  %1 f32[4] = add %0 %0\n  %2 f32[4] = " + all +
          "  %3 f32[4] = abs %2\n  return %3\n",
      5);
  CountingModel model;
  const Simulation simulation = SimulateOrDie(program, &model);
  EXPECT_DOUBLE_EQ(simulation.seconds, 17);
  ExpectTimes(simulation, 1, {0, 14, 14});
  ExpectTimes(simulation, 3, {3, 14, 14});
  ExpectTimes(simulation, 4, {0, 0, 0});
}

// Groups of the same operation go on by themselves: {2,3} begins at 0, and {0,1} at 2.
TEST(Simulate, GroupsDoNotWaitForEachOther) {
  const std::string halves = "all_gather %1 dim=0 groups=[[0,1],[3,2]] channel=1\n";
  const Program program =
      ParseOrDie("part late on [0,1]\n  argument %0 f32[4]\n  %1 f32[4] = add %0 %0\n  %2 f32[8] = " + halves +
                     "  return %2\npart early on [2,3]\n  argument %1 f32[4]\n  %2 f32[8] = " + halves +
                     "  %3 f32[8] = abs %2\n  return %3\n",
                 4);
  CountingModel model;
  const Simulation simulation = SimulateOrDie(program, &model, {.trips = {}, .branch = {}, .events = true});
  EXPECT_DOUBLE_EQ(simulation.seconds, 14);
  EXPECT_DOUBLE_EQ(model.result_bytes, 32);
  for (const SimulatedEvent& event : simulation.events) {
    if (event.communication) {
      EXPECT_DOUBLE_EQ(event.end, event.rank < 2 ? 14 : 12);
    }
  }
}

constexpr char kTwoStages[] =
    "part first on [0]\n  argument %0 f32[4]\n  %1 f32[4] = abs %0\n  %2 = send %1 pairs=[[0,1]] channel=1\n"
    "  %3 f32[4] = add %0 %1\n  %4 = send %3 pairs=[[0,1]] channel=1\n  return\n"
    "part second on [1]\n  argument %0 f32[4]\n  %1 f32[4] = clamp %0 %0 %0\n"
    "  %2 f32[4] = recv pairs=[[0,1]] channel=1\n  %3 f32[4] = recv pairs=[[0,1]] channel=1\n"
    "  %4 f32[4] = add %2 %3\n  return %4\n";

// Messages leave at 1 and, behind the first, at 13. The receiver is there from the beginning, as its recv needs
// nothing that it computes, and takes them from 1 to 13 and from 13 to 25.
TEST(Simulate, MessagesAreTakenOneByOne) {
  const Program program = ParseOrDie(kTwoStages, 2);
  CountingModel model;
  const Simulation simulation = SimulateOrDie(program, &model);
  EXPECT_DOUBLE_EQ(simulation.seconds, 27);
  ExpectTimes(simulation, 0, {3, 24, 22});
  ExpectTimes(simulation, 1, {5, 24, 22});
}

// In one stream, both are busy from 3 to 15; the sender then adds until 17, and both are busy until 29.
TEST(Simulate, WithoutOverlapSendsWaitForTheirRecv) {
  const Program program = ParseOrDie(kTwoStages, 2);
  CountingModel model;
  model.overlap = false;
  const Simulation simulation = SimulateOrDie(program, &model);
  EXPECT_DOUBLE_EQ(simulation.seconds, 31);
  ExpectTimes(simulation, 0, {3, 24, 24});
  ExpectTimes(simulation, 1, {5, 24, 24});
  const Program exchange = ParseOrDie(
      "part main on [0,1]\n  argument %0 f32[4]\n  %1 = send %0 pairs=[[0,1],[1,0]] channel=1\n"
      "  %2 f32[4] = recv pairs=[[0,1],[1,0]] channel=1\n  return %2\n",
      2);
  const Result<Simulation> stuck = Simulate(exchange, &model);
  ASSERT_FALSE(stuck.ok());
  EXPECT_EQ(stuck.status().message(), "rank 0 waits in %1 send for ever: with this model, a send waits for its recv");
  model.overlap = true;
  // Each sends until 12, and takes what came from then on.
  EXPECT_DOUBLE_EQ(SimulateOrDie(exchange, &model).seconds, 24);
}

std::string LoopOver(const std::string& limit) {
  return "part main on [0]\n  argument %0 f32[4]\n  argument %1 i32[]\n  %2 i32[] = constant value=0\n" + limit +
         "  %4 i32[], %5 f32[4] = while %2 %0\n  cond\n    argument %6 i32[]\n    argument %7 f32[4]\n"
         "    %8 i1[] = compare %6 %3 direction=LT\n    return %8\n  body\n    argument %9 i32[]\n"
         "    argument %10 f32[4]\n    %11 i32[] = constant value=1\n    %12 i32[] = add %9 %11\n"
         "    %13 f32[4] = abs %10\n    return %12 %13\n  return %5\n";
}

// A round compares (2), counts (2) and computes (1); the last one compares alone. Constants take nothing here.
TEST(Simulate, ExecutesLoopsAsOftenAsConstantsSay) {
  CountingModel model;
  const Program constant = ParseOrDie(LoopOver("  %3 i32[] = constant value=3\n"), 1);
  EXPECT_DOUBLE_EQ(SimulateOrDie(constant, &model, {.trips = 7, .branch = {}}).seconds, 17);
  const Program open = ParseOrDie(LoopOver("  %3 i32[] = copy %1\n"), 1);
  const Result<Simulation> asks = Simulate(open, &model);
  ASSERT_FALSE(asks.ok());
  EXPECT_EQ(asks.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(asks.status().message(),
            "part main, %4 while: the number of rounds does not follow from constants; a simulation must be told "
            "(--trips)");
  EXPECT_DOUBLE_EQ(SimulateOrDie(open, &model, {.trips = 7, .branch = {}}).seconds, 38);
  EXPECT_DOUBLE_EQ(SimulateOrDie(open, &model, {.trips = 0, .branch = {}}).seconds, 3);
  const Result<Simulation> large = Simulate(open, &model, {.trips = int64_t{1} << 40, .branch = {}});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().code(), Code::kInvalidUsage);
  EXPECT_EQ(large.status().message(), "part main: more operations than can be simulated, loops written out");
}

TEST(Simulate, CountsTheMemoryOfLoops) {
  CountingModel model;
  const Program program = ParseOrDie(LoopOver("  %3 i32[] = constant value=3\n"), 1);
  const Simulation simulation = SimulateOrDie(program, &model);
  EXPECT_EQ(simulation.parts[0].arguments, 20u);
  // In the second round: arguments 20, limit and first counter 8, what is carried 16, the next counter 4, and the
  // result 16. The old counter and the step are dropped by then.
  EXPECT_EQ(simulation.parts[0].peak, 64u);
  ASSERT_NE(simulation.parts[0].at, nullptr);
  EXPECT_EQ(simulation.parts[0].at->id, 13u);
}

TEST(Simulate, AsksForTheBranch) {
  CountingModel model;
  const Program program = ParseOrDie(
      "part main on [0]\n  argument %0 f32[4]\n  argument %1 i1[]\n  %2 f32[4] = if %1\n  then\n"
      "    %3 f32[4] = abs %0\n    return %3\n  else\n    return %0\n  return %2\n",
      1);
  const Result<Simulation> asks = Simulate(program, &model);
  ASSERT_FALSE(asks.ok());
  EXPECT_EQ(asks.status().message(), "part main, %2 if: a simulation must be told which branch to take (--branch)");
  const Simulation then = SimulateOrDie(program, &model, {.trips = {}, .branch = 0});
  EXPECT_DOUBLE_EQ(then.seconds, 1);
  EXPECT_EQ(then.parts[0].peak, 33u);
  const Simulation other = SimulateOrDie(program, &model, {.trips = {}, .branch = 1});
  EXPECT_DOUBLE_EQ(other.seconds, 0);
  EXPECT_EQ(other.parts[0].peak, 17u);
  EXPECT_EQ(other.parts[0].at, nullptr);
}

// What is decided by a value that comes late comes later.
TEST(Simulate, RegionsWaitForTheirCondition) {
  CountingModel model;
  const Program program = ParseOrDie(
      "part main on [0,1]\n  argument %0 f32[4]\n  argument %1 i1[]\n"
      "  %2 i1[] = all_reduce %1 fold=and groups=[[0,1]] channel=1\n  %3 f32[4] = if %2\n  then\n"
      "    %4 f32[4] = abs %0\n    return %4\n  else\n    return %0\n  return %3\n",
      2);
  EXPECT_DOUBLE_EQ(SimulateOrDie(program, &model, {.trips = {}, .branch = 0}).seconds, 13);
}

// Donated arguments end with their last use, others with the part.
TEST(Simulate, CountsMemoryInTheOrderOfTheProgram) {
  const auto peak = [](const std::string& donated, bool drops) {
    CountingModel model;
    model.overlap = drops;
    const Program program = ParseOrDie("part main on [0]\n  argument %0 f32[100]" + donated +
                                           "\n  %1 f32[10] = slice %0 starts=[0] limits=[10] strides=[1]\n"
                                           "  %2 f32[50] = concatenate %1 %1 %1 %1 %1 dim=0\n  return %2\n",
                                       1);
    return SimulateOrDie(program, &model).parts[0].peak;
  };
  EXPECT_EQ(peak("", true), 640u);
  EXPECT_EQ(peak(" donated", true), 440u);
  EXPECT_EQ(peak(" donated", false), 640u);
  CountingModel model;
  const Program messages = ParseOrDie(
      "part first on [0]\n  argument %0 f32[4] donated\n  %1 f32[4] = abs %0\n  %2 = send %1 pairs=[[0,1]] channel=1\n"
      "  %3 f32[4] = iota dim=0\n  %4 = send %3 pairs=[[0,1]] channel=1\n  %5 f32[4] = iota dim=0\n  return %5\n"
      "part second on [1]\n  %0 f32[4] = recv pairs=[[0,1]] channel=1\n  %1 f32[4] = abs %0\n"
      "  %2 f32[4] = recv pairs=[[0,1]] channel=1\n  %3 f32[4] = add %1 %2\n  return %3\n",
      2);
  const Simulation simulation = SimulateOrDie(messages, &model);
  EXPECT_EQ(simulation.parts[0].peak, 32u);
  EXPECT_EQ(simulation.parts[1].peak, 48u);
  EXPECT_EQ(simulation.parts[1].at->id, 3u);
}

// DistIR's own numbers: 4 MiB, 4 devices, 25 Gbit/s; 2 x 4 MiB x 3/4 / 3.125e9 bytes/s, and 4 MiB / 3.125e9 bytes/s.
TEST(DistirModel, HasItsTimesOfCollectives) {
  DistirModel model({});
  const Program reduced = ParseOrDie(
      "part main on [0,1,2,3]\n  argument %0 f32[1048576]\n"
      "  %1 f32[1048576] = all_reduce %0 fold=add groups=[[0,1,2,3]] channel=1\n  return %1\n",
      4);
  EXPECT_DOUBLE_EQ(SimulateOrDie(reduced, &model).seconds, 2.0132659200000003e-3);
  const Program sent = ParseOrDie(
      "part first on [0]\n  argument %0 f32[1048576]\n  %1 = send %0 pairs=[[0,3]] channel=1\n  return\n"
      "part last on [3]\n  %0 f32[1048576] = recv pairs=[[0,3]] channel=1\n  return %0\n",
      4);
  const Simulation simulation = SimulateOrDie(sent, &model);
  EXPECT_DOUBLE_EQ(simulation.seconds, 1.34217728e-3);
  ExpectTimes(simulation, 0, {0, 1.34217728e-3, 1.34217728e-3});
  ExpectTimes(simulation, 3, {0, 1.34217728e-3, 1.34217728e-3});
  const Program refused = ParseOrDie(
      "part main on [0,1]\n  argument %0 f32[4]\n"
      "  %1 f32[2] = reduce_scatter %0 fold=add dim=0 groups=[[0,1]] channel=1\n  return %1\n",
      2);
  EXPECT_EQ(Simulate(refused, &model).status().message(), "%1 reduce_scatter: DistIR's model has no such collective");
}

// c = 10 us; D = 1e6 bytes/s; F = 1e7 operations/s.
TEST(DistirModel, HasItsTimesOfOperations) {
  DistirModel model({1e-5, 1e6, 1e7, 1e6});
  const auto seconds = [&](const std::string& arguments, const std::string& operation) {
    const Program program = ParseOrDie("part main on [0]\n" + arguments + operation + "  return\n", 1);
    return SimulateOrDie(program, &model).seconds;
  };
  const std::string two = "  argument %0 f32[2,3]\n  argument %1 f32[3,5]\n", one = "  argument %0 f32[2,3]\n";
  // 4 (6 + 15) bytes and 2 x 2 x 3 x 5 operations
  EXPECT_DOUBLE_EQ(seconds(two, "  %2 f32[2,5] = dot %0 %1\n"), 1e-5 + 84e-6 + 6e-6);
  EXPECT_DOUBLE_EQ(seconds(one, "  %2 f32[2,3] = abs %0\n"), 1e-5 + 24e-6 + 0.6e-6);
  EXPECT_DOUBLE_EQ(seconds(one, "  %2 f32[2,3] = add %0 %0\n"), 1e-5 + 48e-6 + 0.6e-6);
  EXPECT_DOUBLE_EQ(seconds(one, "  %2 f32[6] = reshape %0\n"), 1e-5);
  EXPECT_DOUBLE_EQ(seconds(one, "  %2 f32[4,3] = concatenate %0 %0 dim=0\n"), 1e-5);
  EXPECT_DOUBLE_EQ(seconds(one, "  %2 f32[] = constant value=1\n"), 0);
}

TEST(BusyStreams, AddUpWhatIsBusyAtTheSameTime) {
  BusyStreams busy;
  busy.Add(0, 0, 2);
  busy.Add(0, 2, 3);
  busy.Add(0, 5, 9);
  busy.Add(1, 1, 6);
  busy.Add(1, 7, 8);
  busy.Add(1, 8.5, 20);
  busy.Add(0, 10, 11);
  busy.Add(0, 19, 30);
  EXPECT_DOUBLE_EQ(busy.seconds(0), 19);
  EXPECT_DOUBLE_EQ(busy.seconds(1), 17.5);
  EXPECT_DOUBLE_EQ(busy.both(), 2 + 1 + 1 + 0.5 + 1 + 1);
}

}  // namespace
}  // namespace axccl::program
