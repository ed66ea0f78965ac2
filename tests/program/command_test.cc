// The program axccl-program as a user runs it: output, errors and exit status. AXCCL_PROGRAM is its path.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/harness/command.h"
#include "tests/harness/folder.h"
#include "tests/harness/vectors.h"
#include "tests/program/jax_programs.h"

namespace axccl::program {
namespace {

using harness::Outcome;

Outcome RunProgram(const std::string& arguments) {
  return harness::RunCommand(std::string("timeout 100 ") + AXCCL_PROGRAM + " " + arguments);
}

class CommandTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  harness::Folder folder_;
};

constexpr char kModule[] =
    "module @sum attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n"
    "    %0 = \"stablehlo.all_reduce\"(%arg0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = "
    "#stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids}> ({\n"
    "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
    "      %1 = stablehlo.add %a, %b : tensor<f32>\n"
    "      stablehlo.return %1 : tensor<f32>\n"
    "    }) : (tensor<4xf32>) -> tensor<4xf32>\n"
    "    return %0 : tensor<4xf32>\n"
    "  }\n"
    "}\n";
constexpr char kSum[] =
    "axccl-program 1\nranks 2\npart main on [0,1]\n  argument %0 f32[4]\n"
    "  %1 f32[4] = all_reduce %0 fold=add groups=[[0,1]] channel=1\n  return %1\n";

TEST_F(CommandTest, ImportsChecksAndHashes) {
  const std::string module = Write("sum.mlir", kModule), sum = Write("sum.axp", kSum);
  Outcome o = RunProgram("import " + module);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, kSum);
  o = RunProgram("import - < " + module);
  EXPECT_EQ(o.text, kSum);
  o = RunProgram("check " + sum);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, "right\n");
  o = RunProgram("hash " + sum);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text.size(), 33u) << o.text;
}

// Every collective, messages in both directions, groups in another order, loops of some ranks, types, ranks without a
// part, and values that die at once.
const std::map<std::string, std::string>& Programs() {
  static const auto* const programs = new std::map<std::string, std::string>{
      {"collectives",
       "axccl-program 1\nranks 4\npart main on [0,1,2,3]\n  argument %0 f32[4,6]\n  argument %1 bf16[8] donated\n"
       "  argument %2 i1[4]\n  %3 f32[4,12] = all_gather %0 dim=1 groups=[[2,0],[1,3]] channel=0\n"
       "  %4 f32[4,6], %5 f32[4,6] = all_reduce %0 %0 fold=add groups=[[3,2,1,0]] channel=1\n"
       "  %6 bf16[8] = all_reduce %1 fold=add groups=[[0,1,2,3]] channel=1\n"
       "  %7 i1[4] = all_reduce %2 fold=xor groups=[[0,1],[2,3]] channel=2\n"
       "  %8 i1[4] = all_reduce %2 fold=and groups=[[0,1],[2,3]] channel=2\n"
       "  %9 f32[2,6] = reduce_scatter %4 fold=max dim=0 groups=[[0,3],[1,2]] channel=3\n"
       "  %10 f32[2,12] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,2],[3,1]] channel=4\n"
       "  %11 f32[4,6] = collective_broadcast %0 groups=[[2,0,3]] channel=5\n"
       "  %12 bf16[8] = collective_permute %1 pairs=[[0,1],[1,3],[3,0]] channel=6\n"
       "  %15 i32[2] = constant value=[1,0]\n"
       "  %16 f32[4,6], %17 bf16[8] = collective_broadcast_from %0 %1 %15 groups=[[3,1]] channel=7\n"
       "  %18 bf16[8] = collective_reduce %1 fold=add groups=[[1,3,2]] channel=8\n"
       "  %19 f32[4,6], %20 f32[4,6] = collective_reduce_to %0 %4 %15 fold=add groups=[[2,1],[0,3]] channel=9\n"
       "  %13 f32[4,3] = slice %0 starts=[0,3] limits=[4,6] strides=[1,1]\n  %14 u32[] = partition_id\n"
       "  return %3 %5 %6 %7 %8 %9 %10 %11 %12 %14 %16 %17 %18 %19 %20\n"},
      {"exchange",
       "axccl-program 1\nranks 2\npart main on [0,1]\n  argument %0 i32[3]\n  %1 = send %0 pairs=[[0,1],[1,0]] "
       "channel=1\n"
       "  %2 i32[3] = add %0 %0\n  %3 = send %2 pairs=[[0,1],[1,0]] channel=1\n"
       "  %4 i32[3] = recv pairs=[[0,1],[1,0]] channel=1\n  %5 i32[3] = recv pairs=[[0,1],[1,0]] channel=1\n"
       "  return %4 %5\n"},
      {"stages",
       "axccl-program 1\nranks 5\npart first on [0,1]\n  argument %0 f32[8,8]\n  argument %1 f32[8,8]\n"
       "  %2 i32[] = constant value=0\n  %3 i32[], %4 f32[8,8] = while %2 %0\n  cond\n    argument %5 i32[]\n"
       "    argument %6 f32[8,8]\n    %7 i32[] = constant value=3\n    %8 i1[] = compare %5 %7 direction=LT\n    "
       "return %8\n"
       "  body\n    argument %9 i32[]\n    argument %10 f32[8,8]\n    %11 i32[] = constant value=1\n"
       "    %12 i32[] = add %9 %11\n    %13 f32[8,8] = dot %10 %1\n"
       "    %14 f32[8,8] = all_reduce %13 fold=add groups=[[0,1]] channel=1\n    %15 = free %13\n    return %12 %14\n"
       "  %16 = send %4 pairs=[[0,2],[1,4]] channel=2\n  return %4\n"
       "part second on [2,4]\n  %0 f32[8,8] = recv pairs=[[0,2],[1,4]] channel=2\n  %1 f32[] = constant value=0.5\n"
       "  %2 f32[8] = reduce %0 %1 fold=max dims=[1]\n  return %2\n"},
      {"branches",
       "axccl-program 1\nranks 3\npart main on [0,1,2]\n  argument %0 i64[5]\n  argument %1 i1[]\n  %2 i64[5] = if "
       "%1\n  then\n"
       "    %3 i64[5] = all_reduce %0 fold=mul groups=[[1,0,2]] channel=9\n    return %3\n  else\n    return %0\n"
       "  %4 i64[5] = negate %2\n  return %2 %4 %0\n"}};
  return *programs;
}

TEST_F(CommandTest, RunsWhatTheReferenceGives) {
  for (const auto& [name, text] : Programs()) {
    SCOPED_TRACE(name);
    const std::string file = Write(name + ".axp", text);
    ASSERT_EQ(RunProgram("check " + file).text, "right\n");
    for (const char* how : {"", " --processes"}) {
      const Outcome o = RunProgram("run " + file + how + " --seed 4 --against reference");
      EXPECT_EQ(o.exit, 0);
      EXPECT_EQ(o.text, "equal to reference\n");
    }
  }
}

// Files of tensors have what a run got and gave; with the same inputs it gives the same.
TEST_F(CommandTest, WritesAndReadsTensors) {
  const std::string file = Write("sum.axp", kSum), tensors = Path("sum.json"), again = Path("again.json");
  ASSERT_EQ(RunProgram("run " + file + " --seed 3 --outputs " + tensors).text, "2 ranks have run\n");
  const std::string inputs = " --inputs " + tensors + " --against " + tensors;
  Outcome o = RunProgram("reference " + file + inputs + " --outputs " + again);
  EXPECT_EQ(o.text, "equal to " + tensors + "\n");
  EXPECT_EQ(harness::Contents(Path("sum.bin")), harness::Contents(Path("again.bin")));
  EXPECT_EQ(harness::Contents(Path("sum.bin")).size(), 64u);
  o = RunProgram("run " + file + " --seed 4 --against " + tensors);
  EXPECT_EQ(o.exit, 1);
  EXPECT_NE(o.text.find("differs from " + tensors + " in rank 0, output 0: element ["), std::string::npos) << o.text;
  o = RunProgram("run " + Write("other.axp", Programs().at("exchange")) + inputs);
  EXPECT_EQ(o.exit, 2);
  EXPECT_NE(o.text.find("rank 0: input 0 is f32[4], and argument %0 is i32[3]"), std::string::npos) << o.text;
}

TEST_F(CommandTest, WritesAndReadsTensorsWithoutElements) {
  const std::string file = Write("empty.axp",
                                 "axccl-program 1\nranks 1\npart main on [0]\n  argument %0 f32[4,0,3]\n"
                                 "  argument %1 f32[0,2]\n  %2 f32[4,0,3] = negate %0\n  return %2 %1\n");
  const std::string tensors = Path("empty.json");
  ASSERT_EQ(RunProgram("run " + file + " --outputs " + tensors).text, "1 ranks have run\n");
  EXPECT_EQ(RunProgram("run " + file + " --inputs " + tensors + " --against " + tensors).text,
            "equal to " + tensors + "\n");
}

// "rank 0: peak 48 bytes" of all ranks, as text says of each, or of "ranks 0 to 3".
std::map<int, uint64_t> PeaksIn(const std::string& text) {
  std::map<int, uint64_t> peaks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("peak ");
    if (at == std::string::npos) continue;
    int first = 0, last = 0;
    if (std::sscanf(line.c_str(), " ranks %d to %d", &first, &last) != 2) {
      EXPECT_EQ(std::sscanf(line.c_str(), " rank %d", &first), 1) << line;
      last = first;
    }
    for (int rank = first; rank <= last; ++rank) peaks[rank] = std::stoull(line.substr(at + 5));
  }
  return peaks;
}

// To the byte. Ranks without a part allocate nothing.
void ExpectPeaksAsSimulated(const std::string& file, const std::string& options) {
  std::map<int, uint64_t> run = PeaksIn(RunProgram("run " + file + " --report " + options).text);
  EXPECT_FALSE(run.empty());
  std::map<int, uint64_t> then = PeaksIn(RunProgram("simulate " + file + " --branch then").text);
  std::map<int, uint64_t> other = PeaksIn(RunProgram("simulate " + file + " --branch else").text);
  for (const auto& [rank, peak] : run) {
    if (peak == 0) then[rank] = other[rank] = 0;
  }
  EXPECT_EQ(run, run == other ? other : then);
}

TEST_F(CommandTest, AllocatesWhatTheSimulationPredicts) {
  for (const auto& [name, text] : Programs()) {
    SCOPED_TRACE(name);
    const std::string file = Write(name + ".axp", text);
    ExpectPeaksAsSimulated(file, "--seed 4");
    ExpectPeaksAsSimulated(file, "--seed 5 --processes");
  }
}

TEST_F(CommandTest, Simulates) {
  const std::string sum = Write("sum.axp", kSum), trace = Path("sum.json"), fabric = Path("slow.fabric");
  // 2 x 16 bytes x 1/2 / 3.125e9 bytes/s
  Outcome o = RunProgram("simulate " + sum + " --model distir --trace " + trace);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text,
            "time 0.00512 us\npart main\n  ranks 0 to 1: compute 0 us (0.0 %), exposed communication 0.00512 us "
            "(100.0 %), idle 0 us (0.0 %), peak 32 bytes at %1 all_reduce\n");
  const std::string json = harness::Contents(trace);
  for (const char* part : {"{\"traceEvents\":[\n", "\"rank 1\"", "\"communication\"",
                           "{\"name\":\"%1 all_reduce\",\"cat\":\"communication\",\"ph\":\"X\",\"pid\":1,\"tid\":2,"
                           "\"ts\":0,\"dur\":0.00512,\"args\":{\"id\":1}}",
                           "\"bytes\":32", "\n]}\n"})
    EXPECT_NE(json.find(part), std::string::npos) << part << json;
  const std::string svg = Path("sum.svg");
  EXPECT_EQ(RunProgram("simulate " + sum + " --model distir --svg " + svg).text, o.text);
  EXPECT_NE(harness::Contents(svg).find("<title>%1 all_reduce: 5.12 ns from 0 ns</title>"), std::string::npos);
  // A launch of 1 ms, and next to nothing else.
  Write("slow.fabric",
        "axccl-fabric 1\nranks_per_machine 2\nmemory_bytes 16\nlaunch_seconds 1e-3 # slow\nf64_flops 1e12\n"
        "f32_flops 1e12\nf16_flops 1e12\ninteger_flops 1e12\nelement_flops 1e12\nmemory_bytes_per_second 1e18\n"
        "link_bytes_per_second 1e18\n\nnic_bytes_per_second 1e18\nop_seconds 0\nsignal_seconds 0\nmessage_seconds 0\n"
        "network_seconds 1e-12\n");
  o = RunProgram("simulate " + sum + " --fabric " + fabric);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text.substr(0, 13), "time 1000 us\n") << o.text;
  EXPECT_EQ(RunProgram("simulate - < " + sum).exit, 0);
}

// Rank, line, name and ID of all operations, and the live bytes of each rank in their order; not the times, and
// all messages that are sent on one line.
std::vector<std::string> WhatHappensIn(const std::string& trace) {
  std::vector<std::string> events;
  std::istringstream lines(harness::Contents(trace));
  for (std::string line; std::getline(lines, line);) {
    const size_t from = line.find("\"ts\":"), to = line.find("\"args\"");
    if (from != std::string::npos) line.erase(from, to - from);
    while (!line.empty() && line.back() == ',') line.pop_back();
    const size_t at = line.find("\"tid\":");
    if (at != std::string::npos && line.find(" send") != std::string::npos) line.replace(at + 6, 1, "2");
    if (line.find("communication beside it") == std::string::npos) events.push_back(line);
  }
  std::stable_sort(events.begin(), events.end(), [](const std::string& a, const std::string& b) {
    const auto rank = [](const std::string& text) {
      const size_t at = text.find("\"pid\":");
      return at == std::string::npos ? -1 : std::stoi(text.substr(at + 6));
    };
    return rank(a) < rank(b);
  });
  return events;
}

TEST_F(CommandTest, TracesOfRunAndSimulationHaveTheSameOperations) {
  const std::string simulated = Path("simulated.json"), run = Path("run.json");
  for (const auto& [name, text] : Programs()) {
    SCOPED_TRACE(name);
    const std::string file = Write(name + ".axp", text);
    for (const char* how : {"", " --processes", " --processes --repeat 2"}) {
      ASSERT_EQ(RunProgram("run " + file + how + " --seed 4 --trace " + run).exit, 0);
      const std::vector<std::string> happened = WhatHappensIn(run);
      EXPECT_GT(happened.size(), 10u);
      ASSERT_EQ(RunProgram("simulate " + file + " --branch then --trace " + simulated).exit, 0);
      if (happened == WhatHappensIn(simulated)) continue;
      ASSERT_EQ(RunProgram("simulate " + file + " --branch else --trace " + simulated).exit, 0);
      EXPECT_EQ(happened, WhatHappensIn(simulated));
    }
  }
}

// The lines of a replay without its times.
std::string SitesIn(const std::string& replay) {
  std::string sites;
  std::istringstream lines(replay);
  for (std::string line; std::getline(lines, line);) {
    const size_t times = line.find(", median ");
    if (times != std::string::npos) {
      double median = -1, slowest = -1;
      int rank = -1;
      EXPECT_EQ(std::sscanf(line.c_str() + times, ", median %lf us, slowest rank %d %lf us", &median, &rank, &slowest),
                3)
          << line;
      EXPECT_GT(median, 0);
      EXPECT_GE(slowest, median);
    }
    sites += line.substr(0, std::min(times, line.find(" us, the median of "))) + "\n";
  }
  return sites.substr(0, sites.find("a round: ")) + (sites.find("a round: ") == std::string::npos ? "no round" : "");
}

TEST_F(CommandTest, ReplaysWhatIsBetweenRanks) {
  for (const std::string how : {" --repeat 2", " --repeat 3 --processes"}) {
    Outcome o = RunProgram("replay " + Write("stages.axp", Programs().at("stages")) + how);
    EXPECT_EQ(o.exit, 0);
    EXPECT_EQ(SitesIn(o.text),
              "part first\n  %14 all_reduce f32[8,8] -> f32[8,8] groups=[[0,1]]: 3 calls\n"
              "  %16 send f32[8,8] pairs=[[0,2],[1,4]]: 1 call\n"
              "part second\n  %0 recv -> f32[8,8] pairs=[[0,2],[1,4]]: 1 call\n");
    const std::string branches = Write("branches.axp", Programs().at("branches"));
    EXPECT_EQ(SitesIn(RunProgram("replay " + branches + how + " --branch then").text),
              "part main\n  %3 all_reduce i64[5] -> i64[5] groups=[[1,0,2]]: 1 call\n");
    EXPECT_EQ(SitesIn(RunProgram("replay " + branches + how + " --branch else").text), "part main\n");
    o = RunProgram("replay " + Write("collectives.axp", Programs().at("collectives")) + how);
    for (const char* site : {"%4 all_reduce f32[4,6] f32[4,6] -> f32[4,6] f32[4,6] groups=[[3,2,1,0]]: 1 call,",
                             "%12 collective_permute bf16[8] -> bf16[8] pairs=[[0,1],[1,3],[3,0]]: 1 call,",
                             "%11 collective_broadcast f32[4,6] -> f32[4,6] groups=[[2,0,3]]: 1 call,"})
      EXPECT_NE(o.text.find(site), std::string::npos) << o.text;
    EXPECT_EQ(SitesIn(o.text).find("slice"), std::string::npos);
  }
  // Rounds that do not follow from constants.
  std::string text = Programs().at("stages");
  const std::string constant = "%7 i32[] = constant value=3\n";
  text.replace(text.find(constant), constant.size(), "%7 i32[] = add %5 %5\n");
  const std::string loop = Write("loop.axp", text);
  ASSERT_EQ(RunProgram("check " + loop).text, "right\n");
  Outcome o = RunProgram("replay " + loop);
  EXPECT_EQ(o.exit, 1);
  EXPECT_NE(o.text.find("must be told (--trips)"), std::string::npos) << o.text;
  o = RunProgram("replay " + loop + " --trips 5");
  EXPECT_NE(o.text.find("%14 all_reduce f32[8,8] -> f32[8,8] groups=[[0,1]]: 5 calls,"), std::string::npos) << o.text;
}

// Threads and processes, with the reference's operations and fast ones.
TEST_F(CommandTest, TakesTheTimeOfSteps) {
  const std::string sum = Write("sum.axp", kSum);
  for (const std::string how : {"", " --processes", " --report"}) {
    const Outcome o = RunProgram("run " + sum + how + " --repeat 5 --against reference");
    EXPECT_EQ(o.exit, 0) << o.text;
    double median = 0, fastest = 0, slowest = 0;
    const char* const line = std::strstr(o.text.c_str(), "step ");
    ASSERT_NE(line, nullptr) << o.text;
    EXPECT_EQ(
        std::sscanf(line, "step %lf us, median of 5, fastest %lf us, slowest %lf us", &median, &fastest, &slowest), 3)
        << o.text;
    EXPECT_GT(fastest, 0);
    EXPECT_LE(fastest, median);
    EXPECT_LE(median, slowest);
    EXPECT_EQ(o.text.find("rank 0: peak 32 bytes\n") != std::string::npos, how == " --report") << o.text;
  }
  EXPECT_EQ(RunProgram("run " + sum).text, "2 ranks have run\n");
}

// A rank without a part is in the barriers, too.
TEST_F(CommandTest, RunsProductsByOpenBlas) {
  const std::string product =
      Write("product.axp",
            "axccl-program 1\nranks 3\npart main on [0,2]\n  argument %0 f32[3,4]\n  argument %1 "
            "f32[4,5]\n  %2 f32[3,5] = dot %0 %1\n  %3 f32[3,5] = all_reduce %2 fold=add "
            "groups=[[0,2]] channel=1\n  return %3\n");
  const Outcome o = RunProgram("run " + product + " --blas --repeat 3 --against reference --tolerance 1e-6");
  if (o.text.find("libopenblas-dev") != std::string::npos) {
    EXPECT_EQ(o.exit, 2);
    GTEST_SKIP() << o.text;
  }
  EXPECT_EQ(o.exit, 0) << o.text;
  EXPECT_NE(o.text.find("median of 3"), std::string::npos) << o.text;
  EXPECT_EQ(RunProgram("run " + product + " --blas --processes --against reference --tolerance 1e-6").exit, 0);
}

TEST_F(CommandTest, NamesWhatIsWrong) {
  const std::string sum = Write("sum.axp", kSum);
  const std::string wrong =
      Write("wrong.axp", std::string(kSum).replace(std::string(kSum).find("f32[4] ="), 6, "f32[5]"));
  const std::string broken = Write("broken.json", "{\"devices\": 2, \"data\": \"sum.axp\"}");
  const std::string large =
      Write("large.json",
            "{\"devices\": 1, \"byte_order\": \"little\", \"data\": \"sum.axp\", \"inputs\": [{\"dtype\": "
            "\"float32\", \"shape\": [4611686018427387904, 8], \"offsets\": [0]}], \"outputs\": []}");
  const std::string fraction =
      Write("fraction.json",
            "{\"devices\": 1, \"byte_order\": \"little\", \"data\": \"sum.axp\", \"inputs\": "
            "[{\"dtype\": \"float32\", \"shape\": [2.7], \"offsets\": [0]}], \"outputs\": []}");
  struct Case {
    std::string arguments;
    int exit;
    std::string text;
  };
  const Case cases[] = {
      {"", 0, "usage: axccl-program"},
      {"help", 0, "usage: axccl-program"},
      {"compile x", 2, "unknown command 'compile'"},
      {"run", 2, "run has no file"},
      {"run a b", 2, "two files, 'a' and 'b'"},
      {"run --fast 1 a", 2, "--fast: no such option"},
      {"run a --seed", 2, "--seed needs a value"},
      {"run a --seed x", 2, "--seed is 'x'"},
      {"run a --tolerance 2", 2, "--tolerance is '2'"},
      {"reference a --processes", 2, "--processes is an option of replay and run"},
      {"replay a --report", 2, "--report is an option of run"},
      {"replay a --repeat 0", 2, "--repeat is '0'; give a number of rounds from 1"},
      {"replay a --seed 1", 2, "--seed is an option of reference and run"},
      {"replay a --svg b", 2, "--svg is an option of simulate"},
      {"replay a --fast 1", 2, "--fast: no such option"},
      {"replay " + wrong, 1, "%1 all_reduce"},
      {"simulate a --repeat 1", 2, "--repeat is an option of replay and run"},
      {"replay a --blas", 2, "--blas is an option of run"},
      {"reference a --blas", 2, "--blas is an option of run"},
      {"reference a --repeat 2", 2, "--repeat is an option of replay and run"},
      {"calibrate --ranks 65", 2, "--ranks is '65'; give a number from 1 to 64"},
      {"calibrate --seed 1", 2, "--seed is an option of reference and run"},
      {"calibrate a", 2, "calibrate takes no file"},
      {"run a --repeat 0", 2, "--repeat is '0'; give a number of rounds from 1"},
      {"check a --seed 1", 2, "--seed is an option of reference and run"},
      {"run a --trips 1", 2, "--trips is an option of replay and simulate"},
      {"reference a --trace b", 2, "--trace is an option of run and simulate"},
      {"check a --trips 1", 2, "--trips is an option of replay and simulate"},
      {"simulate a --seed 1", 2, "--seed is an option of reference and run"},
      {"simulate a --report", 2, "--report is an option of run"},
      {"simulate a --trips x", 2, "--trips is 'x'"},
      {"simulate a --trips -1", 2, "--trips is '-1'"},
      {"simulate a --branch both", 2, "--branch is 'both'"},
      {"simulate a --model other", 2, "--model is 'other'; there is only distir"},
      {"simulate a --model distir --fabric b", 2, "--fabric and --model exclude each other"},
      {"simulate a --fast 1", 2, "--fast: no such option"},
      {"simulate " + sum + " --fabric /nowhere/a.fabric", 2, "/nowhere/a.fabric"},
      {"simulate " + sum + " --fabric " + sum, 2, "sum.axp: line 1 column 1: found 'axccl-program 1'"},
      {"simulate " + sum + " --trace " + sum + "/a.json", 2, "sum.axp"},
      {"simulate " + sum + " --svg " + sum + "/a.svg", 2, "sum.axp"},
      {"run a --svg b", 2, "--svg is an option of simulate"},
      {"simulate " + wrong, 1, "%1 all_reduce"},
      {"simulate " + Write("if.axp", Programs().at("branches")), 1, "must be told which branch to take (--branch)"},
      {"check /nowhere/a.axp", 2, "open(/nowhere/a.axp): No such file"},
      {"check " + Path("broken.json"), 1, "line 1 column 1"},
      {"import " + sum, 1, "line 1 column 1"},
      {"check " + wrong, 1, "%1 all_reduce: result %1 has type f32[5], expected f32[4]"},
      {"run " + wrong, 1, "%1 all_reduce"},
      {"run " + sum + " --inputs /nowhere/a.json", 2, "open(/nowhere/a.json): No such file"},
      {"run " + sum + " --inputs " + broken, 2, "is no file of tensors"},
      {"run " + sum + " --inputs " + large, 2, "larger than the data"},
      {"run " + sum + " --inputs " + fraction, 2, "shape is [2.7], and must be of whole numbers"},
      {"run " + sum + " --outputs " + Path("\xff\xfe.json"), 2, "which is not UTF-8; give another name"},
      {"run " + sum + " --outputs /proc/nowhere/a.json", 2, "/proc/nowhere"},
  };
  for (const Case& c : cases) {
    const Outcome o = RunProgram(c.arguments);
    EXPECT_EQ(o.exit, c.exit) << c.arguments;
    EXPECT_NE(o.text.find(c.text), std::string::npos) << c.arguments << ": " << o.text;
  }
}

// What a user names stays what it is: a link, its target's permissions, a device. New files have those of the umask.
TEST_F(CommandTest, WritesIntoWhatTheOptionsForOutputsName) {
  const std::string sum = Write("sum.axp", kSum), mlp = Path("mlp.axp");
  ASSERT_EQ(RunProgram("make mlp > " + mlp).exit, 0);
  for (const std::string& command :
       {"simulate " + sum + " --trace ", "simulate " + sum + " --svg ", "run " + sum + " --trace ",
        "run " + sum + " --outputs ", "search " + mlp + " --devices 2 --emit ",
        "search " + mlp + " --devices 2 --svg "}) {
    SCOPED_TRACE(command);
    const harness::Folder folder;
    const std::string target = folder.Path("target"), link = folder.Path("link"), fresh = folder.Path("fresh");
    std::ofstream(target) << "old";
    ASSERT_EQ(chmod(target.c_str(), 0640), 0);
    ASSERT_EQ(symlink("target", link.c_str()), 0);
    EXPECT_EQ(RunProgram(command + link).exit, 0);
    struct stat facts;
    ASSERT_EQ(lstat(link.c_str(), &facts), 0);
    EXPECT_TRUE(S_ISLNK(facts.st_mode));
    ASSERT_EQ(stat(target.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0640u);
    EXPECT_GT(harness::Contents(target).size(), 50u);
    EXPECT_EQ(harness::RunCommand("umask 027; " + std::string(AXCCL_PROGRAM) + " " + command + fresh).exit, 0);
    ASSERT_EQ(stat(fresh.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0640u);
    const Outcome nowhere = RunProgram(command + folder.Path("none/file"));
    EXPECT_EQ(nowhere.exit, 2);
    EXPECT_NE(nowhere.text.find("to write: No such file"), std::string::npos) << nowhere.text;
    EXPECT_NE(lstat(folder.Path("none").c_str(), &facts), 0);
    if (command.find("--outputs") != std::string::npos) continue;  // writes a second file, beside the named one
    const Outcome full = RunProgram(command + "/dev/full");
    EXPECT_EQ(full.exit, 2);
    EXPECT_NE(full.text.find("write(/dev/full): No space left"), std::string::npos) << full.text;
  }
}

// Programs of JAX: what runs is the reference, bit for bit, which is close to what JAX computed.
TEST_F(CommandTest, RunsProgramsOfJax) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::string vectors = std::string(std::getenv("AXCCL_VECTORS")) + "/stablehlo_programs/";
  for (const std::string& name : JaxProgramNames()) {
    SCOPED_TRACE(name);
    const std::string file = Path(name + ".axp"), facts = vectors + name + ".json";
    ASSERT_EQ(RunProgram("import " + vectors + name + ".mlir > " + file).exit, 0);
    for (const char* how : {"", " --processes"}) {
      const Outcome o = RunProgram("run " + file + how + " --inputs " + facts + " --against reference");
      EXPECT_EQ(o.text, "equal to reference\n");
    }
    ExpectPeaksAsSimulated(file, "--inputs " + facts);
    const Outcome o = RunProgram("run " + file + " --inputs " + facts + " --tolerance 1e-5 --against " + facts);
    EXPECT_EQ(o.text, "equal to " + facts + "\n");
  }
}

}  // namespace
}  // namespace axccl::program
