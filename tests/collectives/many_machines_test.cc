// Hundreds of ranks on eight machines that are pretended: they start and reduce within the limit of time, and what a
// process holds for them grows with the processes that it talks to, and little with ranks.
#include <dirent.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr int kMachines = 8;
// Before the harness looks whether it can pretend them.
[[maybe_unused]] const int g_pretended = setenv("AXCCL_TEST_HOSTS", "8", 1);

int Descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Of this process, with its page tables.
size_t MemoryBytes() {
  size_t kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:") || line.starts_with("VmPTE:")) kib += std::stoul(line.substr(6));
  }
  return kib << 10;
}

// Of ones, by all ranks of the process.
void AllReduce(const Clique& clique, std::vector<float>* values) {
  values->assign(static_cast<size_t>(clique.size()), 1);
  EXPECT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    float* const value = &(*values)[static_cast<size_t>(i)];
    EXPECT_OK(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, clique.comm(i), harness::Cuda(clique.stream(i))));
  }
  EXPECT_OK(ncclGroupEnd());
}

TEST(ManyMachines, RanksStartAndReduce) {
  const Layout layout{kMachines, 1, harness::FullTests() ? 128 : 32};
  RunOptions options;
  options.deadline = std::chrono::seconds(harness::FullTests() ? 280 : 100);
  RunRanks(
      layout,
      [&](RankContext& context) {
        const size_t before = MemoryBytes();
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (int round = 0; round < 3; ++round) {
          std::vector<float> values;
          AllReduce(clique, &values);
          ASSERT_TRUE(clique.Synchronize());
          for (const float value : values) EXPECT_EQ(value, static_cast<float>(layout.nranks()));
        }
        // The parts of communicators here that stand for ranks there; each has two pages and a page of the page table.
        const size_t here = static_cast<size_t>(layout.ranks), mirrors = here * here * (kMachines - 1);
        EXPECT_LT(MemoryBytes() - before, (size_t{64} << 20) + mirrors * (18 << 10));
        EXPECT_LT(Descriptors(), 100);
        ASSERT_TRUE(clique.Destroy());
      },
      options);
}

// A rank does not know what ranks of other machines have called that have nothing to send to it.
TEST(ManyMachines, TimeoutAccusesNobodyOfAnotherMachine) {
  const Layout layout{kMachines, 1, 4};
  RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "0.5"}};
  RunRanks(
      layout,
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_TRUE(context.Barrier());
        std::vector<float> values;
        const bool calls = clique.rank(0) != (kMachines - 1) * layout.ranks;  // the others' leader there does not
        if (calls) AllReduce(clique, &values);
        for (int i = 0; i < clique.size() && calls; ++i) {
          const ncclResult_t result = axcclStreamSynchronize(clique.stream(i));
          const std::string text = ncclGetLastError(clique.comm(i));
          // Those to which another one's timeout came first have its text.
          EXPECT_TRUE(result == ncclTimeout || result == ncclRemoteError) << ncclGetErrorString(result);
          EXPECT_NE(text.find("waited 0.5 s for rank "), std::string::npos) << text;
          EXPECT_NE(text.find("; nothing of it has come from ranks "), std::string::npos) << text;
          EXPECT_NE(text.find(" of other machines"), std::string::npos) << text;
          EXPECT_EQ(text.find("not called by"), std::string::npos) << text;
        }
        ASSERT_TRUE(context.Barrier());
        for (int i = 0; i < clique.size(); ++i) EXPECT_OK(ncclCommAbort(clique.comm(i)));
        clique.ForgetComms();
      },
      options);
}

}  // namespace
}  // namespace axccl::tests
