// How many connections the processes of several hosts hold: a lifeline between any two, and data lines only where data
// goes.
#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/harness/client.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::LastErrorHas;
using harness::RankContext;
using harness::TestHosts;

constexpr int kHosts = 4, kOnEach = 3;

// Of this process, with other hosts.
int Connections() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  int count = 0;
  while (const dirent* const entry = readdir(folder.get())) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (getpeername(std::atoi(entry->d_name), reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    count += peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
  }
  return count;
}

// Those of ranks that meet are still being closed when a rank returns; a line is handed over before it is counted.
bool Settles(RankContext& context, int expected) {
  while (Connections() != expected && !context.AnyFailed()) usleep(1000);
  return Connections() == expected;
}

void AllReduce(const harness::Clique& clique, ncclComm_t comm, size_t count) {
  std::vector<int> data(count, 1);
  int ranks = 0;
  ASSERT_OK(ncclCommCount(comm, &ranks));
  ASSERT_OK(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, harness::Cuda(clique.stream())));
  ASSERT_OK(axcclStreamSynchronize(clique.stream()));
  EXPECT_EQ(data, std::vector<int>(count, ranks));
}

// Rank r is on host r % kHosts. A hierarchical all-reduce sends over the network only between ranks that have the same
// place on their hosts: a process needs a data line to one process of each other host.
TEST(LinesTest, DataLinesLeadOnlyWhereDataGoes) {
  RunOnHosts(kHosts, kHosts * kOnEach,
             [](const TestHosts&, RankContext& context) {
               constexpr int kLifelines = (kHosts - 1) * kOnEach;
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               ASSERT_TRUE(Settles(context, kLifelines)) << Connections();
               ASSERT_TRUE(context.Barrier());
               // Nor does what ranks tell each other to make a communicator, and to destroy it.
               ncclComm_t half = nullptr;
               ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() / (kHosts * kOnEach / 2), 0, &half, nullptr));
               ASSERT_OK(ncclCommDestroy(half));
               EXPECT_EQ(Connections(), kLifelines);
               ASSERT_TRUE(context.Barrier());
               for (const size_t count : {1u, 1000u, 500'000u}) AllReduce(clique, clique.comm(), count);
               ASSERT_TRUE(context.Barrier());
               EXPECT_EQ(Connections(), kLifelines + kHosts - 1);
               ASSERT_TRUE(context.Barrier());
             },
             {{"NCCL_ALGO", "hierarchical"}, {"AXCCL_NET_MEASURE", "never"}});
}

// A rank that has not heard anything from another one learns all the same that it has destroyed its communicator.
TEST(LinesTest, TheEndOfACommunicatorIsKnownWithoutADataLine) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               {
                 harness::Clique clique;
                 ASSERT_TRUE(clique.Init(context));
                 if (context.rank() == 1) {
                   int data = 1;
                   ASSERT_OK(ncclRecv(&data, 1, ncclInt32, 0, clique.comm(), harness::Cuda(clique.stream())));
                   EXPECT_NE(axcclStreamSynchronize(clique.stream()), ncclSuccess);
                   EXPECT_TRUE(LastErrorHas("has destroyed or aborted its communicator")) << ncclGetLastError(nullptr);
                 }
               }
               ASSERT_TRUE(context.Barrier());  // its process has not ended
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

}  // namespace
}  // namespace axccl::tests
