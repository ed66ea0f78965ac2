// A program whose ranks are processes of a job, as torchrun, mpirun and srun start them. AXCCL_PROGRAM is the path of
// axccl-program.
#include "tools/axccl-program/job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/command.h"
#include "tests/harness/folder.h"
#include "tests/harness/free_port.h"
#include "tests/harness/run_ranks.h"

namespace axccl::tools {
namespace {

using harness::Outcome;
using Variables = std::map<std::string, std::string>;

Result<Job> Find(int ranks, const Variables& variables) {
  return FindJob(ranks, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
std::string ErrorOf(int ranks, const Variables& variables) {
  const Result<Job> job = Find(ranks, variables);
  if (job.ok()) return "";
  EXPECT_EQ(job.status().code(), Code::kInvalidUsage);
  return std::string(job.status().message());
}

const Variables kTorchrun = {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Job, RanksInTheOrderOfProcesses) {
  const Job none = Find(6, {}).value();
  EXPECT_EQ(none.processes, 1);
  EXPECT_EQ(none.here.first, 0);
  EXPECT_EQ(none.here.count, 6);
  EXPECT_EQ(Find(6, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})->here.count, 6);
  const Job job = Find(6, kTorchrun).value();
  EXPECT_EQ(job.processes, 3);
  EXPECT_EQ(job.here.first, 4);
  EXPECT_EQ(job.here.count, 2);
  EXPECT_EQ(job.meeting_point, "10.0.0.1:29501");
  EXPECT_EQ(Find(3, kTorchrun)->here.count, 1);
  EXPECT_EQ(Find(3, With(kTorchrun, "NCCL_COMM_ID", "10.0.0.2:7"))->meeting_point, "") << "it is set already";
}

TEST(Job, NamesWhatIsMissing) {
  EXPECT_EQ(ErrorOf(3, Without(kTorchrun, "RANK")).find("WORLD_SIZE is set without RANK; "), 0u);
  EXPECT_EQ(ErrorOf(3, Without(kTorchrun, "WORLD_SIZE")).find("RANK is set without WORLD_SIZE; "), 0u);
  EXPECT_EQ(ErrorOf(3, Without(kTorchrun, "MASTER_PORT")).find("MASTER_ADDR is set without MASTER_PORT; "), 0u);
  EXPECT_EQ(ErrorOf(3, {{"RANK", "0"}, {"WORLD_SIZE", "3"}}).find("RANK is set without MASTER_ADDR and MASTER_PORT"),
            0u);
  EXPECT_EQ(ErrorOf(3, {{"OMPI_COMM_WORLD_RANK", "0"}}).find("OMPI_COMM_WORLD_RANK is set without OMPI_COMM_WORLD_S"),
            0u);
  EXPECT_EQ(ErrorOf(3, {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}).find("SLURM_PROCID is set without SLURM_NTA"),
            0u);
  EXPECT_EQ(Find(4, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})->processes, 1) << "a batch script";
  for (const int ranks : {2, 4, 8})
    EXPECT_EQ(ErrorOf(ranks, kTorchrun).find("torchrun has started 3 processes, and the program has "), 0u) << ranks;
  const Variables mpi = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  EXPECT_NE(ErrorOf(2, mpi).find("set NCCL_COMM_ID to an address of process 0"), std::string::npos);
  EXPECT_EQ(Find(2, With(mpi, "NCCL_COMM_ID", "10.0.0.2:7"))->here.first, 1);
}

TEST(Job, FilesOfEachProcess) {
  const Job job = Find(6, kTorchrun).value();
  EXPECT_EQ(NameHere("--outputs", "a/out.{rank}.json", job).value(), "a/out.4.json");
  EXPECT_EQ(NameHere("--outputs", "", job).value(), "");
  EXPECT_NE(NameHere("--outputs", "out.json", job).status().message().find("put {rank} into the name"),
            std::string::npos);
  EXPECT_EQ(NameHere("--outputs", "out.json", Find(6, {}).value()).value(), "out.json");
}

#ifdef AXCCL_PROGRAM

// Neighbours meet, then all; rank 3 does what the text says in between.
std::string ProgramOf(const std::string& in_between) {
  return "axccl-program 1\nranks 4\npart main on [0,1,2,3]\n  argument %0 f32[4]\n"
         "  %1 f32[4] = all_reduce %0 fold=add groups=[[0,1],[2,3]] channel=1\n" +
         in_between + "  %30 f32[4] = all_reduce %1 fold=add groups=[[3,1,2,0]] channel=2\n  return %1 %30\n";
}
// More memory than there is.
constexpr char kHuge[] =
    "  %2 u32[] = partition_id\n  %3 u32[] = constant value=3\n  %4 i1[] = compare %2 %3 direction=EQ\n"
    "  %5 f32[4] = if %4\n  then\n    %6 f32[4,1152921504606846] = broadcast_in_dim %1 dims=[0]\n"
    "    %7 f32[4,1] = slice %6 starts=[0,0] limits=[4,1] strides=[1,1]\n    %8 f32[4] = reshape %7\n    return %8\n"
    "  else\n    return %1\n";

class JobTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.Path(name)) << text;
    return folder_.Path(name);
  }
  // Of each process, whose number is $P in `arguments`. The variables: of all, and with the name of that of the number.
  std::vector<Outcome> Run(int processes, const std::string& variables, const std::string& number,
                           const std::string& arguments) const {
    const std::string folder = folder_.path();
    const std::string all =
        harness::RunCommand("for P in $(seq 0 " + std::to_string(processes - 1) + "); do (export P " + variables + " " +
                            number + "=$P; timeout 60 " + AXCCL_PROGRAM + " " + arguments + " >" + folder +
                            "/$P.said 2>&1; " + "echo $? >" + folder + "/$P.exit) & done; wait")
            .text;
    EXPECT_EQ(all, "");
    std::vector<Outcome> outcomes;
    for (int process = 0; process < processes; ++process) {
      const std::string name = folder_.Path(std::to_string(process));
      outcomes.push_back({std::atoi(harness::Contents(name + ".exit").c_str()), harness::Contents(name + ".said")});
    }
    return outcomes;
  }
  std::vector<Outcome> RunTwo(const std::string& arguments) const {
    const std::string port = std::to_string(harness::FreePort() - 1);  // they meet at the one behind the launcher's
    return Run(2, "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port, "RANK", arguments);
  }
  const harness::Folder folder_;
};

TEST_F(JobTest, EveryLauncher) {
  const std::string arguments = "run " + Write("sum.axp", ProgramOf("")) + " --seed 7 --against reference";
  for (const Outcome& o : RunTwo(arguments)) EXPECT_EQ(o.exit, 0) << o.text;
  const auto meeting = [] { return " NCCL_COMM_ID=127.0.0.1:" + std::to_string(harness::FreePort()); };
  std::vector<Outcome> all = Run(4, "OMPI_COMM_WORLD_SIZE=4" + meeting(), "OMPI_COMM_WORLD_RANK", arguments);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(all[rank].text, "rank " + std::to_string(rank) + ": equal to reference\n");
  all = Run(2, "SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_NTASKS=2" + meeting(), "SLURM_PROCID", arguments);
  EXPECT_EQ(all[0].text, "ranks 0 to 1: equal to reference\n");
  EXPECT_EQ(all[1].text, "ranks 2 to 3: equal to reference\n");
}

TEST_F(JobTest, FilesReportsAndDifferences) {
  const std::string file = Write("sum.axp", ProgramOf("")), out = folder_.Path("out.{rank}.json");
  std::vector<Outcome> all = RunTwo("run " + file + " --report --repeat 2 --outputs " + out);
  EXPECT_EQ(all[1].text.find("rank 2: peak 48 bytes\nrank 3: peak 48 bytes\nranks 2 to 3: step "), 0u) << all[1].text;
  EXPECT_NE(all[1].text.find("\nranks 2 to 3: 2 ranks have run\n"), std::string::npos) << all[1].text;
  all = RunTwo("run " + file + " --against " + out);
  EXPECT_EQ(all[0].text, "ranks 0 to 1: equal to " + folder_.Path("out.0.json") + "\n");
  EXPECT_EQ(all[1].text, "ranks 2 to 3: equal to " + folder_.Path("out.2.json") + "\n");
  // A file of all ranks serves each process, too.
  const std::string whole = folder_.Path("whole.json");
  ASSERT_EQ(harness::RunCommand(std::string(AXCCL_PROGRAM) + " reference " + file + " --outputs " + whole).exit, 0);
  all = RunTwo("run " + file + " --inputs " + whole + " --against " + whole);
  EXPECT_EQ(all[0].exit + all[1].exit, 0) << all[0].text << all[1].text;
  all = RunTwo("run " + file + " --seed 2 --against " + whole);
  EXPECT_EQ(all[0].exit, 1);
  EXPECT_EQ(all[0].text.find("axccl-program: differs from " + whole + " in rank 0, output 0: element [0] is "), 0u);
  EXPECT_EQ(all[0].text.find("the first operation"), std::string::npos) << "each is what the reference gives";
  EXPECT_EQ(all[1].exit, 1);
  EXPECT_EQ(all[1].text, "axccl-program: ranks 2 to 3: the job's outputs differ; the process of rank 0 says where\n");
  all = RunTwo("replay " + file);
  EXPECT_EQ(all[1].text.find("ranks 2 to 3:\npart main\n  %1 all_reduce f32[4]"), 0u) << all[1].text;
}

// Products of 3 terms, and then of 5 and 7, on ranks that add their results up.
constexpr char kProducts[] =
    "axccl-program 1\nranks 4\npart main on [0,1,2,3]\n  argument %0 f32[2,3]\n  argument %1 f32[3,5]\n"
    "  argument %2 f32[5,7]\n  argument %3 f32[7,2]\n  %4 f32[2,5] = dot %0 %1\n  %5 f32[2,7] = dot %4 %2\n"
    "  %6 f32[2,7] = all_reduce %5 fold=add groups=[[0,1,2,3]] channel=1\n  %7 f32[2,2] = dot %6 %3\n"
    "  return %7 %4\n";
// Ranks 0 and 1 send a product to 2 and 3, which have fewer operations before they get it.
constexpr char kStages[] =
    "axccl-program 1\nranks 4\npart first on [0,1]\n  argument %0 f32[2,3]\n  argument %1 f32[3,5]\n"
    "  %2 f32[2,3] = add %0 %0\n  %3 f32[2,5] = dot %2 %1\n  %4 = send %3 pairs=[[0,2],[1,3]] channel=1\n"
    "  return\npart second on [2,3]\n  %0 f32[2,5] = recv pairs=[[0,2],[1,3]] channel=1\n  return %0\n";

// All processes come to one verdict, and that of rank 0 says it. $P: the number of the process.
class VerdictTest : public JobTest {
 protected:
  // Of products with how many terms each process gives wrong ones.
  std::vector<Outcome> RunProducts(int processes, const std::string& program, const std::string& terms,
                                   const std::string& options) const {
    return Run(processes,
               "WORLD_SIZE=" + std::to_string(processes) +
                   " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(harness::FreePort() - 1) +
                   " LD_LIBRARY_PATH=" AXCCL_TEST_PRODUCTS " AXCCL_TEST_WRONG_TERMS=" + terms,
               "RANK", "run " + program + " --blas --seed 3 " + options);
  }
  static void ExpectFirst(const std::vector<Outcome>& all, const std::string& output, const std::string& operation) {
    for (const Outcome& o : all) EXPECT_EQ(o.exit, 1) << o.text;
    EXPECT_EQ(all[0].text.find("axccl-program: differs from " + output), 0u) << all[0].text;
    EXPECT_NE(all[0].text.find("\naxccl-program: the first operation that differs from the reference: " + operation),
              std::string::npos)
        << all[0].text;
    const size_t values = all[0].text.rfind(" is ");
    float found = 0, wanted = 0;
    EXPECT_EQ(std::sscanf(all[0].text.c_str() + values, " is %f instead of %f", &found, &wanted), 2) << all[0].text;
    EXPECT_NEAR(found, wanted + 1, 1e-4);
    for (size_t process = 1; process < all.size(); ++process)
      EXPECT_NE(all[process].text.find("the job's outputs differ; the process of rank 0 says where\n"),
                std::string::npos);
  }
};

TEST_F(VerdictTest, NothingDiffers) {
  const std::string file = Write("products.axp", kProducts);
  for (const int processes : {2, 4}) {
    for (const Outcome& o : RunProducts(processes, file, "0", "--against reference --repeat 2")) {
      EXPECT_EQ(o.exit, 0) << o.text;
      EXPECT_NE(o.text.find(": equal to reference\n"), std::string::npos) << o.text;
    }
  }
}

TEST_F(VerdictTest, NamesTheFirstOperationOfAnyRank) {
  const std::string file = Write("products.axp", kProducts);
  // Of one rank. The sum, and so each rank's last output, follows from it.
  ExpectFirst(RunProducts(4, file, "$((P==2?5:0))", "--against reference"),
              "reference in rank 0, output 0: element [1,", "rank 2, %5 dot: element [1,6] is ");
  // Of two ranks, the later one first in their order.
  ExpectFirst(RunProducts(4, file, "$((P==1?5:P==3?3:0))", "--against reference"),
              "reference in rank 0, output 0: ", "rank 3, %4 dot: element [1,4] is ");
  // The same of two ranks.
  ExpectFirst(RunProducts(4, file, "$((P==1||P==3?3:0))", "--against reference"),
              "reference in rank 0, output 0: ", "rank 1, %4 dot: element [1,4] is ");
  // What differs behind the last communication is heard of as well.
  ExpectFirst(RunProducts(2, file, "$((P==1?7:0))", "--against reference --repeat 2"),
              "reference in rank 2, output 0: element [1,1] is ", "rank 2, %7 dot: element [1,1] is ");
}

TEST_F(VerdictTest, NamesTheCauseAmongParts) {
  const std::string file = Write("stages.axp", kStages);
  ExpectFirst(RunProducts(4, file, "$((P==1?3:0))", "--against reference"),
              "reference in rank 3, output 0: element [1,4]", "rank 1, %3 dot: element [1,4] is ");
  ExpectFirst(RunProducts(2, file, "$((P==0?3:0))", "--against reference"),
              "reference in rank 2, output 0: element [1,4]", "rank 0, %3 dot: element [1,4] is ");
}

TEST_F(VerdictTest, AgainstAFile) {
  const std::string file = Write("products.axp", kProducts), whole = folder_.Path("whole.json");
  ASSERT_EQ(
      harness::RunCommand(std::string(AXCCL_PROGRAM) + " reference " + file + " --seed 3 --outputs " + whole).exit, 0);
  for (const Outcome& o : RunProducts(2, file, "0", "--against " + whole)) EXPECT_EQ(o.exit, 0) << o.text;
  ExpectFirst(RunProducts(2, file, "$((P==1?7:0))", "--against " + whole),
              whole + " in rank 2, output 0: element [1,1] is ", "rank 2, %7 dot: element [1,1] is ");
  // One of the two compares with what it does not give, although all operations are right.
  ASSERT_EQ(harness::RunCommand(std::string(AXCCL_PROGRAM) + " reference " + file + " --seed 4 --outputs " +
                                folder_.Path("other.2.json"))
                .exit,
            0);
  ASSERT_EQ(harness::RunCommand("cp " + whole + " " + folder_.Path("other.0.json")).exit, 0);
  const std::vector<Outcome> all = RunProducts(2, file, "0", "--against " + folder_.Path("other.{rank}.json"));
  EXPECT_EQ(all[0].exit + all[1].exit, 2);
  EXPECT_EQ(all[0].text.find("axccl-program: differs from " + folder_.Path("other.2.json") + " in rank 2, output 0: "),
            0u)
      << all[0].text;
  EXPECT_EQ(all[0].text.find("the first operation"), std::string::npos) << all[0].text;
}

// One process alone would wait for the others to compare.
TEST_F(VerdictTest, AllCompareOrNone) {
  const std::string file = Write("products.axp", kProducts);
  for (const Outcome& o : RunProducts(2, file, "0", "$([ $P = 1 ] && echo --against reference)")) {
    EXPECT_EQ(o.exit, 1);
    EXPECT_NE(o.text.find("has not the same program, options and inputs as rank 0"), std::string::npos) << o.text;
  }
}

TEST_F(JobTest, ARankThatFailsEndsTheOthers) {
  if (harness::TimeScale() > 1) GTEST_SKIP() << "a sanitizer ends processes that have no memory";
  const std::string file = Write("huge.axp", ProgramOf(kHuge));
  const std::vector<Outcome> all = RunTwo("run " + file);
  EXPECT_EQ(all[0].exit, 1);
  EXPECT_EQ(all[0].text.find("axccl-program: rank "), 0u) << all[0].text;
  EXPECT_EQ(all[1].exit, 1);
  EXPECT_EQ(all[1].text.find("axccl-program: rank 3 in %6 broadcast_in_dim: out of memory"), 0u) << all[1].text;
}

TEST_F(JobTest, WrongUse) {
  const std::string file = Write("sum.axp", ProgramOf(""));
  for (const Outcome& o : RunTwo("run " + file + " --seed $P")) {
    EXPECT_EQ(o.exit, 1);
    EXPECT_EQ(o.text.find("axccl-program: rank "), 0u) << o.text;
  }
  const auto complaint = [&](const std::string& options) {
    const Outcome o = RunTwo("run " + file + " " + options)[1];
    EXPECT_EQ(o.exit, 2);
    return o.text;
  };
  EXPECT_NE(complaint("--processes").find("a launcher has started 2 processes already"), std::string::npos);
  EXPECT_NE(complaint("--outputs one.json").find("each of 2 processes would write this file"), std::string::npos);
  const Outcome o = harness::RunCommand("RANK=1 timeout 60 " + std::string(AXCCL_PROGRAM) + " run " + file);
  EXPECT_EQ(o.exit, 2);
  EXPECT_EQ(o.text.find("axccl-program: RANK is set without WORLD_SIZE"), 0u) << o.text;
}

#endif

}  // namespace
}  // namespace axccl::tools
