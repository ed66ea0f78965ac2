// Limits on a process, and system calls that it may not make: what then works, and errors that name the limit to raise.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/collectives/cases.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/residue.h"
#include "tests/harness/restrict.h"

namespace axccl::tests {
namespace {

using harness::AllocatedBytes;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::ExpectLastErrorHas;
using harness::Layout;
using harness::Limit;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::Refuse;
using harness::Refused;
using harness::ReplaceDevShm;
using harness::RunOptions;
using harness::RunRanks;

// Every rank sends to the next and receives from the previous one: small messages, and one that takes several turns of
// the scratch memory.
void PassOn(Clique& clique) {
  const int n = clique.nranks();
  for (const size_t bytes : {size_t{8}, size_t{5000}, size_t{700'000}}) {
    std::vector<std::vector<uint8_t>> sent, received;
    for (int i = 0; i < clique.size(); ++i) {
      sent.emplace_back(bytes, static_cast<uint8_t>(1 + clique.rank(i)));
      received.emplace_back(bytes, uint8_t{0});
    }
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i) {
      const int r = clique.rank(i);
      auto& from = sent[static_cast<size_t>(i)];
      auto& to = received[static_cast<size_t>(i)];
      ASSERT_OK(ncclSend(from.data(), bytes, ncclUint8, (r + 1) % n, clique.comm(i), Cuda(clique.stream(i))));
      ASSERT_OK(ncclRecv(to.data(), bytes, ncclUint8, (r + n - 1) % n, clique.comm(i), Cuda(clique.stream(i))));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (int i = 0; i < clique.size(); ++i) {
      const auto value = static_cast<uint8_t>(1 + (clique.rank(i) + n - 1) % n);
      const auto& to = received[static_cast<size_t>(i)];
      EXPECT_TRUE(std::all_of(to.begin(), to.end(), [value](uint8_t byte) { return byte == value; })) << bytes;
    }
  }
}

// Checks calls of all kinds on memory of all kinds, and messages.
void UseEverything(RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  {
    CaseRunner runner(context, clique, 6u << 20);
    harness::Random random(harness::Seed());
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(runner.Run(RandomCase(&random, context.nranks(), 300'000), {}));
  }
  ASSERT_NO_FATAL_FAILURE(PassOn(clique));
  ASSERT_TRUE(clique.Destroy());
}

// ---- many ---

// Shared memory that is resident.
size_t SharedBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kib = 0;
    if (word == "RssShmem:" && status >> kib) return kib << 10;
  }
  ADD_FAILURE() << "/proc/self/status has no RssShmem";
  return 0;
}

// A communicator takes only a little address space of the heap, so there is room for as many as programs make.
TEST(Many, CommunicatorsOfEightRanksInAProcess) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers need the address space";
  RunRanks(Processes(1), [](RankContext&) {
    const int count = harness::FullTests() ? 1000 : 500;
    std::vector<ncclComm_t> comms(static_cast<size_t>(8 * count));
    for (int i = 0; i < count; ++i) ASSERT_OK(ncclCommInitAll(&comms[static_cast<size_t>(8 * i)], 8, nullptr)) << i;
    for (ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
  });
}

TEST(Many, CommunicatorsOfEightProcesses) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers need the address space";
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      Processes(8),
      [](RankContext& context) {
        ncclUniqueId id;
        ASSERT_TRUE(harness::ShareUniqueId(context, &id));
        ncclComm_t first = nullptr;
        ASSERT_OK(ncclCommInitRank(&first, 8, id, context.rank()));
        std::vector<ncclComm_t> comms(harness::FullTests() ? 1000 : 100);
        for (ncclComm_t& comm : comms) ASSERT_OK(ncclCommSplit(first, 0, context.rank(), &comm, nullptr));
        int one = 1, sum = 0;
        ASSERT_OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comms.back(), nullptr));
        ASSERT_OK(axcclStreamSynchronize(nullptr));
        EXPECT_EQ(sum, 8);
        for (ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
        ASSERT_OK(ncclCommDestroy(first));
      },
      options);
}

struct Scale {
  int ranks, communicators, in_short;
  size_t most_bytes;  // that a rank may take of malloc's memory and of shared memory together
};

class ManyInUseTest : public testing::TestWithParam<Scale> {};

// What a communicator takes grows with what its ranks use, and all of it is given back.
TEST_P(ManyInUseTest, TakeLittleAndGiveItBack) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers allocate in another way";
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      Processes(1),
      [](RankContext&) {
        const Scale scale = GetParam();
        const auto n = static_cast<size_t>(scale.ranks);
        std::vector<axcclStream_t> streams(n);
        for (size_t r = 0; r < n; ++r) {
          ASSERT_OK(axcclHostSetDevice(static_cast<int>(r)));
          ASSERT_OK(axcclStreamCreate(&streams[r], axcclStreamNonBlocking));
        }
        std::vector<std::vector<int>> in(n, std::vector<int>(16384, 1)), out(n, std::vector<int>(16384));
        const auto make_and_use = [&](ncclComm_t* comms) {
          ASSERT_OK(ncclCommInitAll(comms, scale.ranks, nullptr));
          for (const size_t count : {size_t{2}, size_t{16384}}) {
            ASSERT_OK(ncclGroupStart());
            for (size_t r = 0; r < n; ++r)
              ASSERT_OK(
                  ncclAllReduce(in[r].data(), out[r].data(), count, ncclInt32, ncclSum, comms[r], Cuda(streams[r])));
            ASSERT_OK(ncclGroupEnd());
            for (size_t r = 0; r < n; ++r) {
              ASSERT_OK(axcclStreamSynchronize(streams[r]));
              ASSERT_EQ(out[r][count - 1], scale.ranks);
            }
          }
        };
        // What the process keeps of the first one does not count.
        std::vector<ncclComm_t> first(n);
        ASSERT_NO_FATAL_FAILURE(make_and_use(first.data()));
        for (ncclComm_t comm : first) ASSERT_OK(ncclCommDestroy(comm));

        const size_t allocated = AllocatedBytes(), shared = SharedBytes();
        const auto count = static_cast<size_t>(harness::FullTests() ? scale.communicators : scale.in_short);
        std::vector<ncclComm_t> comms(count * n);
        for (size_t i = 0; i < count; ++i) ASSERT_NO_FATAL_FAILURE(make_and_use(&comms[i * n]));
        EXPECT_LE(AllocatedBytes() - allocated + SharedBytes() - shared, scale.most_bytes * comms.size());
        for (ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
        // But for their places in tables.
        EXPECT_LE(AllocatedBytes(), allocated + 256 * comms.size() + (1u << 20));
        EXPECT_LE(SharedBytes(), shared + (2u << 20));
        for (axcclStream_t stream : streams) ASSERT_OK(axcclStreamDestroy(stream));
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Many, ManyInUseTest,
                         testing::Values(Scale{8, 1000, 200, 40u << 10}, Scale{64, 100, 20, 100u << 10},
                                         Scale{256, 4, 2, 300u << 10}),
                         [](const auto& info) { return "OfRanks" + std::to_string(info.param.ranks); });

// A rank's program for one root has an operation for each other rank, and a process may have the programs of all ranks
// for all roots: 1.5 GiB here, if nothing bounded what is kept.
TEST(Many, BroadcastsFromManyRoots) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers allocate in another way";
  RunOptions options;
  options.deadline = std::chrono::seconds(120);
  RunRanks(
      OneThread(256),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const int n = clique.nranks();
        std::vector<std::vector<int>> data(static_cast<size_t>(n), std::vector<int>(256));
        size_t first = 0;
        for (int root = 0; root < (harness::FullTests() ? n : 40); ++root) {
          for (int r = 0; r < n; ++r) std::fill(data[r].begin(), data[r].end(), r == root ? root + 1 : 0);
          ASSERT_OK(ncclGroupStart());
          for (int r = 0; r < n; ++r)
            ASSERT_OK(ncclBroadcast(data[r].data(), data[r].data(), data[r].size(), ncclInt32, root, clique.comm(r),
                                    Cuda(clique.stream(r))));
          ASSERT_OK(ncclGroupEnd());
          ASSERT_TRUE(clique.Synchronize());
          for (int r = 0; r < n; ++r) ASSERT_EQ(data[r].back(), root + 1) << "rank " << r;
          if (root == 0) first = AllocatedBytes();
          ASSERT_LE(AllocatedBytes(), first + (96u << 20)) << "root " << root;
        }
        ASSERT_TRUE(clique.Destroy());
      },
      options);
}

TEST(Many, RanksInAProcess) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers need the address space";
  RunRanks(OneThread(256), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_NO_FATAL_FAILURE(PassOn(clique));
    ASSERT_TRUE(clique.Destroy());
  });
}

// ---- limits ----

TEST(Limits, HandlesOfAProcess) {
  RunRanks(Processes(1), [](RankContext&) {
    std::vector<axcclEvent_t> events(1 << 20);
    for (axcclEvent_t& event : events) ASSERT_OK(axcclEventCreate(&event));
    axcclEvent_t more = events[0];
    EXPECT_EQ(axcclEventCreate(&more), ncclInvalidUsage);
    EXPECT_EQ(more, nullptr);
    ExpectLastErrorHas({"axcclEventCreate", "1048576 events", "destroy some"});
    ASSERT_OK(axcclEventDestroy(events.back()));
    EXPECT_OK(axcclEventCreate(&events.back()));
    EXPECT_OK(axcclEventQuery(events.back()));
    for (axcclEvent_t event : events) ASSERT_OK(axcclEventDestroy(event));
  });
}

// Each process maps only the parts of other heaps that it uses, not what they could hold.
TEST(Limits, AddressSpace) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers need the address space";
  RunRanks(Processes(18), [](RankContext& context) {
    ASSERT_TRUE(Limit(RLIMIT_AS, rlim_t{4} << 30));  // of which a heap is 1/16
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(clique.Destroy());
  });
  // These heaps would not fit into one address space, which is 128 TiB.
  RunOptions options;
  options.environment = {{"AXCCL_HEAP_BYTES", std::to_string(uint64_t{16} << 40)}};
  RunRanks(
      Processes(10),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        ASSERT_NO_FATAL_FAILURE(PassOn(clique));
        ASSERT_TRUE(clique.Destroy());
      },
      options);
  RunRanks(Processes(1), [](RankContext&) {
    ASSERT_TRUE(Limit(RLIMIT_AS, rlim_t{1} << 20));
    void* memory = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 4096), ncclSystemError);
    harness::ExpectLastErrorHas({"address space needed", "ulimit -v", "AXCCL_HEAP_BYTES"});
  });
}

// "SIGXFSZ is generated for the thread" that makes a file longer than its limit (POSIX, setrlimit): the library never
// does.
TEST(Limits, FileSize) {
  RunRanks(Layout{2, 2, 1}, [](RankContext& context) {
    ASSERT_TRUE(Limit(RLIMIT_FSIZE, rlim_t{256} << 20));
    ASSERT_TRUE(context.Barrier());
    UseEverything(context);
  });
  // Threads of one process need no file.
  RunRanks(Layout{1, 2, 1}, [](RankContext& context) {
    ASSERT_TRUE(Limit(RLIMIT_FSIZE, 1 << 20));
    ASSERT_TRUE(context.Barrier());
    UseEverything(context);
  });
  RunRanks(Processes(2), [](RankContext& context) {
    if (context.rank() == 1) {
      ASSERT_TRUE(Limit(RLIMIT_FSIZE, 1 << 20));
    }
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    ncclComm_t comm = nullptr;
    EXPECT_NE(ncclCommInitRank(&comm, 2, id, context.rank()), ncclSuccess);
    harness::ExpectLastErrorHas({"only its own threads reach its memory", "ulimit -f"});
    ASSERT_TRUE(context.Barrier());
  });
}

// With too few descriptors, the error gives the number needed, the number available and the limit to raise.
TEST(Limits, Descriptors) {
  RunOptions options;
  options.environment = {{"AXCCL_INIT_TIMEOUT", "1"}};  // init waits this long for a descriptor to become free
  for (rlim_t left = 0; left < 16; ++left) {
    const auto use = [left](RankContext&) {
      const int lowest = dup(0);
      close(lowest);
      ASSERT_TRUE(Limit(RLIMIT_NOFILE, static_cast<rlim_t>(lowest) + left));
      ncclUniqueId id;
      ncclComm_t comm = nullptr;
      ncclResult_t result = ncclGetUniqueId(&id);
      if (result == ncclSuccess) result = ncclCommInitRank(&comm, 1, id, 0);
      if (result == ncclSuccess) {
        EXPECT_GT(left, 4u);
        EXPECT_OK(ncclCommDestroy(comm));
        return;
      }
      EXPECT_EQ(result, ncclSystemError) << left;
      EXPECT_TRUE(harness::LastErrorHas("ulimit -n")) << left << ": " << ncclGetLastError(nullptr);
    };
    RunRanks(Processes(1), use, options);
  }
}

// mlock(2), MCL_FUTURE: what is mapped from now on is filled and locked. A heap is only address space, so it must not
// be.
TEST(Limits, LockedMemory) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers map memory of their own";
  if (!harness::LocksWithoutLimit()) GTEST_SKIP() << "this process may lock memory up to a limit only";
  RunRanks(Processes(2), [](RankContext& context) {
    ASSERT_EQ(mlockall(MCL_FUTURE), 0);
    UseEverything(context);
    FILE* const file = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;
    ASSERT_EQ(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    EXPECT_LT(resident * sysconf(_SC_PAGESIZE), 500l << 20);
  });
}

// With a low limit there may be no room for a thread's stack.
TEST(Limits, LockedMemoryBelowALimit) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers map memory of their own";
  if (!harness::MayLock(8 << 20)) GTEST_SKIP() << "this process may not lock 8 MiB (ulimit -l)";
  RunRanks(Processes(1), [](RankContext&) {
    ASSERT_TRUE(harness::LimitLocking(8 << 20));
    ASSERT_EQ(mlockall(MCL_FUTURE), 0);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSystemError);
    harness::ExpectLastErrorHas({"ulimit -l", "mlockall"});
  });
}

// ---- forbidden system calls ----

class ForbiddenTest : public testing::TestWithParam<std::vector<Refused>> {};

TEST_P(ForbiddenTest, EverythingWorks) {
  RunOptions options;
  for (const char* algorithms : {"", "direct"}) {
    options.environment = {{"NCCL_ALGO", algorithms}};
    RunRanks(
        Processes(2),
        [](RankContext& context) {
          ASSERT_TRUE(Refuse(GetParam()));
          UseEverything(context);
        },
        options);
  }
}

std::vector<Refused> ContainerWithCopies() {
  std::vector<Refused> calls = harness::RefusedInContainers();
  std::erase_if(calls,
                [](const Refused& r) { return r.call == SYS_process_vm_readv || r.call == SYS_process_vm_writev; });
  return calls;
}

std::string NameOfCalls(const testing::TestParamInfo<std::vector<Refused>>& info) {
  const char* const names[] = {"ReadV", "WriteV", "Fallocate", "Memfd"};
  return names[info.index];
}

INSTANTIATE_TEST_SUITE_P(Calls, ForbiddenTest,
                         testing::Values(std::vector<Refused>{{SYS_process_vm_readv, EPERM}},
                                         std::vector<Refused>{{SYS_process_vm_writev, EPERM}},
                                         std::vector<Refused>{{SYS_fallocate, EOPNOTSUPP}},
                                         std::vector<Refused>{{SYS_memfd_create, EPERM}}),
                         NameOfCalls);

// Docker's default profile and 64 MiB of /dev/shm, with and without the calls that copy between processes, which it
// allows on kernels from 4.8.
TEST(Container, RunsEverything) {
  for (const bool copies : {true, false}) {
    RunRanks(Processes(4), [copies](RankContext& context) {
      (void)ReplaceDevShm("size=64m");  // if the test may
      ASSERT_TRUE(Refuse(copies ? ContainerWithCopies() : harness::RefusedInContainers()));
      UseEverything(context);
    });
  }
}

// The same without memfd_create, so that shared memory is in /dev/shm.
TEST(Container, RunsEverythingInDevShm) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "there is no /dev/shm to write to";
  RunRanks(Processes(3), [](RankContext& context) {
    (void)ReplaceDevShm("size=64m");
    std::vector<Refused> calls = harness::RefusedInContainers();
    calls.push_back({SYS_memfd_create, EPERM});
    ASSERT_TRUE(Refuse(calls));
    UseEverything(context);
    // Allocating more than there is returns an error and raises no signal.
    if (context.rank() != 0) return;
    std::vector<void*> given;
    void* memory = nullptr;
    while (given.size() < 1000 && ncclMemAlloc(&memory, 8u << 20) == ncclSuccess) given.push_back(memory);
    if (given.size() < 1000) harness::ExpectLastErrorHas({"/dev/shm", "--shm-size"});
    for (void* p : given) EXPECT_OK(ncclMemFree(p));
  });
}

TEST(Container, RanksOfOneProcessNeedNoSharedMemory) {
  RunRanks(OneThread(3), [](RankContext& context) {
    (void)ReplaceDevShm("size=64k");
    ASSERT_TRUE(Refuse({{SYS_memfd_create, EPERM}}));
    UseEverything(context);
  });
}

}  // namespace
}  // namespace axccl::tests
