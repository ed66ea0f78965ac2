// Memory that is requested from a node.
#include "src/topo/memory.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/topo/discover.h"

namespace axccl::test {
namespace {

constexpr size_t kBytes = 1 << 16;

struct Policy {
  int mode = -1;
  unsigned long nodes[16] = {};
};

Policy PolicyOf(void* memory) {
  Policy policy;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &policy.mode, policy.nodes, sizeof(policy.nodes) * 8, memory, MPOL_F_ADDR), 0);
  return policy;
}

TEST(PreferNode, IsWhatTheKernelThenReports) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const Result<topo::Machine> machine = topo::DiscoverByKernel();
  ASSERT_TRUE(machine.ok());
  const int node = machine.value().nodes.back().id;
  if (!topo::PreferNode(memory, kBytes, node)) {
    munmap(memory, kBytes);
    GTEST_SKIP() << "the system does not let processes choose the node of memory";
  }
  const Policy preferred = PolicyOf(memory);
  EXPECT_EQ(preferred.mode, MPOL_PREFERRED);
  EXPECT_EQ(preferred.nodes[node / 64], 1ul << node % 64);
  EXPECT_TRUE(topo::PreferNode(memory, kBytes, topo::kNowhere));
  EXPECT_EQ(PolicyOf(memory).mode, MPOL_DEFAULT);
  // A node that does not exist changes nothing.
  EXPECT_FALSE(topo::PreferNode(memory, kBytes, 1000));
  EXPECT_EQ(PolicyOf(memory).mode, MPOL_DEFAULT);
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace axccl::test
