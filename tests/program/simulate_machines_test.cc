// The times of a program on given machines, and the text form of these.
#include <gtest/gtest.h>

#include <string>

#include "src/program/simulate/machines.h"
#include "src/program/simulate/on_machines.h"
#include "src/program/text.h"
#include "tests/harness/folder.h"

namespace axccl::program {
namespace {

double SecondsOn(MachinesModel* model, int ranks, const std::string& arguments, const std::string& operation) {
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) all += (rank == 0 ? "" : ",") + std::to_string(rank);
  const Result<Program> program = Parse("axccl-program 1\nranks " + std::to_string(ranks) + "\npart main on [" + all +
                                        "]\n" + arguments + operation + "  return\n");
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return -1;
  const Result<Simulation> simulation = Simulate(program.value(), model);
  EXPECT_TRUE(simulation.ok()) << simulation.status().message();
  return simulation.ok() ? simulation.value().seconds : -1;
}

// Products of 2 x 1024^3 operations are limited by arithmetic; the rest by the memory, at 3.35 TB/s.
TEST(MachinesModel, TakesTheRoofline) {
  MachinesModel model({});
  const auto seconds = [&](const std::string& arguments, const std::string& operation) {
    return SecondsOn(&model, 1, arguments, operation);
  };
  const std::string f32 = "  argument %0 f32[1024,1024]\n", bf16 = "  argument %0 bf16[1024,1024]\n";
  const double launch = 3e-6, mebi = 1 << 20;
  EXPECT_DOUBLE_EQ(seconds(f32, "  %1 f32[1024,1024] = dot %0 %0\n"), launch + 2048 * mebi / 6.7e13);
  EXPECT_DOUBLE_EQ(seconds(bf16, "  %1 bf16[1024,1024] = dot %0 %0\n"), launch + 2048 * mebi / 9.895e14);
  EXPECT_DOUBLE_EQ(seconds("  argument %0 f64[2,1024,64]\n",
                           "  %1 f64[2,1024,1024] = dot_general %0 %0 lhs_batching_dims=[0] rhs_batching_dims=[0] "
                           "lhs_contracting_dims=[2] rhs_contracting_dims=[2]\n"),
                   launch + (2 * 8 * 2 * 65536 + 8 * 2 * mebi) / 3.35e12);
  EXPECT_DOUBLE_EQ(seconds(f32, "  %1 f32[1024,1024] = add %0 %0\n"), launch + 12 * mebi / 3.35e12);
  EXPECT_DOUBLE_EQ(seconds(f32, "  %1 f32[1024,1024] = transpose %0 dims=[1,0]\n"), launch + 8 * mebi / 3.35e12);
  // A slice reads what it gives.
  EXPECT_DOUBLE_EQ(seconds(f32, "  %1 f32[256,1024] = slice %0 starts=[0,0] limits=[256,1024] strides=[1,1]\n"),
                   launch + 2 * mebi / 3.35e12);
  EXPECT_DOUBLE_EQ(seconds(f32, "  %1 f32[] = constant value=0\n"), 0);
}

// Two ranks on a machine, links of 1 GB/s and NICs of half that; everything else takes next to nothing.
Machines Links() {
  Machines machines;
  machines.ranks_per_machine = 2;
  machines.launch_seconds = 1e-6;
  machines.fabric = {0, 1e18, 1e9, 0, 5e8, 0, 1e-12};
  return machines;
}

TEST(MachinesModel, SendsOverLinksAndNics) {
  MachinesModel model(Links());
  const std::string mebi = "  argument %0 f32[1048576]\n", permute = "  %1 f32[1048576] = collective_permute %0 pairs=";
  EXPECT_NEAR(SecondsOn(&model, 4, mebi, permute + "[[0,1],[3,2]] channel=1\n"), 1e-6 + 4.194304e-3, 1e-9);
  EXPECT_NEAR(SecondsOn(&model, 4, mebi, permute + "[[0,1],[1,2]] channel=1\n"), 1e-6 + 8.388608e-3, 1e-9);
  EXPECT_NEAR(SecondsOn(&model, 4, mebi, permute + "[[0,0],[1,1]] channel=1\n"), 1e-6, 1e-9);
  EXPECT_EQ(model.num_calls(), 2u);
}

// Of 4 MiB from each of two ranks, each reads 4 MiB over its link, or NIC.
TEST(MachinesModel, AsksTheSimulatorOncePerCall) {
  MachinesModel model(Links());
  const std::string mebi = "  argument %0 f32[1048576]\n", gather = "  %1 f32[2097152] = all_gather %0 dim=0 groups=";
  EXPECT_NEAR(SecondsOn(&model, 4, mebi, gather + "[[0,1],[3,2]] channel=1\n"), 4.195e-3, 1e-5);
  EXPECT_EQ(model.num_calls(), 1u);
  EXPECT_NEAR(SecondsOn(&model, 4, mebi, gather + "[[0,2],[3,1]] channel=1\n"), 8.389e-3, 1e-5);
  EXPECT_EQ(model.num_calls(), 2u);
  // 2 x 4 MiB x 1/2 over the link; a rank alone only copies.
  EXPECT_NEAR(SecondsOn(&model, 2, mebi, "  %1 f32[1048576] = all_reduce %0 fold=add groups=[[0,1]] channel=1\n"),
              4.195e-3, 1e-5);
  EXPECT_NEAR(SecondsOn(&model, 2, mebi, "  %1 f32[1048576] = all_reduce %0 fold=add groups=[[0],[1]] channel=1\n"),
              1e-6, 1e-9);
}

// The root gets 4 MiB, or sends them; whether a value says which rank it is makes no difference.
TEST(MachinesModel, KnowsRoots) {
  const std::string arguments = "  argument %0 f32[1048576]\n  argument %1 i32[1]\n",
                    group = " groups=[[1,0]] channel=1\n";
  MachinesModel model(Links());
  for (const std::string call :
       {"broadcast %0", "broadcast_from %0 %1", "reduce %0 fold=add", "reduce_to %0 %1 fold=add"})
    EXPECT_NEAR(SecondsOn(&model, 2, arguments, "  %2 f32[1048576] = collective_" + call + group), 4.195e-3, 1e-5)
        << call;
  Machines machines;
  machines.measured.calls[{OpKind::kCollectiveBroadcast, 2}] = {{8, 1e-5}};
  machines.measured.calls[{OpKind::kCollectiveReduce, 2}] = {{8, 2e-5}};
  MachinesModel measured(machines);
  const std::string two = "  argument %0 f32[1]\n  argument %1 i32[1]\n";
  EXPECT_DOUBLE_EQ(SecondsOn(&measured, 2, two, "  %2 f32[1] = collective_broadcast_from %0 %1" + group), 1e-5);
  EXPECT_DOUBLE_EQ(SecondsOn(&measured, 2, two, "  %2 f32[1] = collective_reduce_to %0 %1 fold=add" + group), 2e-5);
}

// Groups for which the tuner is not asked: eight NICs of each of 33 machines carry 132 MiB, less a 33rd.
TEST(MachinesModel, SimulatesLargeGroups) {
  Machines machines;
  machines.launch_seconds = 0;
  MachinesModel model(machines);
  std::string group;
  for (int rank = 0; rank < 264; ++rank) group += (rank == 0 ? "[[" : ",") + std::to_string(rank);
  const double seconds =
      SecondsOn(&model, 264, "  argument %0 f32[34603008]\n",
                "  %1 f32[131072] = reduce_scatter %0 fold=add dim=0 groups=" + group + "]] channel=1\n");
  const double least = 32.0 / 33 * 138412032 / 8 / 5e10;
  EXPECT_GT(seconds, least);
  EXPECT_LT(seconds, 4 * least);
}

std::string H100() { return harness::Contents(AXCCL_TEST_SOURCE_DIR "/tools/axccl-program/h100.fabric"); }

TEST(Machines, TheFileOfTheH100HasTheDefaults) {
  const Result<Machines> machines = ParseMachines(H100());
  ASSERT_TRUE(machines.ok()) << machines.status().message();
  EXPECT_EQ(Print(machines.value()), Print(Machines()));
  const Result<Machines> again = ParseMachines(Print(machines.value()));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(Print(again.value()), Print(Machines()));
}

constexpr char kMeasured[] =
    "streams 1\nproduct f64 2e-06 1e-10 1e-09 2e-09 3e-09\nproduct f32 1e-06 5e-11 1e-09 2e-09 4e-09\noperation add "
    "1000 2e-06\n"
    "operation add 3000 6e-06\noperation reduce 4000 1e-05\ncall all_gather 2 8 1e-05\ncall all_reduce 2 8 1e-05\n"
    "call all_reduce 2 1000008 0.00101\ncall all_reduce 4 8 3e-05\ncall send 2 8 4e-06\n";

double MeasuredSeconds(int ranks, const std::string& arguments, const std::string& operation) {
  const Result<Machines> machines = ParseMachines(Print(Machines()) + kMeasured);
  EXPECT_TRUE(machines.ok()) << machines.status().message();
  if (!machines.ok()) return -1;
  MachinesModel model(machines.value());
  return SecondsOn(&model, ranks, arguments, operation);
}

// Straight lines through the points; below the first it takes as long, beyond the last two the line goes on.
TEST(MachinesModel, TakesWhatWasMeasured) {
  const auto add = [](const std::string& type) {
    return MeasuredSeconds(1, "  argument %0 " + type + "\n", "  %1 " + type + " = add %0 %0\n");
  };
  EXPECT_DOUBLE_EQ(add("i8[1]"), 2e-6);
  EXPECT_DOUBLE_EQ(add("i8[500]"), 3e-6);
  EXPECT_DOUBLE_EQ(add("i8[2000]"), 12e-6);
  EXPECT_DOUBLE_EQ(MeasuredSeconds(1, "  argument %0 f32[4000]\n  argument %1 f32[]\n",
                                   "  %2 f32[] = reduce %0 %1 fold=add dims=[0]\n"),
                   1e-5 * 16008 / 4000);
  // Two products, of 2 x 3 x 4 x 5 operations each.
  EXPECT_DOUBLE_EQ(MeasuredSeconds(1, "  argument %0 f32[2,3,4]\n  argument %1 f32[2,4,5]\n",
                                   "  %2 f32[2,3,5] = dot_general %0 %1 lhs_batching_dims=[0] rhs_batching_dims=[0] "
                                   "lhs_contracting_dims=[2] rhs_contracting_dims=[1]\n"),
                   2e-6 + 240 * 5e-11 + 4 * (24 * 1e-9 + 40 * 2e-9 + 30 * 4e-9));
  const std::string reduce = "  %1 f32[125001] = all_reduce %0 fold=add groups=", f32 = "  argument %0 f32[125001]\n";
  EXPECT_DOUBLE_EQ(MeasuredSeconds(2, f32, reduce + "[[0,1]] channel=1\n"), 1e-5 + 1e-3 * 499996 / 1e6);
  EXPECT_DOUBLE_EQ(MeasuredSeconds(4, f32, reduce + "[[0,1,2,3]] channel=1\n"), 3e-5 * 500004 / 8);
}

// With one stream, what a rank does takes the sum; a send waits for nobody.
TEST(MachinesModel, HasOneStreamIfMeasuredSo) {
  const std::string both = "  %1 f32[2] = all_reduce %0 fold=add groups=[[0,1]] channel=1\n  %2 i8[500] = add %3 %3\n";
  const std::string arguments = "  argument %0 f32[2]\n  argument %3 i8[500]\n";
  EXPECT_DOUBLE_EQ(MeasuredSeconds(2, arguments, both), 1e-5 + 3e-6);
  EXPECT_DOUBLE_EQ(MeasuredSeconds(2, "  argument %0 f32[2]\n",
                                   "  %1 = send %0 pairs=[[0,1],[1,0]] channel=1\n  %2 f32[2] = recv "
                                   "pairs=[[0,1],[1,0]] channel=1\n"),
                   8e-6);
}

TEST(Machines, PrintsWhatWasMeasured) {
  const std::string text = Print(Machines()) + kMeasured;
  const Result<Machines> machines = ParseMachines(text);
  ASSERT_TRUE(machines.ok()) << machines.status().message();
  const Result<Machines> again = ParseMachines(Print(machines.value()));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(Print(again.value()), Print(machines.value()));
  for (const std::string line :
       {"streams 1\n", "product f32 1e-06 5e-11 1e-09 2e-09 4e-09\n", "operation add 3000 6e-06\n",
        "call all_reduce 2 1000008 0.00101\ncall all_reduce 4 8 3e-05\ncall send 2 8 4e-06\n"})
    EXPECT_NE(Print(machines.value()).find(line), std::string::npos) << line;
}

TEST(Machines, NamesWhatIsWrongInWhatWasMeasured) {
  const struct {
    std::string lines, message;
  } cases[] = {
      {"streams 3", "line 17 column 9: found '3', expected a whole number from 1 to 2"},
      {"streams 1\nstreams 1",
       "line 18 column 1: found 'streams 1', expected 'product', 'operation', 'call', or the end"},
      {"call send 2 8 1\nproduct f32 0 0 0 0 0",
       "line 18 column 1: found 'product f32 0 0 0 0 0', expected 'call', or the end"},
      {"product c64 1 1 1 1 1", "line 17 column 9: found 'c64 1 1 1 1 1', expected a data type"},
      {"product f32 0 0 0 0 0\nproduct f32 0 0 0 0 0",
       "line 18 column 9: found 'f32 0 0 0 0 0', expected a data type that has no line yet"},
      {"product f32 0 0 0 0", "line 17 column 20: found the end, expected a number from 0 to 1"},
      {"product f32 0 0 0 0 0 0", "line 17 column 23: found '0', expected the end of the line"},
      {"operation mend 1 1", "line 17 column 11: found 'mend 1 1', expected an operation of one rank"},
      {"operation all_reduce 1 1", "line 17 column 11: found 'all_reduce 1 1', expected an operation of one rank"},
      {"operation while 1 1", "line 17 column 11: found 'while 1 1', expected an operation of one rank"},
      {"operation add 1 1\noperation add 1 2", "line 18 column 15: found '1 2', expected more than 1"},
      {"operation add 1 1\noperation abs 1 2",
       "line 18 column 11: found 'abs 1 2', expected an operation of one rank not before add"},
      {"operation add 1 -1", "line 17 column 17: found '-1', expected a number from 0 to 10000"},
      {"call add 2 8 1", "line 17 column 6: found 'add 2 8 1', expected a collective or send"},
      {"call recv 2 8 1", "line 17 column 6: found 'recv 2 8 1', expected a collective or send"},
      {"call send 1 8 1", "line 17 column 11: found '1 8 1', expected a whole number from 2 to 1048576"},
      {"call send 4 8 1\ncall send 2 8 1", "line 18 column 11: found '2 8 1', expected not less than 4"},
  };
  for (const auto& c : cases) {
    const Result<Machines> machines = ParseMachines(Print(Machines()) + c.lines + "\n");
    ASSERT_FALSE(machines.ok()) << c.message;
    EXPECT_EQ(machines.status().message(), c.message);
  }
}

TEST(Machines, NamesWhatIsWrongInATextAndWhere) {
  const std::string right = Print(Machines());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    return text.replace(text.find(from), from.size(), to);
  };
  const struct {
    std::string text, message;
  } cases[] = {
      {"", "line 1 column 1: found the end, expected 'axccl-fabric 1'"},
      {"axccl-fabric 2\n", "line 1 column 1: found 'axccl-fabric 2', expected 'axccl-fabric 1'"},
      {replaced("launch_seconds", "lunch_seconds"),
       "line 4 column 1: found 'lunch_seconds 3e-06', expected 'launch_seconds'"},
      {replaced("memory_bytes 8", "memory_bytes  8"),
       "line 3 column 14: found ' 80000000000', expected a whole number from 1 to 1e+15"},
      {replaced("ranks_per_machine 8", "ranks_per_machine 8.5"),
       "line 2 column 19: found '8.5', expected a whole number from 1 to 1048576"},
      {replaced("launch_seconds 3e-06", "launch_seconds -1"),
       "line 4 column 16: found '-1', expected a number from 0 to 10"},
      {replaced("launch_seconds 3e-06", "launch_seconds nan"),
       "line 4 column 16: found 'nan', expected a number from 0 to 10"},
      {replaced("launch_seconds 3e-06", "launch_seconds"),
       "line 4 column 15: found the end, expected a number from 0 to 10"},
      {replaced("launch_seconds 3e-06\n", ""), "line 4 column 1: found 'f64_flops 6.7e+13', expected 'launch_seconds'"},
      {right + "more 1\n",
       "line 17 column 1: found 'more 1', expected 'streams', 'product', 'operation', 'call', or the end"},
      {right.substr(0, right.find("network_seconds")), "line 16 column 1: found the end, expected 'network_seconds'"},
  };
  for (const auto& c : cases) {
    const Result<Machines> machines = ParseMachines(c.text);
    ASSERT_FALSE(machines.ok()) << c.message;
    EXPECT_EQ(machines.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(machines.status().message(), c.message);
  }
}

}  // namespace
}  // namespace axccl::program
