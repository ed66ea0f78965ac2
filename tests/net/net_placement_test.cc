// Ranks on hosts with two NICs on the same network: each process uses the one that is near it, and reaches all others.
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <string>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/folder.h"
#include "tests/harness/test_hosts.h"

namespace axccl::tests {
namespace {

using harness::CaseRunner;
using harness::Clique;
using harness::RankContext;
using harness::RunRanks;
using harness::TestHosts;

// Adds a second interface on the cable of the first; false if the kernel does not support it.
bool AddInterface(const TestHosts& hosts, int host) {
  const std::string last = std::to_string(101 + host);
  return hosts.Run(host, {"ip", "link", "add", "eth1", "link", "eth0", "type", "macvlan", "mode", "bridge"}) == 0 &&
         hosts.Run(host, {"ip", "address", "add", "10.77.0." + last + "/24", "dev", "eth1"}) == 0 &&
         hosts.Run(host, {"ip", "address", "add", "fd77::" + last + "/64", "dev", "eth1", "nodad"}) == 0 &&
         hosts.Run(host, {"ip", "link", "set", "eth1", "up"}) == 0;
}

// Two nodes, each with a processor and a NIC.
std::string TwoNodes() {
  cpu_set_t set;
  std::string text = "axccl-topology 1\nnode 0 bytes 1073741824\nnode 1 bytes 1073741824\n", nics;
  int node = 0;
  for (int p = 0; sched_getaffinity(0, sizeof(set), &set) == 0 && p < CPU_SETSIZE && node < 2; ++p) {
    if (!CPU_ISSET(p, &set)) continue;
    const std::string at = " node " + std::to_string(node);
    text += "package\nl3 0" + at + "\ncore processors " + std::to_string(p) + "\n";
    nics += "nic eth" + std::to_string(node++) + " kind ethernet speed 10000" + at + "\n";
  }
  return node == 2 ? text + nics : "";
}

TEST(NetPlacement, EachProcessUsesTheNearNicAndReachesAll) {
  const std::string machine = TwoNodes();
  if (machine.empty()) GTEST_SKIP() << "needs two processors";
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  if (!AddInterface(*hosts, 0) || !AddInterface(*hosts, 1)) GTEST_SKIP() << "the kernel has no macvlan";
  const harness::Folder folder;
  std::ofstream(folder.Path("machine")) << machine;
  harness::RunOptions options;
  options.hosts = hosts.get();
  options.environment = {{"NCCL_TOPO_FILE", folder.Path("machine")},
                         {"NCCL_SOCKET_IFNAME", "eth"},
                         {"NCCL_DEBUG", "INFO"},
                         {"NCCL_DEBUG_SUBSYS", "NET"}};
  RunRanks(
      harness::Processes(4),
      [&](RankContext& context) {
        setenv("NCCL_DEBUG_FILE", folder.Path("log." + std::to_string(context.rank())).c_str(), 1);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        CaseRunner runner(context, clique, size_t{4} << 20);
        harness::Random random(harness::Scramble(harness::Seed(), 1));
        for (int i = 0; i < 20; ++i) ASSERT_TRUE(runner.Run(RandomCase(&random, clique.nranks(), 100000), {}));
      },
      options);
  // Ranks 0 and 2 share a host, and so do 1 and 3.
  for (int rank = 0; rank < 4; ++rank) {
    const std::string log = harness::Contents(folder.Path("log." + std::to_string(rank))),
                      near = rank < 2 ? "eth0" : "eth1";
    EXPECT_NE(log.find("placement: of eth0,eth1 this process uses " + near + ","), std::string::npos) << log;
    EXPECT_NE(log.find("between machines: TCP over " + near + " ("), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace axccl::tests
