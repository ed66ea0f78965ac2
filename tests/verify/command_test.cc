// The program axccl-plan as a user runs it: output, errors and exit status. AXCCL_PLAN_PROGRAM is its path.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "src/algo/algo.h"
#include "src/plan/text.h"
#include "tests/harness/command.h"
#include "tests/harness/folder.h"

namespace axccl {
namespace {

using harness::Outcome;

// `settings`: environment variables, "NAME=value".
Outcome RunProgram(const std::string& arguments, const std::string& settings = "") {
  return harness::RunCommand(settings + " " + AXCCL_PLAN_PROGRAM + " " + arguments);
}

// A file with `text`, removed by the destructor.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    const int fd = mkstemp(path_);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
  }
  ~TempFile() { unlink(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/axccl-plan-test-XXXXXX";
};

const char kRing[] = "--op all_reduce --algo ring --ranks 4";

std::string RingText() { return plan::Print(algo::Generate({plan::Kind::kAllReduce, 4, 0}, "ring", 1).value()); }

TEST(CommandTest, ShowsVerifiesAndHashes) {
  const std::string text = RingText();
  const std::string hash = plan::ToString(plan::HashOf(text));
  Outcome o = RunProgram(std::string("show ") + kRing);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, text);
  o = RunProgram(std::string("hash ") + kRing);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, hash + "\n");
  o = RunProgram(std::string("verify ") + kRing);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text,
            "right: ring all_reduce, 4 ranks, root 0, 1 lanes, 76 operations, staged, complete, hash " + hash + "\n");
  EXPECT_NE(RunProgram("verify --op all_reduce --algo direct --ranks 4").text.find(", in group order, hash "),
            std::string::npos);
  const TempFile file(text);
  EXPECT_EQ(RunProgram(std::string("verify ") + file.path()).text, o.text);
  EXPECT_EQ(RunProgram(std::string("verify - < ") + file.path()).text, o.text);
  EXPECT_EQ(RunProgram(std::string("hash ") + file.path()).text, hash + "\n");
}

// The example in docs/plan-format.md is a plan, and the output that it quotes is what a reader gets.
TEST(CommandTest, TheDocumentedPlanIsRight) {
  const std::string page = harness::Contents(AXCCL_TEST_SOURCE_DIR "/docs/plan-format.md"), fence = "```\n";
  const size_t begin = page.find(fence + "axccl-plan 1\n") + fence.size();
  ASSERT_GE(begin, fence.size());
  const std::string text = page.substr(begin, page.find(fence, begin) - begin);
  const Result<plan::Schedule> parsed = plan::Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(plan::Print(parsed.value()), text);
  const Outcome right = RunProgram("verify " + std::string(TempFile(text).path()));
  EXPECT_EQ(right.exit, 0);
  EXPECT_NE(page.find(fence + right.text + fence), std::string::npos) << right.text;
  const size_t wait = text.find("#2 ");
  std::string without = text;
  without.erase(wait, text.find('\n', wait) + 1 - wait);
  const Outcome wrong = RunProgram("verify " + std::string(TempFile(without).path()));
  EXPECT_EQ(wrong.exit, 1);
  EXPECT_NE(page.find(fence + wrong.text + fence), std::string::npos) << wrong.text;
}

TEST(CommandTest, TakesThePlacementOfRanks) {
  const std::string plan = "--op all_reduce --algo hierarchical --ranks 5 --machines ";
  Outcome o = RunProgram("show " + plan + "2,3");
  EXPECT_EQ(o.exit, 0);
  EXPECT_NE(o.text.find("\nranks 5\nroot 0\nmachines 0 0 1 1 1\n"), std::string::npos) << o.text;
  o = RunProgram("verify " + plan + "2,3");
  EXPECT_EQ(o.exit, 0) << o.text;
  for (const char* bad : {"2,2", "5", "1,1,1,1,1", "2,,3", "2,x", "", "2x", "x2", "2x0", "1x2x2", "1048576x1048576"}) {
    o = RunProgram("verify " + plan + "'" + bad + "'");
    EXPECT_EQ(o.exit, 2) << bad << ": " << o.text;
  }
}

TEST(CommandTest, TakesEqualMachinesByTheirNumber) {
  const std::string show = "show --op all_reduce --algo hierarchical --machines ";
  const Outcome o = RunProgram(show + "2x2,1x3");
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, RunProgram(show + "2,2,1,1,1 --ranks 7").text);
  EXPECT_NE(o.text.find("\nmachines 0 0 1 1 2 3 4\n"), std::string::npos) << o.text;
}

TEST(CommandTest, Simulates) {
  const std::string simulate = "simulate --op all_reduce --algo hierarchical --machines 8x4 --bytes 1G";
  Outcome o = RunProgram(simulate + " --lanes 2 --tile 256M");
  EXPECT_EQ(o.exit, 0) << o.text;
  const auto expect = [&o](const char* line) {
    EXPECT_NE(o.text.find(line), std::string::npos) << line << "\n" << o.text;
  };
  expect("all_reduce by hierarchical: 1073741824 bytes, 32 ranks on 4 machines, 2 lanes, 2 turns\n");
  expect(" of the link limit of 500.00 GB/s\n");
  expect("over NICs      1610612736 bytes out of a machine, 1610612736 into one\n");
  expect("simulated      8 ranks of one machine, which stands for all, ");
  EXPECT_EQ(RunProgram(simulate + " --lanes 2 --tile 256M").text, o.text);
  o = RunProgram(simulate + " --nic 1Gbit/s");
  expect(" of the link limit of 1.29 GB/s\n");
  expect("busiest        NIC ");
}

// Each figure of the fabric reaches the simulation, in every unit: four ranks of two machines, no data.
TEST(CommandTest, SimulatesTheGivenMachines) {
  const std::string barrier = "simulate --op barrier --algo hierarchical --machines 2x2 --bytes 0";
  const auto time = [](const std::string& arguments) {
    const Outcome o = RunProgram(arguments);
    const size_t at = o.text.find("\ntime ");
    return at == std::string::npos ? -1 : std::atof(o.text.c_str() + at + 6);
  };
  const std::string zero = " --op-time 0ns --signal 0us --message 0s --network 1ms";
  EXPECT_EQ(time(barrier + zero), 1000);
  EXPECT_EQ(time(barrier + zero + " --signal 1.5us"), 1003);
  EXPECT_EQ(time(barrier + zero + " --message 250ns"), 1000.5);
  // A leader's four operations; its wait for the other leader takes as long.
  EXPECT_EQ(time(barrier + zero + " --op-time 1ms"), 4000);
  const std::string copy = "simulate --op all_reduce --algo direct --ranks 1 --bytes 1000000 --op-time 0s --memory ";
  EXPECT_EQ(time(copy + "1GB/s"), 2000);
  EXPECT_EQ(RunProgram(copy + "1GB/s").text.find("link limit"), std::string::npos);
  EXPECT_EQ(time(copy + "8000Mbit/s"), 2000);
  const std::string pair = " --bytes 1000000 --op-time 0s --signal 0s --message 0s --network 1ns --memory 1000TB/s";
  EXPECT_NEAR(time("simulate --op send_recv --algo oneshot --ranks 2 --link 100MB/s" + pair), 10000, 0.1);
  EXPECT_NEAR(time("simulate --op send_recv --algo oneshot --machines 1,1 --nic 0.8Gbit/s" + pair), 10000, 0.1);
}

// Two ranks of 2 x 500,000 bytes, 1 ms for each chunk over the link, and nothing else takes time.
TEST(CommandTest, SimulatesCallersOfPlansWithSlices) {
  const std::string gather =
      "simulate --op all_gather --algo chunked_direct --ranks 2 --slices 2 --bytes 2M --link 524.288MB/s "
      "--op-time 0s --signal 0s --memory 1000000000TB/s";
  Outcome o = RunProgram(gather);
  EXPECT_EQ(o.exit, 0) << o.text;
  const auto expect = [&o](const char* line) {
    EXPECT_NE(o.text.find(line), std::string::npos) << line << "\n" << o.text;
  };
  expect("all_gather by chunked_direct: 2097152 bytes, 2 ranks on 1 machine, 2 lanes, 1 turn, 2 slices\n");
  expect("time           2000 us\ncommunication  2000 us alone\nbus bandwidth  0.52 GB/s, 100.0 % of the link limit");
  expect("computation    0 us alone\noverlap        100.0 %\nbulk           2000 us, by direct\n");
  // The last chunk comes after 2 ms.
  o = RunProgram(gather + " --consume 0.25ms");
  expect("time           2250 us\n");
  expect("computation    1000 us alone\noverlap        88.9 %\nbulk           3000 us, by direct\n");
  // The rank's own chunks come at once, so the caller never waits.
  o = RunProgram(gather + " --consume 1ms --in-place yes");
  expect(", 2 slices, in place\ntime           4000 us\n");
  expect("overlap        100.0 %\nbulk           6000 us, by direct\n");
  // The second chunk leaves after 4 ms, and the caller then computes with four chunks.
  o = RunProgram(gather + " --produced yes --produce 2ms --consume 1500us");
  expect("time           10000 us\n");
  expect("computation    10000 us alone\n");
  o = RunProgram(gather + " --produced yes --produce 2ms");
  expect("time           5000 us\n");
  expect("overlap        80.0 %\nbulk           6000 us");
}

TEST(CommandTest, SimulateNamesTheError) {
  const auto fails_with = [](const std::string& arguments, const std::string& what) {
    const Outcome o = RunProgram(arguments);
    EXPECT_EQ(o.exit, 2) << arguments;
    EXPECT_NE(o.text.find(what), std::string::npos) << arguments << ": " << o.text;
  };
  const std::string ring = "simulate --op all_reduce --algo ring --machines 2x2 ";
  fails_with(ring, "--bytes is missing");
  for (const char* bad : {"x", "1KB", "-1", "1.5M", "16777216T"})
    fails_with(ring + "--bytes " + bad, "is not a size, such as 4096, 64K or 1G");
  fails_with(ring + "--bytes 1 --tile M", "--tile 'M' is not a size");
  for (const char* huge : {"18446744073709551615", "65537T"})
    fails_with(ring + "--bytes " + huge, "is too large; it can be 65536T at most");
  EXPECT_EQ(RunProgram(ring + "--bytes 65536T").exit, 0);
  for (const char* bad : {"400", "0GB/s", "-1GB/s", "400Gb/s", "GB/s", "nanGB/s"})
    fails_with(ring + "--bytes 1 --nic " + bad, "is not a rate, such as 400Gbit/s or 450GB/s");
  for (const char* bad : {"5", "-5us", "5 us", "infs", "us"})
    fails_with(ring + "--bytes 1 --network '" + bad + "'", "is not a time, such as 400ns or 1.5us");
  fails_with(ring + "--bytes 1 --network 0us", "network latency 0; must be finite and more than 0");
  fails_with(ring + "--bytes 1 --ranks 5", "--ranks 5 are not the 4 of --machines");
  fails_with("show --op all_reduce --algo ring --ranks 4 --tile 1M", "--tile is for simulate");
  fails_with("list --nic 1GB/s", "list takes no argument but --op");
  fails_with("simulate plan --bytes 1", "simulate takes no FILE");
  fails_with("simulate --op all_reduce --algo direct --machines 2x2 --bytes 1", "needs memory that its ranks share");
  fails_with("simulate --op all_reduce --algo ring --machines 8x2049 --bytes 1", "must be 1 to 16384 for ring");
  fails_with(ring + "--bytes 1 --consume 1us", "--consume is for --slices");
  fails_with(ring + "--bytes 1 --produce 1us", "--produce is for --slices");
  fails_with(ring + "--bytes 1 --in-place 1", "--in-place '1' must be yes or no");
  fails_with(ring + "--bytes 1 --slices 2", "--slices goes with neither --lanes nor --machines");
  const std::string chunked = "simulate --op all_gather --algo chunked_direct --ranks 2 --bytes 1 ";
  fails_with(chunked, "--slices is missing, for --algo chunked_direct");
  fails_with(chunked + "--slices 2 --produce 1us", "--produce is for --produced yes");
  fails_with(chunked + "--slices 2 --tile 1M", "--slices takes no --tile");
  fails_with(chunked + "--slices 2 --consume 5", "--consume '5' is not a time, such as 400ns or 1.5us");
  fails_with(chunked + "--slices 1048576", "more than can be held");
  fails_with("show --op all_gather --algo chunked_direct --ranks 2 --slices 2 --consume 1us",
             "--consume is for simulate");
}

// A machine with known figures, so the explanation is known, too.
const char kMachine[] =
    "axccl-machine 3\nsignal_seconds 1e-07\nop_seconds 1e-08\nswitch_seconds 1e-06\ncached_bytes_per_second 1e+10\n"
    "memory_bytes_per_second 5e+09\ncall_seconds 1e-06\ncall_bytes_per_second 2e+09\ncache_bytes 2097152\n"
    "cache_cores 2\n";

// The rows of the table in `text`, by algorithm and lanes ("ring 1"), without the mark.
std::map<std::string, std::string> Rows(const std::string& text) {
  std::map<std::string, std::string> rows;
  std::istringstream lines(text.substr(std::min(text.size(), text.find("  algorithm"))));
  std::string line, last;
  std::getline(lines, line);
  while (std::getline(lines, line) && (line.starts_with("* ") || line.starts_with("  "))) {
    EXPECT_LE(line.size(), 100u) << line;
    if (line.starts_with("      ")) {  // about the row above
      rows[last] += line;
      continue;
    }
    std::istringstream words(line.substr(2));
    std::string algorithm, lanes;
    words >> algorithm >> lanes;
    last = algorithm + " " + lanes;
    rows[last] = line;
  }
  return rows;
}

bool Has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

TEST(ExplainTest, NamesTheChoiceTheCandidatesAndTheReason) {
  const TempFile machine(kMachine);
  const std::string with = std::string(" --cores 16 --machine ") + machine.path();
  Outcome o = RunProgram("explain --op all_reduce --bytes 64K --ranks 4" + with);
  EXPECT_EQ(o.exit, 0) << o.text;
  EXPECT_TRUE(Has(o.text, "all_reduce of 65536 bytes, 4 ranks: blocks of 65536 bytes\n")) << o.text;
  EXPECT_TRUE(Has(o.text, std::string("machine: from ") + machine.path() + "\n  signal 0.100 us, operation 0.0100 us"))
      << o.text;
  EXPECT_FALSE(Has(o.text, "network:")) << o.text;
  EXPECT_EQ(Rows(o.text).size(), 8u) << o.text;
  EXPECT_TRUE(Has(o.text, "\nchosen: direct, 1 lanes: the shortest predicted time\n")) << o.text;
  EXPECT_TRUE(Rows(o.text)["direct 1"].starts_with("* ")) << o.text;
  // What ranks cannot do is reported.
  o = RunProgram("explain --op all_reduce --bytes 64K --ranks 4 --access none" + with);
  EXPECT_TRUE(Has(Rows(o.text)["direct 1"], "needs access to the other ranks' buffers")) << o.text;
  EXPECT_TRUE(Has(o.text, "\nchosen: twoshot, ")) << o.text;
  o = RunProgram("explain --op all_gather --bytes 16M --ranks 4 --blocks short-runs" + with);
  EXPECT_TRUE(Has(o.text, "\nchosen: pull, 1 lanes: as direct, whose ranks would write to the same cache lines here\n"))
      << o.text;
}

TEST(ExplainTest, KnowsGpus) {
  const Outcome apart = RunProgram("explain --op all_reduce --bytes 1G --ranks 8 --gpus 8");
  EXPECT_TRUE(Has(apart.text, "machine: 8 GPUs, fixed figures of an H100\n")) << apart.text;
  EXPECT_TRUE(Has(apart.text, "copies between GPUs 21.8 GB/s by a lane, 450 by a GPU each way")) << apart.text;
  EXPECT_TRUE(Has(apart.text, "\nchosen: direct, 32 lanes: ")) << apart.text;
  const Outcome sharp = RunProgram("explain --op all_reduce --bytes 1G --ranks 8 --gpus 8 --nvls yes");
  EXPECT_TRUE(Has(sharp.text, "\nchosen: nvls, 32 lanes, ")) << sharp.text;
  const Outcome shared = RunProgram("explain --op all_reduce --bytes 1G --ranks 8 --gpus 1");
  EXPECT_TRUE(Has(shared.text, "\nchosen: direct, 16 lanes: ")) << shared.text;
}

TEST(ExplainTest, AppliesTheSettingsOfRankZero) {
  const TempFile machine(kMachine);
  const std::string question = std::string(" explain --op all_reduce --bytes 8 --ranks 4 --machine ") + machine.path();
  const auto explain = [&](const std::string& settings) { return RunProgram(question, settings); };
  Outcome o = explain("NCCL_ALGO=ring,tree");
  EXPECT_TRUE(Has(o.text, "\nNCCL_ALGO=ring,tree\n")) << o.text;
  EXPECT_TRUE(Has(Rows(o.text)["oneshot 1"], "excluded by NCCL_ALGO")) << o.text;
  EXPECT_TRUE(Has(o.text, "\nchosen: tree, ")) << o.text;
  EXPECT_TRUE(
      Has(explain("NCCL_ALGO=bruck").text, "\nNCCL_ALGO admits nothing here, so it is ignored.\nchosen: oneshot, "));
  o = explain("NCCL_ALGO=wring");
  EXPECT_EQ(o.exit, 2);
  EXPECT_TRUE(Has(o.text, "unknown algorithm 'wring'")) << o.text;
  o = explain("AXCCL_ORDER=group");
  EXPECT_TRUE(Has(o.text, "\nsums in group order\n")) << o.text;
  EXPECT_TRUE(Has(Rows(o.text)["ring 1"], "does not fold in group order")) << o.text;
  // It does not matter for the sums of integers, nor where nothing is reduced.
  for (const char* other : {"explain --op all_reduce --dtype int32", "explain --op all_gather"}) {
    const std::string order = std::string(other) + " --bytes 16M --ranks 4 --access none --machine " + machine.path();
    o = RunProgram(" " + order, "AXCCL_ORDER=group");
    EXPECT_FALSE(Has(o.text, "group order")) << o.text;
    EXPECT_EQ(o.text, RunProgram(" " + order).text);
  }
}

TEST(ExplainTest, KnowsTheNetwork) {
  const TempFile machine(kMachine);
  const std::string with = std::string(" --cores 16 --machine ") + machine.path();
  const std::string question = "explain --op all_reduce --bytes 16M --ranks 8 --machines 4,4" + with;
  Outcome o = RunProgram(question + " --network fixed");
  EXPECT_TRUE(Has(o.text, "8 ranks on 2 machines: blocks")) << o.text;
  EXPECT_TRUE(Has(o.text,
                  "\nnetwork: fixed figures\n  message 10.00 us on its way and 1.00 us of each end, link of a machine "
                  "2.000 GB/s each way\n"))
      << o.text;
  EXPECT_TRUE(Has(o.text, "at most 4 lanes")) << o.text;
  EXPECT_TRUE(Has(o.text, "\nchosen: hierarchical_bruck, ")) << o.text;
  EXPECT_TRUE(Has(Rows(o.text)["hierarchical_ring 1"], "another one is as good or better for such a group")) << o.text;
  EXPECT_TRUE(Has(Rows(o.text)["oneshot 1"], "  link 9")) << o.text;
  EXPECT_EQ(Rows(RunProgram(question + " --max-lanes 1").text).size(), 14u);
  // Figures from a file, and the figures that were stored last.
  const char kNetwork[] =
      "axccl-network 1\nclass eth0 - eth0\nsignal_seconds 2e-05\nmessage_seconds 3e-06\nlink_bytes_per_second 1e+08\n";
  const std::string figures =
      "\n  message 20.00 us on its way and 3.00 us of each end, link of a machine 0.100 GB/s each way\n";
  const TempFile network(kNetwork);
  o = RunProgram(question + " --network " + network.path());
  EXPECT_TRUE(Has(o.text, std::string("\nnetwork: from ") + network.path() + ", of eth0 - eth0" + figures)) << o.text;
  const harness::Folder folder;
  const std::string kept = folder.Path("network-0123456789abcdef");
  EXPECT_TRUE(Has(RunProgram(question, "AXCCL_CACHE_DIR=" + folder.path()).text, "\nnetwork: fixed figures\n"));
  std::ofstream(kept) << kNetwork;
  std::ofstream(folder.Path("network-fedcba9876543210")) << "damaged\n";
  o = RunProgram(question, "AXCCL_CACHE_DIR=" + folder.path());
  EXPECT_TRUE(Has(o.text, "\nnetwork: measured before, from " + kept + ", of eth0 - eth0" + figures)) << o.text;
}

TEST(ExplainTest, CountsBytesAsThePerfToolsDo) {
  const TempFile machine(kMachine);
  const std::string with = std::string(" --machine ") + machine.path();
  const auto block = [&](const std::string& question) {
    const std::string text = RunProgram("explain " + question + with).text;
    const size_t at = text.find("blocks of ");
    return at == std::string::npos ? text : text.substr(at + 10, text.find(" bytes", at) - at - 10);
  };
  EXPECT_EQ(block("--op all_reduce --ranks 4 --bytes 1M"), "1048576");
  EXPECT_EQ(block("--op all_reduce --ranks 4 --bytes 10"), "8");
  EXPECT_EQ(block("--op all_reduce --ranks 4 --bytes 10 --dtype f16"), "10");
  for (const char* kind : {"all_gather", "reduce_scatter", "all_to_all", "gather --root 3", "scatter --root 3"})
    EXPECT_EQ(block(std::string("--ranks 4 --bytes 1000 --op ") + kind), "240") << kind;
  EXPECT_EQ(block("--op send_recv --ranks 2 --bytes 1K"), "1024");
  EXPECT_EQ(block("--op barrier --ranks 4"), "0");
}

TEST(ExplainTest, WrongUseNamesTheError) {
  const TempFile damaged(std::string(kMachine) + "more 1\n");
  const auto fails_with = [](const std::string& arguments, const std::string& what) {
    const Outcome o = RunProgram("explain " + arguments);
    EXPECT_EQ(o.exit, 2) << arguments;
    EXPECT_TRUE(Has(o.text, what)) << arguments << ": " << o.text;
  };
  const std::string question = "--op all_reduce --bytes 8 --ranks 4 ";
  fails_with("--bytes 8 --ranks 4", "--op is missing");
  fails_with("--op all_reduce --bytes 8", "--ranks is missing");
  fails_with("--op all_reduce --ranks 4", "--bytes is missing");
  fails_with("--op all_reduce --ranks 4 --bytes lots", "--bytes 'lots' is not a size");
  fails_with(question + "--gpus 1 --nvls yes", "--nvls needs a GPU for each rank");
  fails_with(question + "--gpus 2 --cores 4", "--gpus has figures of its own and takes no --cores");
  fails_with(question + "--algo ring", "explain takes no --algo");
  fails_with(question + "plan", "explain takes no FILE");
  fails_with(question + "--access none --machines 2,1", "--ranks 4 are not the 3 of --machines");
  fails_with(question + "--access call --machines 2,2", "ranks on several machines do not reach");
  fails_with(question + "--access maybe", "--access 'maybe' is unknown; there is none, call and mapped");
  fails_with(question + "--dtype f33", "--dtype 'f33' is unknown; there is f16,");
  fails_with(question + "--blocks odd", "--blocks 'odd' is unknown");
  fails_with(question + "--machine /nonexistent", "open(/nonexistent): No such file");
  const std::string file = damaged.path();
  fails_with(question + "--machine " + file, file + ": machine file, line 11: found 'more 1', expected the end");
  fails_with(question + "--machines 2,2 --network " + file,
             file + ": network file, line 1: found 'axccl-machine 3', expected axccl-");
  fails_with("--op send_recv --bytes 8 --ranks 4", "must be 2");
  fails_with("--op broadcast --bytes 8 --ranks 4 --root 4", "root 4");
  const Outcome o = RunProgram("show --op all_reduce --algo ring --ranks 4 --bytes 8");
  EXPECT_EQ(o.exit, 2);
  EXPECT_TRUE(Has(o.text, "--bytes is for simulate and explain")) << o.text;
}

TEST(CommandTest, BadPlansExitWithOne) {
  std::string text = RingText();
  const size_t wait = text.find("#2 wait 3 e0 v1\n");
  ASSERT_NE(wait, std::string::npos);
  const TempFile dropped(std::string(text).erase(wait, 16));
  Outcome o = RunProgram(std::string("verify ") + dropped.path());
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.substr(0, 61), "axccl-plan: plan ring all_reduce of 4 ranks rejected: race: r") << o.text;
  const TempFile malformed(text.replace(wait, 2, "##"));
  o = RunProgram(std::string("hash ") + malformed.path());
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.substr(0, 45), "axccl-plan: plan text, line 15 column 2: expe") << o.text;
}

TEST(CommandTest, WrongUseExitsWithTwoAndNamesTheChoices) {
  const auto fails_with = [](const std::string& arguments, const std::string& what) {
    const Outcome o = RunProgram(arguments);
    EXPECT_EQ(o.exit, 2) << arguments;
    EXPECT_NE(o.text.find(what), std::string::npos) << arguments << ": " << o.text;
  };
  fails_with("", "no command");
  fails_with("dance", "unknown command 'dance'; there is list, show, verify, hash, simulate and explain");
  fails_with("show", "--op is missing");
  fails_with("show --op sum", "--op 'sum' is unknown; there is all_reduce, broadcast,");
  fails_with("show --op all_reduce", "--algo is missing; for all_reduce there is direct,");
  fails_with("show --op all_reduce --algo ring", "--ranks is missing");
  fails_with("show --op all_reduce --algo bruck --ranks 4", "no algorithm 'bruck' for this kind");
  fails_with("show --op all_reduce --algo ring --ranks", "--ranks needs a value");
  fails_with("show --op all_reduce --algo ring --ranks 4x", "--ranks '4x' is not a number");
  fails_with("show --op all_reduce --algo ring --ranks 0", "--ranks '0' is not a number");
  fails_with("show --op broadcast --algo ring --ranks 4 --root 4", "root 4");
  fails_with("show --op broadcast --algo ring --ranks 4 --order by_rank", "--order is for --slices");
  fails_with("show --op all_gather --algo chunked_direct --ranks 4 --slices 1 --order best",
             "--order 'best' is unknown; there is default, own_first, own_last, by_rank");
  fails_with("show --op all_reduce --algo chunked_direct --ranks 4 --slices 1 --order by_rank", "has one block");
  fails_with("show --colour red", "--colour: no such option");
  fails_with("verify one two", "'two' is one FILE too many");
  fails_with("verify one --op barrier", "not both");
  fails_with("verify /nonexistent/plan", "open(/nonexistent/plan): No such file or directory");
  fails_with("list all", "list takes no argument but --op");
}

TEST(CommandTest, ShowsAndVerifiesPlansWithSlices) {
  const std::string plan = " --op all_to_all --algo chunked_direct --ranks 3 --slices 2 --produced yes";
  const Outcome own_last = RunProgram("show" + plan + " --order own_last");
  EXPECT_EQ(own_last.exit, 0) << own_last.text;
  EXPECT_NE(own_last.text, RunProgram("show" + plan).text);
  EXPECT_EQ(RunProgram("show" + plan + " --order own_first").text, RunProgram("show" + plan).text);
  const Outcome right = RunProgram("verify" + plan + " --order own_last");
  EXPECT_EQ(right.exit, 0) << right.text;
  EXPECT_EQ(right.text.substr(0, 6), "right:");
}

TEST(CommandTest, HelpAndList) {
  Outcome o = RunProgram("--help");
  EXPECT_EQ(o.exit, 0);
  EXPECT_NE(o.text.find("axccl-plan verify PLAN"), std::string::npos);
  EXPECT_NE(o.text.find("axccl-plan simulate PLAN"), std::string::npos);
  o = RunProgram("list --op barrier");
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, "barrier         oneshot\n");
  EXPECT_EQ(RunProgram("list --op barrier --machines 2,2").text,
            "barrier         oneshot hierarchical hierarchical_bruck\n");
  o = RunProgram("list --op all_gather");
  EXPECT_NE(o.text.find(" nvls "), std::string::npos) << o.text;
  EXPECT_EQ(RunProgram("list --op all_gather --machines 2,2").text.find(" nvls "), std::string::npos);
  o = RunProgram("list");
  for (int k = 0; k < plan::kNumKinds; ++k) {
    EXPECT_NE(o.text.find(plan::KindName(static_cast<plan::Kind>(k))), std::string::npos) << o.text;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need more address space than there is
TEST(CommandTest, SaysThatMemoryRanOut) {
  const Outcome o =
      harness::RunCommand("ulimit -v 100000; " AXCCL_PLAN_PROGRAM " verify --op all_reduce --algo direct --ranks 1024");
  EXPECT_EQ(o.exit, 2);
  EXPECT_EQ(o.text, "axccl-plan: memory ran out\n");
}
#endif

}  // namespace
}  // namespace axccl
