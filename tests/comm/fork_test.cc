// Ranks made by fork: what programs for NCCL on one node do. The parent calls ncclGetUniqueId and forks; each child
// calls ncclCommInitRank. The parent may be a rank itself, or wait for its children and serve their meeting. Nothing
// else survives a fork, and children that come too late are told so.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// A process of its own, as the test's never uses the library.
void InAProcess(const std::function<void()>& body, RunOptions options = {}) {
  RunRanks(
      Processes(1), [&](RankContext&) { body(); }, options);
}

// Exits with what `body` returns; ends in any case.
pid_t Fork(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(body());
  }
  return pid;
}

// 0 when all children ended well.
int Await(const std::vector<pid_t>& children) {
  int worst = 0;
  for (const pid_t child : children) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) worst = status;
  }
  return worst;
}

// 0 when it went well.
int JoinAndAdd(const ncclUniqueId& id, int rank, int nranks) {
  ncclComm_t comm = nullptr;
  int sum = rank + 1;
  const bool good = ncclCommInitRank(&comm, nranks, id, rank) == ncclSuccess &&
                    ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess &&
                    axcclStreamSynchronize(nullptr) == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess;
  if (good && sum == nranks * (nranks + 1) / 2) return 0;
  std::fprintf(stderr, "rank %d: sum %d, %s\n", rank, sum, ncclGetLastError(nullptr));
  return 1;
}

std::vector<pid_t> ForkRanks(const ncclUniqueId& id, int first, int nranks) {
  std::vector<pid_t> children;
  for (int rank = first; rank < nranks; ++rank)
    children.push_back(Fork([&, rank] { return JoinAndAdd(id, rank, nranks); }));
  return children;
}

// 0 when a child forked now is refused, and told why.
int ForkRefused() {
  return Await({Fork([] {
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    if (ncclGetUniqueId(&id) != ncclInvalidUsage) return 1;
    const char* const why = ncclGetLastError(nullptr);
    if (std::strstr(why, "forked after its parent had used the library for more than ncclGetUniqueId") == nullptr)
      return 2;
    if (ncclCommInitRank(&comm, 1, id, 0) != ncclInvalidUsage) return 3;
    void* memory = nullptr;
    if (ncclMemAlloc(&memory, 64) != ncclInvalidUsage) return 4;
    return 0;
  })});
}

TEST(ForkedRanks, MeetWhileTheirParentWaits) {
  InAProcess([] {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    EXPECT_EQ(Await(ForkRanks(id, 0, 4)), 0);
  });
}

TEST(ForkedRanks, MeetTheirParentWhichIsARank) {
  InAProcess([] {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    const std::vector<pid_t> children = ForkRanks(id, 1, 4);
    EXPECT_EQ(JoinAndAdd(id, 0, 4), 0);
    EXPECT_EQ(Await(children), 0);
    EXPECT_EQ(ForkRefused(), 0);
    EXPECT_OK(ncclGetUniqueId(&id)) << "the parent goes on";
    EXPECT_EQ(JoinAndAdd(id, 0, 1), 0);
  });
}

TEST(ForkedRanks, ComeAgainWithAnotherId) {
  InAProcess([] {
    for (int generation = 0; generation < 3; ++generation) {
      ncclUniqueId id;
      ASSERT_OK(ncclGetUniqueId(&id));
      EXPECT_EQ(Await(ForkRanks(id, 0, 2)), 0);
    }
  });
}

TEST(ForkedRanks, MayBeGrandchildren) {
  InAProcess([] {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    const pid_t child = Fork([&] {
      if (Await(ForkRanks(id, 0, 2)) != 0) return 1;
      // The child may do as its parent does, and its children as it.
      ncclUniqueId own;
      if (ncclGetUniqueId(&own) != ncclSuccess) return 2;
      const std::vector<pid_t> grandchildren = ForkRanks(own, 1, 3);
      if (JoinAndAdd(own, 0, 3) != 0) return 3;
      return Await(grandchildren) == 0 && ForkRefused() == 0 ? 0 : 4;
    });
    EXPECT_EQ(Await({child}), 0);
    ASSERT_OK(ncclGetUniqueId(&id)) << "what its children did is theirs";
    EXPECT_EQ(Await(ForkRanks(id, 0, 2)), 0);
  });
}

TEST(ForkedRanks, AreRefusedOnceTheParentHasDoneMore) {
  InAProcess([] {
    void* memory = nullptr;
    ASSERT_OK(ncclMemAlloc(&memory, 64));
    EXPECT_EQ(ForkRefused(), 0);
    EXPECT_OK(ncclMemFree(memory));
  });
  InAProcess([] {
    axcclStream_t stream = nullptr;
    ASSERT_OK(axcclStreamCreate(&stream, axcclStreamDefault));
    EXPECT_EQ(ForkRefused(), 0);
    EXPECT_OK(axcclStreamDestroy(stream));
  });
}

// The service thread reads parameters and writes log lines, under locks that a child must not find taken by a thread
// that it does not have. It is busy with the ranks of a round while more children are forked.
TEST(ForkedRanks, FindNoLockTakenByTheThreadThatServesOthers) {
  RunOptions options;
  options.environment = {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", "/dev/null"}};
  InAProcess(
      [] {
        std::vector<pid_t> children;
        for (int round = 0; round < 50; ++round) {
          ncclUniqueId id;
          ASSERT_OK(ncclGetUniqueId(&id));
          children = ForkRanks(id, 0, 2);
          for (int i = 0; i < 4; ++i) {
            children.push_back(Fork([] {
              ncclUniqueId own;
              return ncclGetUniqueId(&own) == ncclSuccess ? 0 : 1;
            }));
          }
          ASSERT_EQ(Await(children), 0) << "round " << round;
        }
      },
      options);
}

}  // namespace
}  // namespace axccl::tests
