// Ranks on hosts with several NICs: large messages use all NICs that the hosts share, and the failure of one counts as
// the failure of the peer. net_collectives_test.cc also checks that results are right.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/folder.h"
#include "tests/harness/test_hosts.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::TestHosts;

constexpr int kTimeCell = 20;   // time of the event, ns
constexpr int kPidCell = 30;    // + rank
constexpr int kNamedCell = 40;  // + rank: 2 if its error names the NIC, otherwise 1
constexpr uint64_t kPromisedNs = 4'000'000'000;
constexpr size_t kLarge = 4 << 20;  // floats: 16 MiB

// A file for NCCL_TOPO_FILE.
class Machine {
 public:
  explicit Machine(const std::string& nics) {
    std::ofstream(path()) << "axccl-topology 1\nnode 0 bytes 1073741824\npackage\nl3 0 node 0\ncore processors 0\n"
                          << nics;
  }
  std::string path() const { return folder_.Path("machine"); }

 private:
  const harness::Folder folder_;
};

// The bytes that each NIC has sent and received since.
class Traffic {
 public:
  explicit Traffic(int nics) {
    for (int nic = 0; nic < nics; ++nic) before_.push_back(Count(nic));
  }
  int64_t Bytes(int nic) const { return Count(nic) - before_[static_cast<size_t>(nic)]; }
  double Share(int nic) const {
    int64_t all = 0;
    for (int i = 0; i < static_cast<int>(before_.size()); ++i) all += Bytes(i);
    return static_cast<double>(Bytes(nic)) / static_cast<double>(all);
  }

 private:
  static int64_t Count(int nic) { return TestHosts::Counter(nic, "rx_bytes") + TestHosts::Counter(nic, "tx_bytes"); }
  std::vector<int64_t> before_;
};

void AllReduce(const Clique& clique, size_t count, int rounds = 1) {
  const int ranks = clique.nranks();
  std::vector<float> in(count), out(count);
  for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1000 + static_cast<size_t>(clique.rank(0)));
  for (int round = 0; round < rounds; ++round)
    ASSERT_OK(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())));
  ASSERT_OK(axcclStreamSynchronize(clique.stream()));
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(out[i],
              static_cast<float>(i % 1000) * static_cast<float>(ranks) + static_cast<float>(ranks * (ranks - 1) / 2));
}

// Sends to the next rank and receives from the previous one, all at once.
void SendAround(const Clique& clique, size_t count) {
  const int n = clique.nranks(), rank = clique.rank(0);
  std::vector<int32_t> in(count), out(count, -1), expected(count);
  std::iota(in.begin(), in.end(), rank);
  std::iota(expected.begin(), expected.end(), (rank + n - 1) % n);
  ASSERT_OK(ncclGroupStart());
  ASSERT_OK(ncclSend(in.data(), count, ncclInt32, (rank + 1) % n, clique.comm(), Cuda(clique.stream())));
  ASSERT_OK(ncclRecv(out.data(), count, ncclInt32, (rank + n - 1) % n, clique.comm(), Cuda(clique.stream())));
  ASSERT_OK(ncclGroupEnd());
  ASSERT_OK(axcclStreamSynchronize(clique.stream()));
  ASSERT_EQ(out, expected);
}

struct Setting {
  int hosts = 2;
  const char* interfaces = "eth";
  std::string machine = {};       // NCCL_TOPO_FILE
  const char* comm_id = nullptr;  // otherwise the first interface
};

// Ranks are processes, one on each host with two NICs. `prepare` is called before any of them starts.
void RunOnNics(const Setting& setting, const std::function<bool(const TestHosts&)>& prepare,
               const std::function<void(const TestHosts&, RankContext&, Clique*)>& body) {
  const auto hosts = TestHosts::Create(setting.hosts, 2);
  ASSERT_NE(hosts, nullptr);
  ASSERT_TRUE(prepare(*hosts));
  RunOptions options;
  options.hosts = hosts.get();
  options.deadline = std::chrono::seconds(40);
  options.environment = {{"NCCL_SOCKET_IFNAME", setting.interfaces}, {"NCCL_TOPO_FILE", setting.machine}};
  if (setting.comm_id != nullptr) {
    options.environment.emplace_back("NCCL_COMM_ID", setting.comm_id);
    options.environment.emplace_back("AXCCL_SECRET", "of these ranks alone");
  }
  RunRanks(
      Processes(setting.hosts),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        body(*hosts, context, &clique);
      },
      options);
}

bool Nothing(const TestHosts&) { return true; }

TEST(NetRails, ShareWhatIsLarge) {
  RunOnNics({}, Nothing, [](const TestHosts&, RankContext& context, Clique* clique) {
    ASSERT_TRUE(context.Barrier(1));
    const Traffic traffic(2);
    ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, kLarge));
    ASSERT_TRUE(context.Barrier(2));
    EXPECT_GT(traffic.Share(0), 0.4);
    EXPECT_LT(traffic.Share(0), 0.6);
    ASSERT_NO_FATAL_FAILURE(SendAround(*clique, kLarge));
    // Many small messages, in order, between the pieces of large ones.
    for (int round = 0; round < 20; ++round) {
      ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, 3 + static_cast<size_t>(round), 20));
      ASSERT_NO_FATAL_FAILURE(SendAround(*clique, 100003 + static_cast<size_t>(round)));
    }
  });
}

// One NIC is much slower than the system reports, so what arrives by the fast one is often early.
TEST(NetRails, KeepTheOrderIfOneIsSlow) {
  const auto slow = [](const TestHosts& hosts) {
    const std::vector<std::string> limit = {"tc",    "qdisc", "replace", "dev",   "eth1", "root",  "tbf",
                                            "burst", "64kb",  "latency", "100ms", "rate", "50mbit"};
    return hosts.Run(0, limit) == 0 && hosts.Run(1, limit) == 0;
  };
  RunOnNics({}, slow, [](const TestHosts&, RankContext&, Clique* clique) {
    for (size_t round = 0; round < 30; ++round) {
      ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, 20000 + 1000 * round, 3));
      ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, 1 + round, 5));
      ASSERT_NO_FATAL_FAILURE(SendAround(*clique, 30000 + 777 * round));
    }
  });
}

TEST(NetRails, AreThoseThatAreAskedFor) {
  for (const int asked : {0, 1}) {
    const std::string name = TestHosts::Interface(asked);
    RunOnNics({2, name.c_str()}, Nothing, [&](const TestHosts&, RankContext& context, Clique* clique) {
      const Traffic traffic(2);
      ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, kLarge));
      ASSERT_TRUE(context.Barrier(1));
      EXPECT_GT(traffic.Share(asked), 0.999);
    });
  }
}

TEST(NetRails, AreNotSlowerThanTheFastest) {
  const Machine machine("nic eth0 kind ethernet speed 1000\nnic eth1 kind ethernet speed 25000\n");
  RunOnNics({2, "eth", machine.path()}, Nothing, [](const TestHosts&, RankContext& context, Clique* clique) {
    const Traffic traffic(2);
    ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, kLarge));
    ASSERT_TRUE(context.Barrier(1));
    EXPECT_GT(traffic.Share(1), 0.999);
  });
}

// One host with one NIC, others with two.
TEST(NetRails, AreThoseThatBothHave) {
  const auto pull = [](const TestHosts& hosts) { return hosts.PullCable(2, 1); };
  RunOnNics({3}, pull, [](const TestHosts&, RankContext& context, Clique* clique) {
    ASSERT_TRUE(context.Barrier(1));
    const Traffic traffic(2);
    ASSERT_NO_FATAL_FAILURE(SendAround(*clique, kLarge));
    ASSERT_TRUE(context.Barrier(2));
    // Both NICs from 0 to 1, one from 1 to 2 and from 2 to 0.
    const double expected = context.rank() == 2 ? 0 : 0.25;
    EXPECT_NEAR(traffic.Share(1), expected, 0.06);
    ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, 1000003));
  });
}

// Only the slow network leads to the last host.
TEST(NetRails, SlowOnesAreTakenWhereNoOtherLeads) {
  const Machine machine("nic eth0 kind ethernet speed 25000\nnic eth1 kind ethernet speed 1000\n");
  const auto pull = [](const TestHosts& hosts) { return hosts.PullCable(2, 0); };
  RunOnNics({3, "eth", machine.path(), "10.78.0.1:4800"}, pull,
            [](const TestHosts&, RankContext& context, Clique* clique) {
              ASSERT_TRUE(context.Barrier(1));
              const Traffic traffic(2);
              ASSERT_NO_FATAL_FAILURE(SendAround(*clique, kLarge));
              ASSERT_TRUE(context.Barrier(2));
              const double expected = context.rank() == 2 ? 1 : 0.5;
              EXPECT_NEAR(traffic.Share(1), expected, 0.06);
            });
}

// ---- failures ----

class PulledTest : public testing::TestWithParam<int> {};

// The other NIC still works, but packets that were on their way by this one do not arrive.
TEST_P(PulledTest, BothSidesNameEachOther) {
  const int nic = GetParam();
  RunOnNics({}, Nothing, [&](const TestHosts& hosts, RankContext& context, Clique* clique) {
    context.Set(kPidCell + context.rank(), static_cast<uint64_t>(getpid()));
    ASSERT_NO_FATAL_FAILURE(AllReduce(*clique, 300000));
    ASSERT_TRUE(context.Barrier(1));
    std::thread breaker;
    if (context.rank() == 0)
      breaker = std::thread([&] {
        usleep(50000);  // while both work
        const bool pulled = hosts.PullCable(1, nic);
        context.Set(kTimeCell, NowNs());
        EXPECT_TRUE(pulled);
      });
    ASSERT_TRUE(context.Step("until it breaks"));
    std::vector<float> data(300000);
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess && !context.AnyFailed()) {
      result = ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclMax, clique->comm(),
                             Cuda(clique->stream()));
      if (result == ncclSuccess) result = axcclStreamSynchronize(clique->stream());
    }
    const uint64_t took = NowNs() - context.Await(kTimeCell);
    if (breaker.joinable()) breaker.join();
    EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
    EXPECT_LT(took, kPromisedNs * static_cast<uint64_t>(harness::TimeScale())) << "ns";
    const int other = 1 - context.rank();
    const std::string culprit = "rank " + std::to_string(other) + " (pid " +
                                std::to_string(context.Get(kPidCell + other)) + " on host " + TestHosts::Name(other) +
                                ")";
    EXPECT_TRUE(harness::LastErrorHas(culprit)) << ncclGetLastError(nullptr);
    // The rank that notices it first names the NIC, and informs the other rank that it gives up.
    context.Set(kNamedCell + context.rank(), 1 + (harness::LastErrorHas("over eth" + std::to_string(nic)) ? 1 : 0));
    EXPECT_GE(context.Await(kNamedCell) + context.Await(kNamedCell + 1), 3u) << ncclGetLastError(nullptr);
    const uint64_t start = NowNs();
    EXPECT_OK(ncclCommAbort(clique->comm()));
    EXPECT_LT(NowNs() - start, harness::AllowedNs(100));
    clique->ForgetComms();
  });
}

INSTANTIATE_TEST_SUITE_P(Nics, PulledTest, testing::Values(0, 1),
                         [](const auto& info) { return "Eth" + std::to_string(info.param); });

}  // namespace
}  // namespace axccl::tests
