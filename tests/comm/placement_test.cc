// What a communicator does with the machine it is made on. The machine is simulated: the first two processors that the
// test may use, each in its own package and node.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/folder.h"
#include "tests/harness/networks.h"

namespace axccl::tests {
namespace {

namespace fs = std::filesystem;
using harness::Clique;
using harness::Contents;
using harness::Layout;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

std::vector<int> Allowed(pid_t thread) {
  std::vector<int> allowed;
  cpu_set_t set;
  if (sched_getaffinity(thread, sizeof(set), &set) != 0) return allowed;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &set)) allowed.push_back(p);
  return allowed;
}

void Bind(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

// Name and processors of each thread of this process.
std::multimap<std::string, std::vector<int>> ThreadsOfThis() {
  std::multimap<std::string, std::vector<int>> threads;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::string name = Contents(entry.path() / "comm");
    name.pop_back();
    threads.emplace(name, Allowed(static_cast<pid_t>(std::stol(entry.path().filename().string()))));
  }
  return threads;
}

// The threads that only run the library's own code; they last as long as the process.
void ExpectOwnThreadsOn(const std::vector<int>& processors) {
  int found = 0;
  for (const auto& [name, allowed] : ThreadsOfThis()) {
    if (name != "axccl-service" && name != "axccl-progress" && name != "axccl-tcp") continue;
    EXPECT_EQ(allowed, processors) << name;
    ++found;
  }
  EXPECT_GE(found, 1);
}

// What a rank's communicator finds out about the processors of all, in the words of its log.
void ExpectCrowding(const RunOptions& given, int ranks, const std::vector<int>& processors, const std::string& logged) {
  const harness::Folder folder;
  RunOptions options = given;
  options.environment = {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", folder.Path("log.%p")}};
  const auto body = [&](RankContext& context) {
    Bind(processors[static_cast<size_t>(context.rank()) % processors.size()]);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
  };
  RunRanks(Processes(ranks), body, options);
  int found = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    found += Contents(entry.path()).find("ranks to a processor: " + logged) != std::string::npos;
  EXPECT_EQ(found, ranks);
}

TEST(Crowding, RanksThatAreBoundHaveTheirProcessorsForThemselves) {
  const std::vector<int> all = Allowed(0);
  if (all.size() < 2) GTEST_SKIP() << "needs two processors";
  ExpectCrowding({}, 2, {all[0], all[1]}, "1,");
  ExpectCrowding({}, 2, {all[0]}, "2,");
  ExpectCrowding({}, 4, {all[0], all[1]}, "2,");
}

class PlacementTest : public testing::Test {
 protected:
  void SetUp() override {
    all_ = Allowed(0);
    if (all_.size() < 2) GTEST_SKIP() << "needs two processors";
    text_ = "axccl-topology 1\nnode 0 bytes 1073741824\nnode 1 bytes 1073741824\n";
    for (int node = 0; node < 2; ++node) {
      const std::string processor = std::to_string(all_[static_cast<size_t>(node)]);
      text_ += "package\nl3 0 node " + std::to_string(node) + "\ncore processors " + processor + "\n";
    }
    std::ofstream(folder_.Path("machine")) << text_;
    options_.environment = {{"NCCL_TOPO_FILE", folder_.Path("machine")},
                            {"NCCL_DEBUG", "INFO"},
                            {"NCCL_DEBUG_SUBSYS", "ALL"},
                            {"NCCL_DEBUG_FILE", folder_.Path("log.%p")}};
  }

  // The logs of all processes.
  std::string Logs() const {
    std::string logs;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().filename().string().starts_with("log.")) logs += Contents(entry.path());
    return logs;
  }
  void ExpectLogged(const std::string& part, bool is = true) const {
    EXPECT_EQ(Logs().find(part) != std::string::npos, is) << part << " in\n" << Logs();
  }
  void Set(const std::string& name, const std::string& value) { options_.environment.emplace_back(name, value); }

  std::vector<int> all_;
  const harness::Folder folder_;
  std::string text_;
  RunOptions options_;
};

TEST_F(PlacementTest, OwnThreadsOfARankRunWhereItIsPlacedAndNoOthers) {
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ExpectOwnThreadsOn({all_[static_cast<size_t>(context.rank())]});
        EXPECT_EQ(Allowed(0), all_) << "the application's thread";
      },
      options_);
  for (const char* rank : {"0", "1"}) {
    const auto at = static_cast<size_t>(rank[0] - '0');
    ExpectLogged(std::string("placement: rank ") + rank + " of 2 on this machine: processors " +
                 std::to_string(all_[at]) + ", node " + rank);
  }
}

TEST_F(PlacementTest, ScratchMemoryComesFromTheNodeOfItsRank) {
  if (Contents("/proc/self/numa_maps").empty()) GTEST_SKIP() << "the kernel has no nodes";
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        if (context.rank() == 0) std::ofstream(folder_.Path("maps")) << Contents("/proc/self/numa_maps");
      },
      options_);
  // Node 0 always exists, but some containers do not let a process choose. The log must say what was done.
  const std::string maps = Contents(folder_.Path("maps"));
  ASSERT_FALSE(maps.empty());
  ExpectLogged("placement: scratch memory of rank 0 comes from node 0", maps.find(" prefer:0 ") != std::string::npos);
  ExpectLogged("placement: scratch memory of rank 1 comes from");
}

TEST_F(PlacementTest, RanksOfOneProcessShareTheirPlaces) {
  RunRanks(
      Threads(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_TRUE(context.Barrier());
        ExpectOwnThreadsOn({all_[0], all_[1]});
        ASSERT_TRUE(context.Barrier());
      },
      options_);
}

TEST_F(PlacementTest, ABoundProcessStaysWhereItIs) {
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Bind(all_[1]);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ExpectOwnThreadsOn({all_[1]});
        EXPECT_EQ(Allowed(0), std::vector<int>{all_[1]});
      },
      options_);
  ExpectLogged("placement: rank 0 of 2 on this machine: processors " + std::to_string(all_[1]) + ", node 1");
}

TEST_F(PlacementTest, ABindingCanBeIgnored) {
  Set("NCCL_IGNORE_CPU_AFFINITY", "1");
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Bind(all_[1]);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ExpectOwnThreadsOn({all_[static_cast<size_t>(context.rank())]});
        EXPECT_EQ(Allowed(0), std::vector<int>{all_[1]}) << "the application's thread";
      },
      options_);
}

TEST_F(PlacementTest, CanBeTurnedOff) {
  Set("AXCCL_PLACE", "0");
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ExpectOwnThreadsOn(all_);
      },
      options_);
  ExpectLogged("placement:", false);
}

TEST_F(PlacementTest, NothingIsDoneWhereThereIsOneNode) {
  if (fs::exists("/sys/devices/system/node/node1")) GTEST_SKIP() << "there are more";
  Set("NCCL_TOPO_FILE", "");
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ExpectOwnThreadsOn(all_);
        EXPECT_EQ(Contents("/proc/self/maps").find("libhwloc"), std::string::npos) << "loaded without need";
      },
      options_);
  ExpectLogged("placement:", false);
}

TEST_F(PlacementTest, TheFirstCommunicatorDecides) {
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ncclComm_t alone = nullptr;
        ASSERT_OK(ncclCommSplit(clique.comm(0), context.rank(), 0, &alone, nullptr));
        // A communicator of one rank alone would have got all processors.
        ExpectOwnThreadsOn({all_[static_cast<size_t>(context.rank())]});
        ASSERT_OK(ncclCommDestroy(alone));
      },
      options_);
}

// One of the library's own threads may start the thread that runs the application's callbacks.
void KeepProcessors(void* processors) { *static_cast<std::vector<int>*>(processors) = Allowed(0); }

TEST_F(PlacementTest, CallbacksMayUseWhatTheApplicationMay) {
  RunRanks(
      Processes(2),
      [this](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        float value = 1;
        std::vector<int> seen;
        // The callback comes after an operation that ends only once the other rank calls: the thread that drives the
        // operation then starts the callback's thread.
        ASSERT_OK(
            ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comm(0), harness::Cuda(clique.stream(0))));
        ASSERT_OK(axcclLaunchHostFunc(clique.stream(0), KeepProcessors, &seen));
        ASSERT_OK(axcclStreamSynchronize(clique.stream(0)));
        EXPECT_EQ(seen, all_);
        EXPECT_EQ(value, 2);
      },
      options_);
}

// ---- files ----

TEST_F(PlacementTest, TheChosenRankWritesTheMachine) {
  const std::string dump = folder_.Path("dump");
  Set("NCCL_TOPO_DUMP_FILE", dump);
  RunRanks(
      Processes(2),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
      },
      options_);
  EXPECT_EQ(Contents(dump), text_);

  fs::remove(dump);
  Set("NCCL_TOPO_DUMP_FILE_RANK", "2");  // no such rank
  RunRanks(
      Processes(2),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
      },
      options_);
  EXPECT_FALSE(fs::exists(dump));

  Set("NCCL_TOPO_DUMP_FILE_RANK", "1");
  Set("AXCCL_PLACE", "0");  // does not matter for the file
  RunRanks(
      Processes(2),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
      },
      options_);
  EXPECT_EQ(Contents(dump), text_);
}

TEST_F(PlacementTest, FilesThatCannotBeUsedAreOnlyReported) {
  std::ofstream(folder_.Path("machine")) << "<system version=\"1\">\n<cpu/>\n</system>\n";
  Set("NCCL_TOPO_DUMP_FILE", "/nowhere/at/all");
  RunRanks(
      Processes(2),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
      },
      options_);
  ExpectLogged("NCCL_TOPO_FILE is not used: " + folder_.Path("machine") + ": NCCL's topology, line 2: cpu has numaid");
  ExpectLogged("NCCL_TOPO_DUMP_FILE: open(/nowhere/at/all) to write");
}

// NCCL warns of the first as well, and refuses the others.
TEST_F(PlacementTest, FilesThatAreMissingOrBrokenLeaveTheCommunicatorAsItIs) {
  const std::pair<std::string, std::string> files[] = {
      {"missing", ""}, {"of_version_9", "<system version=\"9\"></system>\n"}, {"cut", "<system version=\"1\"><cpu"}};
  for (const auto& [name, text] : files) {
    const std::string path = folder_.Path(name);
    if (!text.empty()) std::ofstream(path) << text;
    Set("NCCL_TOPO_FILE", path);
    RunRanks(
        Processes(2),
        [&](RankContext& context) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
        },
        options_);
    const std::string logs = Logs();
    bool warned = false;
    std::istringstream lines(logs);
    for (std::string line; std::getline(lines, line);) {
      const size_t remark = line.find("NCCL_TOPO_FILE is not used: ");
      warned |= remark != std::string::npos && line.find(path, remark) != std::string::npos;
    }
    EXPECT_TRUE(warned) << path << " in\n" << logs;
  }
}

// NCCL's form, which needs expat: what is of another machine is left out, and said once.
TEST_F(PlacementTest, FilesOfNcclCorrectThisMachine) {
  std::ofstream(folder_.Path("machine")) << "<system version=\"1\"><cpu numaid=\"0\"><rack/><pci "
                                            "busid=\"fffe:00:00.0\" class=\"0x030200\"/></cpu></system>\n";
  const std::string dump = folder_.Path("dump");
  Set("NCCL_TOPO_DUMP_FILE", dump);
  RunRanks(
      Processes(2),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
      },
      options_);
  ExpectLogged(
      "NCCL_TOPO_FILE: " + folder_.Path("machine") +
      ": elements that are not known there are ignored: rack; 1 of 1 GPUs of the file are not on this machine");
  EXPECT_TRUE(Contents(dump).starts_with("axccl-topology 1\n")) << Contents(dump);
  EXPECT_EQ(Contents(dump).find("fffe:"), std::string::npos) << Contents(dump);
}

// Two simulated machines with two ranks each.
TEST_F(PlacementTest, TheThreadForMessagesIsPlacedToo) {
  if (access(harness::kNetworks, F_OK) != 0) GTEST_SKIP() << harness::kNoNetworks;
  RunRanks(
      Processes(4),
      [this](RankContext& context) {
        setenv("NCCL_HOSTID", context.rank() < 2 ? "one" : "two", 1);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        EXPECT_EQ(ThreadsOfThis().count("axccl-tcp"), 1u);
        ExpectOwnThreadsOn({all_[static_cast<size_t>(context.rank() % 2)]});
      },
      options_);
}

}  // namespace
}  // namespace axccl::tests
