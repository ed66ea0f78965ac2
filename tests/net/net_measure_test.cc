// The figures of the network that ranks on several hosts use: measured, kept, equal on all ranks, and harmless if
// measuring fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/explained.h"
#include "tests/harness/folder.h"
#include "tests/harness/rank_logs.h"
#include "tests/harness/residue.h"
#include "tests/harness/test_hosts.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::NowNs;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::TestHosts;

// The last line of a rank's log about the figures by which it chooses plans.
struct Known {
  double message_us = 0, end_us = 0, megabytes = 0;
  std::string source;
  std::string text;  // the whole line
};

class NetMeasureTest : public testing::Test {
 protected:
  void SetUp() override {
    hosts_ = TestHosts::Create(2);
    ASSERT_NE(hosts_, nullptr);
  }

  // Runs with that value of AXCCL_NET_MEASURE.
  void Run(const char* measure, int ranks, const harness::Body& body) const {
    RunOptions options;
    options.hosts = hosts_.get();
    options.deadline = std::chrono::seconds(60);
    options.environment = {{"AXCCL_NET_MEASURE", measure}, {"AXCCL_CACHE_DIR", folder_.Path("cache")}};
    for (const auto& variable : logs_.environment()) options.environment.push_back(variable);
    RunRanks(harness::Processes(ranks), body, options);
  }

  // The log of this process, in the body of a run.
  std::string Log() const { return logs_.Own(); }
  Known LastKnown() const {
    const std::string log = Log(), mark = "plans are chosen for messages of ";
    Known known;
    const size_t at = log.rfind(mark);
    if (at == std::string::npos) return known;
    known.text = log.substr(at, log.find('\n', at) - at);
    char source[64] = "";
    std::sscanf(known.text.c_str() + mark.size(), "%lf us, %lf us of each end, %lf MB/s: %63[^\n]", &known.message_us,
                &known.end_us, &known.megabytes, source);
    known.source = source;
    return known;
  }
  // Makes a communicator and drops it. Its figures must be equal on all ranks.
  Known InitOnce(RankContext& context) const {
    Clique clique;
    EXPECT_TRUE(clique.Init(context));
    const Known mine = LastKnown();
    char* const texts = reinterpret_cast<char*>(context.board());
    constexpr size_t kText = 512;
    std::snprintf(texts + kText * static_cast<size_t>(context.rank()), kText, "%s", mine.text.c_str());
    EXPECT_TRUE(context.Barrier(3));
    for (int rank = 0; rank < context.nranks(); ++rank) EXPECT_EQ(mine.text, texts + kText * static_cast<size_t>(rank));
    EXPECT_FALSE(mine.text.empty());
    EXPECT_TRUE(context.Barrier(4));
    return mine;
  }
  // The files that hold figures of networks.
  std::vector<std::string> Kept() const {
    std::vector<std::string> files;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.Path("cache"), none)) {
      if (entry.path().filename().string().starts_with("network-")) files.push_back(entry.path());
    }
    return files;
  }

  const harness::Folder folder_;
  const harness::RankLogs logs_;
  std::unique_ptr<TestHosts> hosts_;
};

// A link of 1 Gbit/s carries 125 MB/s, one of 100 Mbit/s a tenth of that. Other load makes both slower, so the test
// takes the best of several runs; empty buffers make a link look faster, but not by much.
TEST_F(NetMeasureTest, KnowsHowMuchTheLinkCarries) {
  Run("always", 4, [&](RankContext& context) {
    const auto best = [&](const char* rate, double enough) {
      if (context.rank() == 0) {
        EXPECT_TRUE(hosts_->Limit(0, rate) && hosts_->Limit(1, rate));
      }
      EXPECT_TRUE(context.Barrier(1));
      double most = 0;
      for (int i = 0; i < 30 && most < enough; ++i) {
        const Known known = InitOnce(context);
        EXPECT_EQ(known.source, "measured");
        EXPECT_GT(known.message_us, 0);
        EXPECT_GT(known.end_us, 0);
        most = std::max(most, known.megabytes);
      }
      return most;
    };
    const double fast = best("1gbit", 125.0 / 2), slow = best("100mbit", 12.5 / 2);
    EXPECT_GT(fast, 125.0 / 2);
    EXPECT_LT(fast, 125.0 * 2);
    EXPECT_GT(slow, 12.5 / 2);
    EXPECT_LT(slow, 12.5 * 2);
    EXPECT_GT(fast, 3 * slow);
  });
  EXPECT_EQ(Kept().size(), 1u) << "one class of pairs";
}

TEST_F(NetMeasureTest, KeepsWhatItFound) {
  Run("once", 4, [&](RankContext& context) {
    const Known first = InitOnce(context);
    EXPECT_EQ(first.source, "measured");
    ASSERT_EQ(Kept().size(), 1u);
    const std::string file = Kept()[0];
    const Known second = InitOnce(context);
    EXPECT_EQ(second.source, "measured before");
    EXPECT_EQ(second.text.substr(0, second.text.rfind(':')), first.text.substr(0, first.text.rfind(':')));
    EXPECT_TRUE(context.rank() != 0 || Log().find("kept in " + file) != std::string::npos);
    // A damaged file is replaced.
    ASSERT_TRUE(context.Barrier(1));
    if (context.rank() == 0) std::ofstream(file) << "junk\n";
    ASSERT_TRUE(context.Barrier(2));
    EXPECT_EQ(InitOnce(context).source, "measured");
    EXPECT_TRUE(context.rank() != 0 || Log().find("line 1: found 'junk'") != std::string::npos) << Log();
    EXPECT_EQ(InitOnce(context).source, "measured before");
  });
}

TEST_F(NetMeasureTest, MeasuresNothingWhereThatIsNotWanted) {
  Run("never", 2, [&](RankContext& context) {
    const Known known = InitOnce(context);
    EXPECT_EQ(known.source, "fixed figures");
    EXPECT_EQ(known.megabytes, 2000);
  });
  EXPECT_TRUE(Kept().empty());
}

#ifdef AXCCL_PLAN_PROGRAM
// axccl-plan uses the figures that were kept, and chooses the same plans as the ranks.
TEST_F(NetMeasureTest, IsWhatPlansAreChosenBy) {
  Run("once", 2, [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_EQ(LastKnown().source, "measured");
    for (const size_t count : {size_t{2}, size_t{4096}, size_t{1} << 20}) {
      std::vector<float> data(count);
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, clique.comm(),
                              harness::Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      const char* algorithm = nullptr;
      ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &algorithm));
      const std::string bytes = std::to_string(count * sizeof(float));
      EXPECT_EQ(algorithm, harness::ExplainedAlgorithm(AXCCL_PLAN_PROGRAM,
                                                       "--op all_reduce --ranks 2 --machines 1,1 --bytes " + bytes))
          << bytes;
    }
  });
}
#endif

// Communicators made from others use their figures.
TEST_F(NetMeasureTest, IsInherited) {
  Run("always", 4, [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Known parent = LastKnown();
    ncclComm_t half = nullptr;
    ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() / 2, 0, &half, nullptr));
    EXPECT_EQ(LastKnown().text, parent.text);
    EXPECT_EQ(LastKnown().source, "measured");
    const std::string log = Log(), measuring = "measuring the network ";
    EXPECT_EQ(log.find(measuring), log.rfind(measuring)) << "once";
    ASSERT_OK(ncclCommDestroy(half));
  });
}

// ---- failures ----

class NetMeasureBreaks : public NetMeasureTest, public testing::WithParamInterface<const char*> {
 protected:
  // So slow that the test can interrupt the measurement: its 128 KiB take four seconds. A large burst would let them
  // pass at once.
  void MakeSlow() const { EXPECT_TRUE(hosts_->Limit(1, "256kbit", "8kb")); }
  void MakeFast() const { EXPECT_TRUE(hosts_->Limit(1, "10gbit")); }
  // Waits until this process measures for the n-th time.
  void AwaitMeasuring(RankContext& context, int n) const {
    const auto times = [&] {
      int found = 0;
      const std::string log = Log();
      for (size_t at = 0; (at = log.find("measuring the network ", at)) != std::string::npos; ++at) ++found;
      return found;
    };
    while (times() < n && !context.AnyFailed()) usleep(1000);
  }
};

// Rank 0 measures with rank 1; rank 2 waits for both.
TEST_P(NetMeasureBreaks, EveryRankGetsAnError) {
  const bool dies = std::string(GetParam()) == "Death", asker = std::string(GetParam()) == "AbortOfAsker";
  const int culprit = asker ? 0 : 1;
  Run("always", 3, [&](RankContext& context) {
    setenv("AXCCL_INIT_TIMEOUT", "12", 1);  // late ranks can learn for this long how a start failed
    (void)InitOnce(context);
    ASSERT_TRUE(context.Barrier(1));
    const int descriptors = harness::Entries("/proc/self/fd");
    if (context.rank() == 0) MakeSlow();
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    const ncclComm_t comm = harness::BeginInit(id, 3, context.rank());
    ASSERT_NE(comm, nullptr);
    if (context.rank() == culprit) {
      AwaitMeasuring(context, 2);
      if (dies) context.Die();
    } else {
      ASSERT_TRUE(context.Step("until it breaks"));
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress && !context.AnyFailed()) {
        ASSERT_OK(ncclCommGetAsyncError(comm, &state));
        usleep(1000);
      }
      EXPECT_EQ(state, ncclRemoteError) << ncclGetLastError(comm);
      const std::string text = ncclGetLastError(comm);
      EXPECT_NE(text.find("rank " + std::to_string(culprit)), std::string::npos) << text;
    }
    const uint64_t start = NowNs();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_LT(NowNs() - start, harness::AllowedNs(1000));
    if (context.rank() == (dies ? 0 : culprit)) MakeFast();
    // Nothing is left once what was being sent has arrived or is lost; and where the network works, so does a new
    // start.
    const uint64_t limit = NowNs() + 20'000'000'000;
    while (harness::Entries("/proc/self/fd") > descriptors && NowNs() < limit) usleep(1000);
    EXPECT_LE(harness::Entries("/proc/self/fd"), descriptors);
    if (dies) return;
    ASSERT_TRUE(context.Barrier(7));
    (void)InitOnce(context);
  });
}

INSTANTIATE_TEST_SUITE_P(Breaks, NetMeasureBreaks, testing::Values("Death", "AbortOfAsker", "AbortOfAnswerer"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace axccl::tests
