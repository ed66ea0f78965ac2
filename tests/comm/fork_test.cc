// Ranks made by fork, as NCCL programs on one node do. The parent calls ncclGetUniqueId and forks; each child calls
// ncclCommInitRank. The parent may be a rank itself, or wait for its children and serve their meeting. Nothing else
// survives a fork, and children that are forked too late get an error.
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

// Runs `body` in a separate process, because the test's process never uses the library.
void InAProcess(const std::function<void()>& body, RunOptions options = {}) {
  RunRanks(
      Processes(1), [&](RankContext&) { body(); }, options);
}

// The child exits with the result of `body`; an alarm ends it in any case.
pid_t Fork(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(body());
  }
  return pid;
}

// Returns 0 if all children succeeded.
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

// Returns 0 on success.
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

// Returns 0 if a child forked now gets an error that gives the reason.
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
    EXPECT_OK(ncclGetUniqueId(&id)) << "the parent continues";
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
      // The child may do the same as its parent, and its children the same as it.
      ncclUniqueId own;
      if (ncclGetUniqueId(&own) != ncclSuccess) return 2;
      const std::vector<pid_t> grandchildren = ForkRanks(own, 1, 3);
      if (JoinAndAdd(own, 0, 3) != 0) return 3;
      return Await(grandchildren) == 0 && ForkRefused() == 0 ? 0 : 4;
    });
    EXPECT_EQ(Await({child}), 0);
    ASSERT_OK(ncclGetUniqueId(&id)) << "its children's calls do not affect it";
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

// The memory of ncclMemAlloc is shared with the child, so calls that ran there would change the parent's data.
TEST(ForkedRanks, CannotEndTheirParentsGroup) {
  InAProcess([] {
    ncclComm_t comms[2];
    int* data[2];
    ASSERT_OK(ncclCommInitAll(comms, 2, nullptr));
    ASSERT_OK(ncclGroupStart());
    for (int r = 0; r < 2; ++r) {
      ASSERT_OK(ncclMemAlloc(reinterpret_cast<void**>(&data[r]), sizeof(int)));
      *data[r] = r + 1;
      ASSERT_OK(ncclAllReduce(data[r], data[r], 1, ncclInt32, ncclSum, comms[r], nullptr));
    }
    EXPECT_EQ(Await({Fork([] { return ncclGroupEnd() == ncclInvalidUsage ? 0 : 1; })}), 0);
    EXPECT_EQ(Await({Fork([] { return ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage ? 0 : 1; })}), 0);
    ASSERT_OK(ncclGroupEnd());
    ASSERT_OK(axcclStreamSynchronize(nullptr));
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(*data[r], 3);
      EXPECT_OK(ncclCommDestroy(comms[r]));
      EXPECT_OK(ncclMemFree(data[r]));
    }
  });
}

// The service thread reads parameters and writes log lines, under locks. A child does not have that thread, so it must
// not inherit a lock that the thread holds. The thread serves the ranks of a round while more children are forked.
TEST(ForkedRanks, InheritNoLockOfTheServiceThread) {
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
