// Calls of all kinds between ranks on several hosts, on networks of all qualities: right results, no errors.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/collectives/cases.h"
#include "tests/collectives/owned_view.h"
#include "tests/collectives/view_runner.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/containers.h"
#include "tests/harness/gpu.h"
#include "tests/harness/mounts.h"
#include "tests/net/run_on_hosts.h"
#include "transports/ucx/devices.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::Case;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::DeviceVector;
using harness::Fold;
using harness::Layout;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;
using harness::TestHosts;

// The amount of each kind of work in a run.
struct Load {
  int cases = 60;
  size_t most_bytes = size_t{256} << 10;
  int views = 40;
  int64_t most_elements = 20000;
  size_t message = 100000;  // elements
};

struct Network {
  const char* name;
  int hosts;
  Layout layout;
  const char* family = "AF_INET";
  double loss = 0;  // percent
  const char* rate = nullptr;
  Load load = {};
  int nics = 1;
};

void RunCases(RankContext& context, Clique& clique, const Load& load) {
  CaseRunner runner(context, clique, size_t{8} << 20);
  Random random(Scramble(Seed(), 1));
  for (int i = 0; i < load.cases; ++i) {
    ASSERT_TRUE(runner.Enqueue(RandomCase(&random, clique.nranks(), random.OneIn(6) ? load.most_bytes : 2000), {}));
    if (random.OneIn(8)) {
      ASSERT_TRUE(runner.Finish());
    }
  }
  ASSERT_TRUE(runner.Finish());
}

void RunViews(RankContext& context, Clique& clique, const Load& load) {
  ViewRunner runner(context, clique);
  Random random(Scramble(Seed(), 2));
  for (int i = 0; i < load.views; ++i) {
    ASSERT_TRUE(
        runner.Enqueue({AnyViewCase(&random, clique.nranks(), random.OneIn(8) ? load.most_elements : 300)}, true));
  }
  ASSERT_TRUE(runner.Finish());
}

// Gathered along dimension 1: rows of all ranks side by side.
void GatherColumns(Clique& clique, int64_t rows, int64_t columns) {
  const int64_t n = clique.nranks();
  std::vector<DeviceVector<int32_t>> in, out;
  for (int i = 0; i < clique.size(); ++i) {
    in.emplace_back(static_cast<size_t>(rows * columns));
    for (size_t k = 0; k < in.back().size(); ++k) in.back()[k] = clique.rank(i) * 1000000 + static_cast<int32_t>(k);
    out.emplace_back(static_cast<size_t>(rows * columns * n));
  }
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    const View from(in[static_cast<size_t>(i)].data(), {rows, columns});
    const View to(out[static_cast<size_t>(i)].data(), {rows, columns * n});
    ASSERT_OK(axcclAllGather(1, from, to, 1, axcclDefaultChannel(clique.comm(i)), nullptr, Cuda(clique.stream(i))));
  }
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
  for (const auto& result : out) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns * n; ++c)
        ASSERT_EQ(result[static_cast<size_t>(r * columns * n + c)], c / columns * 1000000 + r * columns + c % columns);
  }
}

// Every rank sends to the next one and receives from the previous one.
void SendAround(Clique& clique, size_t elements) {
  const int n = clique.nranks();
  std::vector<DeviceVector<int32_t>> in, out;
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    const int rank = clique.rank(i);
    in.emplace_back(elements, rank + 1);
    out.emplace_back(elements, -1);
    ASSERT_OK(ncclSend(in.back().data(), elements, ncclInt32, (rank + 1) % n, clique.comm(i), Cuda(clique.stream(i))));
    ASSERT_OK(
        ncclRecv(out.back().data(), elements, ncclInt32, (rank + n - 1) % n, clique.comm(i), Cuda(clique.stream(i))));
  }
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
  for (int i = 0; i < clique.size(); ++i) {
    const DeviceVector<int32_t> expected(elements, (clique.rank(i) + n - 1) % n + 1);
    ASSERT_EQ(out[static_cast<size_t>(i)], expected);
  }
}

// Splits into halves that have ranks of all hosts, in reverse order.
void SumOfHalf(Clique& clique) {
  const int rank = clique.rank(0), n = clique.nranks();
  ncclComm_t half = nullptr;
  ASSERT_OK(ncclCommSplit(clique.comm(), rank / ((n + 1) / 2), n - rank, &half, nullptr));
  DeviceVector<int> sum(1, rank);
  int expected = 0;
  for (int k = 0; k < n; ++k) expected += k / ((n + 1) / 2) == rank / ((n + 1) / 2) ? k : 0;
  ASSERT_OK(ncclAllReduce(sum.data(), sum.data(), 1, ncclInt32, ncclSum, half, Cuda(clique.stream())));
  ASSERT_OK(harness::SynchronizeStream(clique.stream()));
  EXPECT_EQ(sum[0], expected);
  ASSERT_OK(ncclCommDestroy(half));
}

// The number of segments that this host has retransmitted so far.
int64_t Retransmitted() {
  std::ifstream counters("/proc/net/snmp");
  std::string line, names;
  while (std::getline(counters, line)) {
    if (!line.starts_with("Tcp:")) continue;
    if (names.empty()) {
      names = line;
      continue;
    }
    std::istringstream name(names), value(line);
    for (std::string n, v; name >> n && value >> v;)
      if (n == "RetransSegs") return std::stoll(v);
  }
  return -1;
}

// The bytes that this host has received in packets of the family.
int64_t Received(std::string_view family, int nics) {
  int64_t all = 0, six = -1;
  for (int nic = 0; nic < nics; ++nic) all += TestHosts::Counter(nic, "rx_bytes");
  std::ifstream counters("/proc/net/snmp6");
  std::string name;
  while (counters >> name >> six && name != "Ip6InOctets") continue;
  return family == "AF_INET6" ? six : all - six;
}

// Packets are lost by chance: sends until each host has had to send one again.
void SendUntilSomeAreLost(RankContext& context, Clique& clique, size_t elements) {
  ASSERT_TRUE(context.Step("until packets are lost"));
  for (bool all = false; !all;) {
    ASSERT_NO_FATAL_FAILURE(SendAround(clique, elements));
    for (int i = 0; i < context.local_ranks(); ++i)
      context.board()[context.first_rank() + i] = std::byte{Retransmitted() > 0};
    ASSERT_TRUE(context.Barrier());
    all = true;
    for (int r = 0; r < context.nranks(); ++r) all &= context.board()[r] != std::byte{0};
    ASSERT_TRUE(context.Barrier());
  }
}

class NetworkTest : public testing::TestWithParam<Network> {};

TEST_P(NetworkTest, CallsOfAllKindsAreRight) {
  const Network& network = GetParam();
  const auto hosts = TestHosts::Create(network.hosts, network.nics);
  ASSERT_NE(hosts, nullptr);
  for (int host = 0; host < network.hosts; ++host) {
    ASSERT_TRUE(network.rate == nullptr || hosts->Limit(host, network.rate));
    ASSERT_TRUE(hosts->Lose(host, network.loss / 2));  // half of the loss at each end
  }
  RunOptions options;
  options.hosts = hosts.get();
  options.environment = {{"NCCL_SOCKET_FAMILY", network.family}, {"NCCL_SOCKET_IFNAME", "eth"}};
  options.deadline = std::chrono::seconds(40);
  RunRanks(
      network.layout,
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_TRUE(context.Step("collectives"));
        ASSERT_NO_FATAL_FAILURE(RunCases(context, clique, network.load));
        ASSERT_TRUE(context.Step("views"));
        ASSERT_NO_FATAL_FAILURE(RunViews(context, clique, network.load));
        ASSERT_NO_FATAL_FAILURE(GatherColumns(clique, 37, static_cast<int64_t>(network.load.message / 100)));
        ASSERT_TRUE(context.Step("messages"));
        ASSERT_NO_FATAL_FAILURE(SendAround(clique, network.load.message));
        if (clique.size() == 1) {
          ASSERT_TRUE(context.Step("split"));
          ASSERT_NO_FATAL_FAILURE(SumOfHalf(clique));
        }
        if (network.loss > 0) {
          ASSERT_NO_FATAL_FAILURE(SendUntilSomeAreLost(context, clique, network.load.message));
        }
        ASSERT_TRUE(context.Step("end"));
        EXPECT_GT(Received(network.family, network.nics), int64_t{100000}) << "the data took another way";
      },
      options);
}

// ---- ranks of one machine that share no memory ----

struct Apart {
  const char* name;
  bool networks = false;    // processes alternate between two network namespaces,
  bool containers = false;  // in two PID namespaces,
  bool users = false;       // belong to two users, the first half and the second,
  bool ids = false;         // have two NCCL_HOSTIDs, likewise
  const char* logged_by_rank_0;
};

class ApartTest : public testing::TestWithParam<Apart> {};

void BecomeAnother(const Apart& apart, const RankContext& context) {
  if (context.rank() < context.nranks() / 2) return;
  if (apart.ids) setenv("NCCL_HOSTID", "another", 1);
  ASSERT_TRUE(!apart.users || setresuid(65534, 65534, 65534) == 0);
}

TEST_P(ApartTest, RanksSendMessagesAndLogWhy) {
  const Apart& apart = GetParam();
  const auto hosts = apart.networks ? TestHosts::Create(2) : nullptr;
  const auto containers = apart.containers ? harness::Containers::Create(2) : nullptr;
  ASSERT_EQ(hosts != nullptr, apart.networks);
  ASSERT_EQ(containers != nullptr, apart.containers);
  RunOptions options;
  options.hosts = hosts.get();
  options.containers = containers.get();
  options.environment = {{"NCCL_DEBUG", "INFO"}};
  const std::string log = testing::TempDir() + "axccl_apart." + std::to_string(getpid()) + ".";
  RunRanks(
      harness::Processes(4),
      [&](RankContext& context) {
        // The log's name does not use the process's id, which is not unique here.
        const std::string own = log + std::to_string(context.rank());
        setenv("NCCL_DEBUG_FILE", own.c_str(), 1);
        ASSERT_NO_FATAL_FAILURE(BecomeAnother(apart, context));
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_NO_FATAL_FAILURE(RunCases(context, clique, {20, size_t{64} << 10}));
        ASSERT_NO_FATAL_FAILURE(GatherColumns(clique, 37, 500));
        ASSERT_NO_FATAL_FAILURE(SendAround(clique, 20000));
        std::ifstream stream(own);
        const std::string text{std::istreambuf_iterator<char>(stream), {}};
        const std::string logged =
            " rank 0 shares no memory with these and sends them messages: " + std::string(apart.logged_by_rank_0) +
            "\n";
        EXPECT_EQ(text.find(logged) != std::string::npos, context.rank() == 0) << text;
        EXPECT_EQ(unlink(own.c_str()), 0);
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ApartTest,
    testing::Values(Apart{"Containers", false, true, false, false, "ranks 1, 3 (another PID namespace)"},
                    Apart{"ContainersWithNetworks", true, true, false, false, "ranks 1, 3 (another network namespace)"},
                    Apart{"Users", false, false, true, false, "ranks 2, 3 (another user)"},
                    Apart{"UsersInContainers", false, true, true, false,
                          "rank 1 (another PID namespace), ranks 2, 3 (another user)"},
                    Apart{"HostIds", false, true, false, true,
                          "rank 1 (another PID namespace), ranks 2, 3 (another NCCL_HOSTID)"}),
    [](const auto& info) { return info.param.name; });

// In each container, the number of the peer's process is that of the own one, whose addresses are the same. Without
// /proc, processes cannot tell that they are in different containers.
TEST(Sharing, ReadsNoProcessThatHasThePeersNumber) {
  const auto containers = harness::Containers::Create(2);
  ASSERT_NE(containers, nullptr);
  RunOptions options;
  options.containers = containers.get();
  options.environment = {{"NCCL_ALGO", "direct"}};  // reads the memory of peers, if it may
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        ASSERT_TRUE(harness::MountOver("tmpfs", "/proc"));
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const char* link = nullptr;
        ASSERT_OK(axcclCommGetLink(clique.comm(), 1 - context.rank(), &link));
        EXPECT_STREQ(link, "shm");
        ASSERT_NO_FATAL_FAILURE(SendAround(clique, 20000));
        const std::vector<int32_t> in(size_t{1} << 18, context.rank() + 1);
        std::vector<int32_t> out(in.size());
        const cudaStream_t stream = Cuda(clique.stream());
        ASSERT_OK(ncclAllReduce(in.data(), out.data(), in.size(), ncclInt32, ncclSum, clique.comm(), stream));
        ASSERT_OK(harness::SynchronizeStream(clique.stream()));
        EXPECT_EQ(out, std::vector<int32_t>(in.size(), 3));
        EXPECT_EQ(umount2("/proc", MNT_DETACH), 0);  // LeakSanitizer reads it at the end
      },
      options);
}

// Separate mount, UTS and IPC namespaces do not prevent sharing.
TEST(Sharing, IsNotPreventedByMountsAndNames) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_EQ(unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC), 0);
    ASSERT_EQ(sethostname(context.rank() == 0 ? "a" : "b", 1), 0);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_NO_FATAL_FAILURE(SendAround(clique, 20000));
    const char* link = nullptr;
    ASSERT_OK(axcclCommGetLink(clique.comm(), 1 - context.rank(), &link));
    EXPECT_TRUE(std::string(link).starts_with("shm")) << link;
  });
}

// ---- devices ----

TEST(Devices, InfiniBandThatIsNotThereIsAnErrorOnEveryRank) {
  if (!ucx::ListPorts("").empty()) GTEST_SKIP() << "this machine has such an adapter";
  const auto refused = [](const TestHosts&, RankContext& context) {
    harness::ExpectNoInit(context, ncclInvalidUsage, {"NCCL_NET=IB", "there are: none"});
  };
  RunOnHosts(2, 2, refused, {{"NCCL_NET", "ib"}});
}

// ---- networks ----

constexpr Load kLittle{20, size_t{32} << 10, 10, 3000, 20000};

INSTANTIATE_TEST_SUITE_P(
    Networks, NetworkTest,
    testing::Values(
        Network{"TwoHosts", 2, {2, 1, 1}}, Network{"TwoHostsIPv6", 2, {2, 1, 1}, "AF_INET6"},
        Network{"TwoHostsOfTwo", 2, {4, 1, 1}}, Network{"TwoHostsOfTwoThreads", 2, {2, 2, 1}, "AF_INET6"},
        Network{"FourHostsOfTwo", 4, {8, 1, 1}, "AF_INET", 0, nullptr, {40, 65536, 15, 3000, 20000}},
        Network{"OnePercentLost", 2, {2, 1, 1}, "AF_INET", 1, nullptr, {400, 100000, 100, 20000, 100000}},
        Network{"TenPercentLost", 2, {2, 1, 1}, "AF_INET", 10, nullptr, {100, 65536, 30, 3000, 20000}},
        Network{"TwoNics", 2, {2, 1, 1}, "AF_INET", 0, nullptr, {60, 200000, 40, 20000, 1000000}, 2},
        Network{"ThreeNicsIPv6", 3, {3, 2, 1}, "AF_INET6", 0, nullptr, {40, 200000, 15, 20000, 300000}, 3},
        Network{"TwoNicsOnePercentLost", 2, {2, 1, 1}, "AF_INET", 1, nullptr, {200, 200000, 50, 20000, 1000000}, 2},
        Network{"TenMegabits", 2, {4, 1, 1}, "AF_INET6", 0, "10mbit", kLittle}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace axccl::tests
