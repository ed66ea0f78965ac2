// Ways to make communicators: every init call, in threads, processes and groups, and what init refuses.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "tests/harness/case_runner.h"
#include "tests/harness/folder.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::LastErrorHas;
using harness::Layout;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Seed;
using harness::ShareUniqueId;
using harness::Threads;

// Checks that the communicator works, with one all_reduce.
void Exercise(RankContext& context, ncclComm_t comm) {
  Clique clique;
  ASSERT_TRUE(clique.Adopt(comm));
  {
    CaseRunner runner(context, clique, size_t{1} << 20);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 1009, 0, Seed()}, {}));
  }
  clique.ForgetComms();
}

class InitTest : public testing::TestWithParam<Layout> {};

TEST_P(InitTest, AttributesAreWhatWasAsked) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (int i = 0; i < clique.size(); ++i) {
      int value = -1;
      ASSERT_OK(ncclCommCount(clique.comm(i), &value));
      EXPECT_EQ(value, context.nranks());
      ASSERT_OK(ncclCommUserRank(clique.comm(i), &value));
      EXPECT_EQ(value, clique.rank(i));
      ASSERT_OK(ncclCommCuDevice(clique.comm(i), &value));
      EXPECT_GE(value, 0);
      context.board()[4096 + clique.rank(i)] = static_cast<std::byte>(value);
      ncclResult_t state = ncclInternalError;
      ASSERT_OK(ncclCommGetAsyncError(clique.comm(i), &state));
      EXPECT_EQ(state, ncclSuccess);
      axcclCommInfo_t info{};
      info.size = sizeof info;
      ASSERT_OK(axcclCommGetInfo(clique.comm(i), &info));
      EXPECT_EQ(info.nranks, context.nranks());
      EXPECT_EQ(info.rank, clique.rank(i));
      EXPECT_EQ(info.local_processes, context.layout().processes);
    }
    ASSERT_TRUE(context.Barrier());
    // Ranks of one process have different devices.
    const int per_process = context.layout().threads * context.layout().ranks;
    const int first = context.first_rank() / per_process * per_process;
    std::set<std::byte> devices;
    for (int i = 0; i < per_process; ++i) devices.insert(context.board()[4096 + first + i]);
    EXPECT_EQ(devices.size(), static_cast<size_t>(per_process));
    ASSERT_TRUE(context.Barrier());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, InitTest,
                         testing::Values(Threads(1), Threads(4), Processes(4), harness::OneThread(4), Layout{2, 2, 2}),
                         [](const auto& info) { return info.param.Text(); });

TEST(InitAll, WithoutAListMakesDevicesInOrder) {
  RunRanks(Processes(1), [](RankContext& context) {
    for (const int n : {1, 2, 5}) {
      ncclComm_t comms[5] = {};
      ASSERT_OK(ncclCommInitAll(comms, n, nullptr));
      Clique clique;
      for (int i = 0; i < n; ++i) {
        int device = -1;
        int rank = -1;
        ASSERT_OK(ncclCommCuDevice(comms[i], &device));
        ASSERT_OK(ncclCommUserRank(comms[i], &rank));
        EXPECT_EQ(device, i);
        EXPECT_EQ(rank, i);
        ASSERT_TRUE(clique.Adopt(comms[i]));
      }
      CaseRunner runner(context, clique, size_t{1} << 20);
      ASSERT_TRUE(runner.Run({Call::kAllGather, ncclInt64, Fold::kSum, 777, 0, Seed()}, {}));
    }
  });
}

TEST(InitAll, TakesADeviceList) {
  RunRanks(Processes(1), [](RankContext& context) {
    const int devices[3] = {7, 0, 3};
    ncclComm_t comms[3] = {};
    ASSERT_OK(ncclCommInitAll(comms, 3, devices));
    Clique clique;
    for (int i = 0; i < 3; ++i) {
      int device = -1;
      ASSERT_OK(ncclCommCuDevice(comms[i], &device));
      EXPECT_EQ(device, devices[i]);
      ASSERT_TRUE(clique.Adopt(comms[i]));
    }
    CaseRunner runner(context, clique, size_t{1} << 20);
    ASSERT_TRUE(runner.Run({Call::kReduceScatter, ncclInt32, Fold::kMax, 501, 0, Seed()}, {}));
  });
}

TEST(InitAll, RefusesBadLists) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclComm_t comms[3] = {};
    const int twice[3] = {1, 2, 1};
    const int negative[2] = {0, -1};
    const int large[2] = {0, 1 << 20};
    EXPECT_NE(ncclCommInitAll(comms, 3, twice), ncclSuccess);
    EXPECT_TRUE(LastErrorHas("ncclCommInitAll")) << ncclGetLastError(nullptr);
    EXPECT_EQ(ncclCommInitAll(comms, 2, negative), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitAll(comms, 2, large), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitAll(comms, 0, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitAll(comms, -2, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitAll(nullptr, 2, nullptr), ncclInvalidArgument);
    ASSERT_OK(ncclCommInitAll(comms, 3, nullptr));
    for (const ncclComm_t comm : comms) EXPECT_OK(ncclCommDestroy(comm));
  });
}

TEST(InitScalable, AnyNumberOfIds) {
  RunRanks(Processes(4), [](RankContext& context) {
    for (const int ids : {1, 2, 4}) {
      // Rank i makes id i, as in NCCL, where the maker of each id is a root of the rendezvous.
      ncclUniqueId all[4];
      if (context.rank() < ids) {
        ASSERT_OK(ncclGetUniqueId(&all[0]));
        std::memcpy(context.board() + 8192 + context.rank() * sizeof all[0], &all[0], sizeof all[0]);
      }
      ASSERT_TRUE(context.Barrier());
      std::memcpy(all, context.board() + 8192, sizeof all);
      ncclComm_t comm = nullptr;
      ASSERT_TRUE(context.Step("init with %d ids", ids));
      ASSERT_OK(ncclCommInitRankScalable(&comm, 4, context.rank(), ids, all, nullptr));
      Exercise(context, comm);
      EXPECT_OK(ncclCommDestroy(comm));
      ASSERT_TRUE(context.Barrier());
    }
  });
}

TEST(Init, ConfigIsAcceptedAndMayBeNull) {
  RunRanks(Processes(2), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitRankConfig(&comm, 2, id, context.rank(), nullptr));
    Exercise(context, comm);
    EXPECT_OK(ncclCommDestroy(comm));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.minCTAs = 1;
    config.maxCTAs = 4;
    config.splitShare = 1;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    ASSERT_OK(ncclCommInitRankConfig(&comm, 2, id, context.rank(), &config));
    Exercise(context, comm);
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

TEST(Init, OneIdMakesOneCommunicatorAndManyIdsMayBeOpen) {
  RunRanks(Threads(2), [](RankContext& context) {
    ncclUniqueId ids[3];
    for (ncclUniqueId& id : ids) ASSERT_TRUE(ShareUniqueId(context, &id));
    EXPECT_NE(std::memcmp(&ids[0], &ids[1], sizeof ids[0]), 0);
    ncclComm_t comms[3] = {};
    for (const int which : {2, 0, 1}) {
      ASSERT_OK(ncclCommInitRank(&comms[which], 2, ids[which], context.rank()));
    }
    for (const ncclComm_t comm : comms) Exercise(context, comm);
    for (const ncclComm_t comm : comms) EXPECT_OK(ncclCommDestroy(comm));
  });
}

TEST(Init, ThreadsInitConcurrentlyWithoutAGroup) {
  // XLA does this: one thread per device makes many communicators at once, on all devices.
  RunRanks(Layout{2, 3, 1}, [](RankContext& context) {
    for (int round = 0; round < 5; ++round) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      CaseRunner runner(context, clique, size_t{1} << 18);
      ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 100, 0, Seed()}, {}));
    }
  });
}

// ---- disagreement: every rank learns of it within a second ----

void ExpectInitFails(RankContext& context, int nranks, int rank, const std::string& words) {
  ncclUniqueId id;
  ASSERT_TRUE(ShareUniqueId(context, &id));
  ncclComm_t comm = nullptr;
  const uint64_t start = NowNs();
  const ncclResult_t result = ncclCommInitRank(&comm, nranks, id, rank);
  EXPECT_LT(NowNs() - start, AllowedNs(1000));
  EXPECT_TRUE(result == ncclInvalidUsage || result == ncclInvalidArgument)
      << ncclGetErrorString(result) << ": " << ncclGetLastError(nullptr);
  EXPECT_TRUE(LastErrorHas(words)) << ncclGetLastError(nullptr);
  ASSERT_TRUE(context.Barrier());
  // The library still works.
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  CaseRunner runner(context, clique, size_t{1} << 18);
  ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 10, 0, Seed()}, {}));
}

TEST(InitDisagreement, OnTheNumberOfRanks) {
  RunRanks(Processes(3), [](RankContext& context) {
    ExpectInitFails(context, context.rank() == 1 ? 4 : 3, context.rank(), "nranks");
  });
  RunRanks(Threads(2), [](RankContext& context) {
    ExpectInitFails(context, context.rank() == 1 ? 3 : 2, context.rank(), "nranks");
  });
}

TEST(InitDisagreement, OnARankTakenTwice) {
  RunRanks(Processes(3), [](RankContext& context) {
    ExpectInitFails(context, 3, context.rank() == 2 ? 1 : context.rank(), "rank 1");
  });
}

// ---- library facts ----

TEST(Library, VersionsAndTexts) {
  RunRanks(Processes(1), [](RankContext&) {
    int version = 0;
    ASSERT_OK(ncclGetVersion(&version));
    EXPECT_GE(version, 22809);
    EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
    ASSERT_OK(axcclGetVersion(&version));
    EXPECT_EQ(version, AXCCL_VERSION_CODE);
    EXPECT_EQ(axcclGetVersion(nullptr), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
    EXPECT_STREQ(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error");
    EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(99)), "unknown result code");
    EXPECT_NE(ncclGetLastError(nullptr), nullptr);
    ncclUniqueId id;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  });
}

TEST(Library, LinksAndParametersAreVisible) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const char* link = nullptr;
    ASSERT_OK(axcclCommGetLink(clique.comm(), context.rank(), &link));
    EXPECT_STREQ(link, "self");
    ASSERT_OK(axcclCommGetLink(clique.comm(), 1 - context.rank(), &link));
    EXPECT_EQ(std::string(link).rfind("shm", 0), 0u) << link;
    EXPECT_EQ(axcclCommGetLink(clique.comm(), 2, &link), ncclInvalidArgument);
    EXPECT_EQ(axcclCommGetLink(clique.comm(), -1, &link), ncclInvalidArgument);
    bool found = false;
    int index = 0;
    const char *name, *value, *source, *meaning;
    while (axcclParamGetByIndex(index, &name, &value, &source, &meaning) == ncclSuccess) {
      found = found || std::strcmp(name, "NCCL_ALGO") == 0;
      ++index;
    }
    EXPECT_TRUE(found);
    EXPECT_GT(index, 5);
  });
}

// The figures of rank 0 are those of all: ranks that also measured would only disturb it.
TEST(MeasuredFigures, AreThoseOfRank0) {
  const harness::Folder folder;
  RunRanks(Processes(2), [&](RankContext& context) {
    const std::string own = folder.path() + "/" + std::to_string(context.rank());
    setenv("AXCCL_CACHE_DIR", own.c_str(), 1);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int files = 0;
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(own, missing))
      files += entry.path().filename().string().starts_with("machine-");
    EXPECT_EQ(files, context.rank() == 0 ? 1 : 0);
  });
}

// A program that becomes a daemon closes descriptors that it has not opened. From then on, calls that need the
// library's descriptors fail, and communicators that exist still work.
TEST(ClosedDescriptors, AreAnErrorOfCallsThatNeedThem) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() == 1) {
      closefrom(3);
      ncclUniqueId id;
      EXPECT_EQ(ncclGetUniqueId(&id), ncclInvalidUsage);
      EXPECT_TRUE(LastErrorHas("closefrom")) << ncclGetLastError(nullptr);
    }
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < 3; ++i) {
      CaseRunner runner(context, clique, size_t{1} << 20);
      ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 1009, 0, Seed()}, {}));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::tests
