// Ranks on several hosts that do not find each other: each gets an error that gives the remedy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/mounts.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::LastErrorHas;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::TestHosts;

struct Nowhere {
  const char* name;
  const char* comm_id;
  const char* text;
};

class UnreachableTest : public testing::TestWithParam<Nowhere> {};

// NCCL_COMM_ID names an address that cannot be reached; the network reports that, or sends nothing at all.
TEST_P(UnreachableTest, AddressIsNamedByTheDeadline) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  ASSERT_TRUE(hosts->Cut(0, TestHosts::Way::kBoth));
  RunOptions options;
  options.hosts = hosts.get();
  options.environment = {
      {"NCCL_COMM_ID", GetParam().comm_id}, {"AXCCL_SECRET", "nobody's but theirs"}, {"AXCCL_INIT_TIMEOUT", "0.5"}};
  RunRanks(
      Processes(2),
      [](RankContext& context) {
        if (context.rank() == 0) return;
        ncclUniqueId id;
        ASSERT_OK(ncclGetUniqueId(&id));
        ncclComm_t comm = nullptr;
        EXPECT_NE(ncclCommInitRank(&comm, 2, id, 1), ncclSuccess);
        EXPECT_TRUE(LastErrorHas("rank 1")) << ncclGetLastError(nullptr);
        EXPECT_TRUE(LastErrorHas(GetParam().comm_id)) << ncclGetLastError(nullptr);
        EXPECT_TRUE(LastErrorHas(GetParam().text)) << ncclGetLastError(nullptr);
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Addresses, UnreachableTest,
                         testing::Values(Nowhere{"NoRoute", "10.99.0.1:4711", "Network is unreachable"},
                                         Nowhere{"NoAnswer", "10.77.0.1:4711", "is there a firewall"},
                                         Nowhere{"NoAnswerIPv6", "[fd77::1]:4711", "is there a firewall"}),
                         [](const auto& info) { return info.param.name; });

// Nothing reaches the address of the id: on both sides, the error names what the rank waits for.
TEST(Unreachable, IdOfAnotherHost) {
  RunOnHosts(2, 2,
             [](const TestHosts& hosts, RankContext& context) {
               ncclUniqueId id;
               ASSERT_TRUE(harness::ShareUniqueId(context, &id));
               if (context.rank() == 0) {
                 ASSERT_TRUE(hosts.Cut(1, TestHosts::Way::kBoth));
               }
               ASSERT_TRUE(context.Barrier(1));
               ncclComm_t comm = nullptr;
               EXPECT_NE(ncclCommInitRank(&comm, 2, id, context.rank()), ncclSuccess);
               EXPECT_TRUE(LastErrorHas(context.rank() == 0 ? "for rank 1 of 2" : "10.77.0.1:"))
                   << ncclGetLastError(nullptr);
             },
             {{"AXCCL_INIT_TIMEOUT", "0.5"}});
}

// The kernel still looks for duplicates of the IPv6 address of the interface, whose IPv4 address works.
TEST(TentativeAddress, DelaysNoId) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  const std::string tentative =
      "echo 1000 > /proc/sys/net/ipv6/conf/eth0/dad_transmits && ip -6 addr flush dev eth0 &&"
      "ip addr add fd77::77/64 dev eth0 && ip -6 addr show dev eth0 tentative | grep -q fd77::77";
  if (hosts->Run(0, {"sh", "-c", tentative}) != 0) GTEST_SKIP() << "/proc/sys cannot be written";
  RunOptions options;
  options.hosts = hosts.get();
  RunRanks(
      Processes(2),
      [](RankContext& context) {
        harness::Clique clique;
        EXPECT_TRUE(clique.Init(context));
      },
      options);
}

class LateNetworkTest : public testing::TestWithParam<int> {};

// Linux gives a host up (EHOSTUNREACH) after three lost packets of ARP. The network begins to work only then: of the
// only NIC, over which ranks meet, or of the second one.
TEST_P(LateNetworkTest, UnreachableHostIsCalledAgain) {
  const int nic = GetParam();
  RunOnHosts(
      2, 2,
      [nic](const TestHosts& hosts, RankContext& context) {
        const std::string name = TestHosts::Interface(nic);
        std::thread healer;
        if (context.rank() == 0) {
          for (int host = 0; host < 2; ++host)
            EXPECT_EQ(hosts.Run(host, {"ip", "ntable", "change", "name", "arp_cache", "dev", name, "retrans", "100"}),
                      0);
          EXPECT_TRUE(hosts.CutNic(1, nic));
          healer = std::thread([&hosts, &name, &context] {
            const std::vector<std::string> given_up = {"sh", "-c",
                                                       "ip neigh show dev " + name + " nud failed | grep -q 10.7"};
            while (hosts.Run(0, given_up) != 0 && hosts.Run(1, given_up) != 0 && !context.AnyFailed()) continue;
            EXPECT_TRUE(hosts.Heal(1));
          });
        }
        EXPECT_TRUE(context.Barrier(1));
        harness::Clique clique;
        EXPECT_TRUE(clique.Init(context));
        std::vector<int> data(1'000'000, context.rank() + 1);  // enough to take all rails
        EXPECT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                                harness::Cuda(clique.stream())));
        EXPECT_OK(axcclStreamSynchronize(clique.stream()));
        EXPECT_EQ(data, std::vector<int>(data.size(), 3));
        if (healer.joinable()) healer.join();
      },
      {{"NCCL_SOCKET_FAMILY", "AF_INET"}}, nic + 1);
}

INSTANTIATE_TEST_SUITE_P(Nics, LateNetworkTest, testing::Values(0, 1));

// A rank that has come waits for the last one, with nothing to send. The network is interrupted for longer than two
// probes of the kernel take.
TEST(IdleMeeting, BearsAnInterruption) {
  constexpr int kLate = 2, kHere = 20;
  RunOnHosts(2, 3, [](const TestHosts& hosts, RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    std::thread watcher;
    if (context.rank() == 1) {
      watcher = std::thread([&context] {
        while (TestHosts::Connections().empty() && !context.AnyFailed()) usleep(1000);
        context.Set(kHere, 1);
      });
    } else if (context.rank() == kLate) {
      context.Await(kHere);
      usleep(500'000);  // of quiet
      EXPECT_TRUE(hosts.Cut(1, TestHosts::Way::kBoth));
      usleep(4'000'000);
      EXPECT_TRUE(hosts.Heal(1));
    }
    ncclComm_t comm = nullptr;
    EXPECT_OK(ncclCommInitRank(&comm, context.nranks(), id, context.rank()));
    if (watcher.joinable()) watcher.join();
    if (comm == nullptr) return;
    harness::ExpectShape(comm, context.nranks(), context.rank());
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

// For example in a chroot in which /sys is not mounted.
TEST(WithoutSys, TcpNeedsNone) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    ASSERT_TRUE(harness::MountOver("tmpfs", "/sys"));
    harness::Clique clique;
    EXPECT_TRUE(clique.Init(context));
  });
}

#ifdef AXCCL_UCX
TEST(WithoutSys, UcxSaysWhatIsMissing) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               ncclUniqueId id;
               ASSERT_TRUE(harness::ShareUniqueId(context, &id));
               ASSERT_TRUE(harness::MountOver("tmpfs", "/sys"));
               ncclComm_t comm = nullptr;
               EXPECT_NE(ncclCommInitRank(&comm, 2, id, context.rank()), ncclSuccess);
               EXPECT_TRUE(LastErrorHas("is /sys mounted?")) << ncclGetLastError(nullptr);
             },
             {{"AXCCL_NET", "ucx"}});
}

// ---- what is chosen ----

TEST(Choice, EncryptionNeedsTcp) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               ncclUniqueId id;
               ASSERT_TRUE(harness::ShareUniqueId(context, &id));
               ncclComm_t comm = nullptr;
               EXPECT_EQ(ncclCommInitRank(&comm, 2, id, context.rank()), ncclInvalidUsage);
               EXPECT_TRUE(LastErrorHas("AXCCL_ENCRYPT=auth needs TCP: unset AXCCL_NET=ucx"))
                   << ncclGetLastError(nullptr);
             },
             {{"AXCCL_NET", "ucx"}, {"AXCCL_ENCRYPT", "auth"}});
}

// A process that prefers UCX meets one that has TCP only.
TEST(Choice, UcxOnOneSideOnlyIsTcp) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    setenv("AXCCL_NET", context.rank() == 0 ? "ucx" : "tcp", 1);
    setenv("AXCCL_TRUST_NETWORK", "1", 1);
    harness::Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int> data(100'000, context.rank() + 1);
    ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                            harness::Cuda(clique.stream())));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data, std::vector<int>(100'000, 3));
  });
}
#endif

TEST(Choice, EncryptionThatDiffersIsAnErrorOnBoth) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    setenv("AXCCL_ENCRYPT", context.rank() == 0 ? "1" : "0", 1);
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, context.rank()), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("AXCCL_ENCRYPT is ")) << ncclGetLastError(nullptr);
    EXPECT_TRUE(LastErrorHas("set it alike on all ranks")) << ncclGetLastError(nullptr);
  });
}

#ifdef AXCCL_UCX
// UCX's ports accept any connection. Each process reports that once on standard error, also without a log, unless the
// user has named the network, or declared it trusted.
struct Trust {
  const char* name;
  std::vector<std::pair<std::string, std::string>> environment;
  int times;
};

class OpenPortsTest : public testing::TestWithParam<Trust> {};

int Count(const std::string& text, const std::string& part) {
  int times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

TEST_P(OpenPortsTest, AreReportedUnlessTheNetworkIsNamedOrTrusted) {
  auto environment = GetParam().environment;
  environment.insert(environment.begin(), {"NCCL_SOCKET_IFNAME", ""});
  environment.emplace_back("NCCL_DEBUG", "");
  environment.emplace_back("AXCCL_NET", "ucx");
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        testing::internal::CaptureStderr();
        for (int round = 0; round < 2; ++round) {
          harness::Clique clique;
          EXPECT_TRUE(clique.Init(context));
        }
        const std::string errors = testing::internal::GetCapturedStderr();
        EXPECT_EQ(Count(errors, "UCX, whose TCP ports"), GetParam().times) << errors;
        EXPECT_EQ(Count(errors, "AXCCL_TRUST_NETWORK=1"), GetParam().times) << errors;
        EXPECT_EQ(Count(errors, context.rank() == 0 ? "at 10.77.0.1)" : "at 10.77.0.2)"), GetParam().times) << errors;
      },
      environment);
}

INSTANTIATE_TEST_SUITE_P(Networks, OpenPortsTest,
                         testing::Values(Trust{"Unnamed", {}, 1}, Trust{"Named", {{"NCCL_SOCKET_IFNAME", "eth"}}, 0},
                                         Trust{"Trusted", {{"AXCCL_TRUST_NETWORK", "1"}}, 0},
                                         Trust{"NotTrusted", {{"AXCCL_TRUST_NETWORK", "0"}}, 1}),
                         [](const auto& info) { return info.param.name; });
#endif

// Who asks for encryption, and mistypes it, gets no communicator that sends in clear.
TEST(EncryptionTest, AMistypedSettingIsAnError) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               ncclUniqueId id;
               ASSERT_TRUE(harness::ShareUniqueId(context, &id));
               ncclComm_t comm = nullptr;
               EXPECT_EQ(ncclCommInitRank(&comm, 2, id, context.rank()), ncclInvalidUsage);
               EXPECT_TRUE(LastErrorHas("AXCCL_ENCRYPT=true (environment)")) << ncclGetLastError(nullptr);
               EXPECT_TRUE(LastErrorHas("one of 0|auth|1")) << ncclGetLastError(nullptr);
               ASSERT_TRUE(context.Barrier());
             },
             {{"AXCCL_ENCRYPT", "true"}});
}

}  // namespace
}  // namespace axccl::tests
