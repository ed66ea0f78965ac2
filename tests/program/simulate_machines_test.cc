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
      {right + "more 1\n", "line 17 column 1: found 'more 1', expected the end"},
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
