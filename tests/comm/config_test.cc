// Versioned structs: ncclConfig_t and ncclSimInfo_t with every value out of range, ncclCollConfig_t, and what the
// library fills.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/rank_logs.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Seed;

struct BadConfig {
  const char* name;
  const char* word;  // required in the last-error text
  void (*spoil)(ncclConfig_t*);
};

const BadConfig kBadConfigs[] = {
    {"Magic", "magic", [](ncclConfig_t* c) { c->magic = 0x12345678; }},
    {"SizeZero", "size", [](ncclConfig_t* c) { c->size = 0; }},
    {"SizeTiny", "size", [](ncclConfig_t* c) { c->size = 8; }},
    {"BlockingTwo", "blocking", [](ncclConfig_t* c) { c->blocking = 2; }},
    {"BlockingNegative", "blocking", [](ncclConfig_t* c) { c->blocking = -1; }},
    {"CgaNegative", "cgaClusterSize", [](ncclConfig_t* c) { c->cgaClusterSize = -2; }},
    {"MinCtasZero", "minCTAs", [](ncclConfig_t* c) { c->minCTAs = 0; }},
    {"MaxCtasNegative", "maxCTAs", [](ncclConfig_t* c) { c->maxCTAs = -3; }},
    {"MinAboveMax", "minCTAs",
     [](ncclConfig_t* c) {
       c->minCTAs = 5;
       c->maxCTAs = 3;
     }},
    {"ChannelsPerPeerNone", "nChannelsPerNetPeer", [](ncclConfig_t* c) { c->nChannelsPerNetPeer = 0; }},
    {"ChannelsPerPeerMany", "nChannelsPerNetPeer", [](ncclConfig_t* c) { c->nChannelsPerNetPeer = 65; }},
    {"RmaContextsNegative", "numRmaCtx", [](ncclConfig_t* c) { c->numRmaCtx = -1; }},
    {"SplitShareTwo", "splitShare", [](ncclConfig_t* c) { c->splitShare = 2; }},
};

class BadConfigTest : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefusedAtOnceAndLeavesTheLibraryUsable) {
  RunRanks(Processes(1), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    GetParam().spoil(&config);
    ncclComm_t comm = nullptr;
    uint64_t best = ~uint64_t{0};
    for (int attempt = 0; attempt < 3; ++attempt) {
      const uint64_t start = NowNs();
      ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
      best = std::min(best, NowNs() - start);
    }
    EXPECT_LT(best, AllowedNs(10));
    EXPECT_TRUE(harness::LastErrorHas("ncclCommInitRankConfig")) << ncclGetLastError(nullptr);
    EXPECT_TRUE(harness::LastErrorHas(GetParam().word)) << ncclGetLastError(nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{1} << 18);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclInt32, Fold::kSum, 10, 0, Seed()}, {}));
  });
}

INSTANTIATE_TEST_SUITE_P(Values, BadConfigTest, testing::ValuesIn(kBadConfigs),
                         [](const auto& info) { return std::string(info.param.name); });

void ExpectAccepted(const void* config) {
  ncclUniqueId id;
  ASSERT_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  ncclConfig_t* argument = static_cast<ncclConfig_t*>(const_cast<void*>(config));
  ASSERT_OK(ncclCommInitRankConfig(&comm, 1, id, 0, argument));
  EXPECT_OK(ncclCommDestroy(comm));
}

// They have no effect here, so each value that NCCL takes must do.
TEST(Config, ValuesForOtherHardwareAreAccepted) {
  RunRanks(Processes(1), [](RankContext&) {
    const std::pair<int ncclConfig_t::*, int> kValues[] = {
        {&ncclConfig_t::cgaClusterSize, 0},       {&ncclConfig_t::cgaClusterSize, 16},
        {&ncclConfig_t::nChannelsPerNetPeer, 64}, {&ncclConfig_t::numRmaCtx, 0},
        {&ncclConfig_t::trafficClass, -1},        {&ncclConfig_t::trafficClass, 255},
    };
    for (const auto& [field, value] : kValues) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.*field = value;
      ExpectAccepted(&config);
    }
  });
}

TEST(Config, OldStructsAreReadUpToTheirSize) {
  RunRanks(Processes(1), [](RankContext&) {
    // Behind the 48 bytes of a 2.18 struct is unrelated memory of the caller.
    alignas(8) unsigned char old[256];
    std::memset(old, 0x5a, sizeof old);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.size = 48;
    config.version = 21801;
    std::memcpy(old, &config, 48);
    // trafficClass was added later, in what was padding: it must not be read from a 2.18 caller.
    const int garbage = -77;
    std::memcpy(old + 44, &garbage, 4);
    ExpectAccepted(old);
  });
}

TEST(Config, NewerStructsAreReadUpToOurs) {
  RunRanks(Processes(1), [](RankContext&) {
    alignas(8) unsigned char future[512];
    std::memset(future, 0x5a, sizeof future);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    std::memcpy(future, &config, sizeof config);
    const size_t size = 400;
    std::memcpy(future, &size, sizeof size);
    // The caller's version decides which fields count, so this one gives the version whose fields it fills.
    ExpectAccepted(future);
  });
}

TEST(Config, CallersStructIsNotChanged) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclConfig_t before = config;
    ExpectAccepted(&config);
    EXPECT_EQ(std::memcmp(&config, &before, sizeof config), 0);
  });
}

// NCCL_NET chooses the network of the process.
TEST(Config, NetNameIsReportedAsWithoutEffect) {
  for (const auto& [set, expected] : {std::pair("", 1u), {"Socket", 0u}, {"IB", 1u}}) {
    const harness::RankLogs logs;
    harness::RunOptions options;
    options.environment = logs.environment();
    options.environment.emplace_back("NCCL_NET", set);
    const auto body = [&, expected = expected](RankContext&) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      ExpectAccepted(&config);
      EXPECT_EQ(logs.Count("netName"), 0u) << logs.Own();
      config.netName = "socket";
      ExpectAccepted(&config);
      EXPECT_EQ(logs.Count("ncclCommInitRankConfig: netName \"socket\" in argument config has no effect"), expected)
          << logs.Own();
    };
    RunRanks(Processes(1), body, options);
  }
}

// What the user sets is no error of the program: the maximum counts, whoever set which.
TEST(Config, AMinimumOfTheEnvironmentIsLoweredToTheMaximum) {
  struct {
    int least, most;  // of the program
    std::vector<std::pair<std::string, std::string>> environment;
    const char* logged;
  } const kCases[] = {
      {NCCL_CONFIG_UNDEF_INT, 4, {{"NCCL_MIN_CTAS", "8"}}, "minCTAs 8 is larger than maxCTAs 4, so both are 4"},
      {16, NCCL_CONFIG_UNDEF_INT, {{"NCCL_MAX_CTAS", "2"}}, "minCTAs 16 is larger than maxCTAs 2, so both are 2"},
      {2, 4, {{"NCCL_MIN_CTAS", "9"}, {"NCCL_MAX_CTAS", "7"}}, "minCTAs 9 is larger than maxCTAs 7, so both are 7"},
      {2, 4, {{"NCCL_MIN_CTAS", "4"}}, nullptr},
      {2, 4, {{"NCCL_MIN_NCHANNELS", "8"}}, "minCTAs 8 is larger than maxCTAs 4, so both are 4"},
      {2, 4, {{"NCCL_MIN_NCHANNELS", "8"}, {"NCCL_MIN_CTAS", "4"}}, nullptr},
      {2, 4, {{"NCCL_MAX_NCHANNELS", "1"}}, "minCTAs 2 is larger than maxCTAs 1, so both are 1"},
      {2, 4, {{"NCCL_MAX_NCHANNELS", "1"}, {"NCCL_MAX_CTAS", "2"}}, nullptr},
  };
  for (const auto& c : kCases) {
    const harness::RankLogs logs;
    harness::RunOptions options;
    options.environment = logs.environment();
    options.environment.emplace_back("NCCL_DEBUG_SUBSYS", "ENV");
    options.environment.insert(options.environment.end(), c.environment.begin(), c.environment.end());
    const auto body = [&](RankContext&) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.minCTAs = c.least;
      config.maxCTAs = c.most;
      ExpectAccepted(&config);
      EXPECT_EQ(logs.Count("is larger than maxCTAs"), c.logged != nullptr ? 1u : 0u) << logs.Own();
      if (c.logged != nullptr) {
        EXPECT_EQ(logs.Count(c.logged), 1u) << logs.Own();
      }
    };
    RunRanks(Processes(1), body, options);
  }
}

// ---- ncclCollConfig_t ----

// Both ranks of a thread make a call with these settings; returns the first error.
ncclResult_t OnBoth(const Clique& clique, const std::function<ncclResult_t(int, ncclComm_t, cudaStream_t)>& call) {
  ncclResult_t first = ncclGroupStart();
  for (int r = 0; r < 2; ++r) {
    const ncclResult_t result = call(r, clique.comm(r), Cuda(clique.stream(r)));
    if (first == ncclSuccess) first = result;
  }
  const ncclResult_t end = ncclGroupEnd();
  return first != ncclSuccess ? first : end;
}

TEST(CollConfig, CallsKeepTheirRootsAndOperators) {
  RunRanks(harness::OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int in[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}}, out[2][8] = {};
    constexpr auto kInt = ncclInt32;
    using Settings = const ncclCollConfig_t*;
    const std::function<ncclResult_t(int, ncclComm_t, cudaStream_t, Settings)> calls[] = {
        [&](int r, auto c, auto s, Settings t) { return ncclBroadcastConfig(in[r], out[r], 4, kInt, 1, c, s, t); },
        [&](int r, auto c, auto s, Settings t) {
          return ncclReduceConfig(in[r], out[r], 4, kInt, ncclMax, 1, c, s, t);
        },
        [&](int r, auto c, auto s, Settings t) { return ncclGatherConfig(in[r], out[r], 4, kInt, 1, c, s, t); },
        [&](int r, auto c, auto s, Settings t) { return ncclScatterConfig(in[r], out[r], 2, kInt, 1, c, s, t); },
        [&](int r, auto c, auto s, Settings t) {
          return ncclReduceScatterConfig(in[r], out[r], 2, kInt, ncclProd, c, s, t);
        },
        [&](int r, auto c, auto s, Settings t) {
          return ncclAllReduceConfig(in[r], out[r], 4, kInt, ncclMin, c, s, t);
        },
        [&](int r, auto c, auto s, Settings t) { return ncclAllGatherConfig(in[r], out[r], 4, kInt, c, s, t); },
        [&](int r, auto c, auto s, Settings t) { return ncclAlltoAllConfig(in[r], out[r], 2, kInt, c, s, t); },
    };
    const std::vector<int> expected[][2] = {
        {{10, 20, 30, 40}, {10, 20, 30, 40}},
        {{}, {10, 20, 30, 40}},
        {{}, {1, 2, 3, 4, 10, 20, 30, 40}},
        {{10, 20}, {30, 40}},
        {{10, 40}, {90, 160}},
        {{1, 2, 3, 4}, {1, 2, 3, 4}},
        {{1, 2, 3, 4, 10, 20, 30, 40}, {1, 2, 3, 4, 10, 20, 30, 40}},
        {{1, 2, 10, 20}, {3, 4, 30, 40}},
    };
    const ncclCollConfig_t zeros{};
    ncclCollConfig_t plain = NCCL_COLLCONFIG_INITIALIZER, forced = NCCL_COLLCONFIG_INITIALIZER;
    forced.algSelection = "ring";
    forced.forceAlgSelection = 1;
    for (size_t i = 0; i < std::size(calls); ++i) {
      const auto with = [&](Settings settings) {
        return OnBoth(clique, [&](int r, ncclComm_t comm, cudaStream_t s) { return calls[i](r, comm, s, settings); });
      };
      std::memset(out, 0, sizeof(out));
      EXPECT_EQ(with(&zeros), ncclInvalidArgument) << i;
      EXPECT_EQ(with(&forced), ncclInvalidUsage) << i;
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& of_rank : out) EXPECT_EQ(of_rank[0], 0) << i;
      ASSERT_OK(with(&plain)) << i;
      ASSERT_TRUE(clique.Synchronize());
      for (size_t r = 0; r < 2; ++r) {
        std::vector<int> all = expected[i][r];
        all.resize(8);
        EXPECT_EQ(std::vector<int>(out[r], out[r] + 8), all) << "call " << i << ", rank " << r;
      }
    }
  });
}

// ---- NCCL_ALGO ----

// Names that do not fit are refused, not cut off.
TEST(Algorithms, NamesHaveALimit) {
  std::string names;
  for (int i = 0; i < 100; ++i) names += "ring,";
  for (const char* const last : {"direct,ring", "oneshot,ring"}) {
    const std::string all = names + last;
    harness::RunOptions options;
    options.environment = {{"NCCL_ALGO", all}};
    const auto body = [&](RankContext&) {
      ncclUniqueId id;
      ncclComm_t comm = nullptr;
      ASSERT_OK(ncclGetUniqueId(&id));
      const ncclResult_t made = ncclCommInitRank(&comm, 1, id, 0);
      EXPECT_EQ(made, all.size() < 512 ? ncclSuccess : ncclInvalidUsage) << all.size();
      if (made != ncclSuccess) {
        harness::ExpectLastErrorHas({"NCCL_ALGO has 512 characters, at most 511 are accepted"});
      }
      EXPECT_OK(ncclCommDestroy(comm));
    };
    RunRanks(Processes(1), body, options);
  }
}

// ---- structs that the library fills ----

// `get` writes what a caller of any earlier or later header has room for, and returns how much that is.
template <class Info>
void ExpectKeepsToTheSize(const char* name, const std::function<ncclResult_t(Info*)>& get) {
  union {
    Info info;
    unsigned char bytes[sizeof(Info) + 64];
  } caller;
  for (size_t size = sizeof(size_t); size <= sizeof(Info) + 32; size += 4) {
    std::memset(caller.bytes, 0xa5, sizeof(caller.bytes));
    caller.info.size = size;
    ASSERT_OK(get(&caller.info)) << name << " of size " << size;
    const size_t written = std::min(size, sizeof(Info));
    EXPECT_EQ(caller.info.size, written) << name;
    for (size_t i = written; i < sizeof(caller.bytes); ++i)
      ASSERT_EQ(caller.bytes[i], 0xa5) << name << " of size " << size << ", byte " << i;
  }
}

TEST(Infos, KeepToTheSizeOfTheCaller) {
  RunRanks(Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const int64_t id = 0, rows = 4;
    axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
    spec.ids = &id, spec.num_groups = 1, spec.group_size = 1;
    axcclGroups_t groups;
    ASSERT_OK(axcclGroupsCreate(&groups, &spec));
    int in[4] = {}, out[4] = {};
    axcclPipelineSpec_t steps = AXCCL_PIPELINE_SPEC_INITIALIZER;
    steps.in.data = in;
    steps.out.data = out;
    for (axcclView_t* const view : {&steps.in, &steps.out})
      view->datatype = ncclInt32, view->num_dims = 1, view->sizes = &rows;
    axcclPipeline_t pipeline;
    ASSERT_OK(axcclPipelineCreate(&pipeline, &steps, channel));
    ExpectKeepsToTheSize<axcclCommInfo_t>("axcclCommGetInfo",
                                          [&](auto* info) { return axcclCommGetInfo(clique.comm(), info); });
    ExpectKeepsToTheSize<axcclChannelInfo_t>("axcclChannelGetInfo",
                                             [&](auto* info) { return axcclChannelGetInfo(channel, info); });
    ExpectKeepsToTheSize<axcclGroupsInfo_t>("axcclGroupsGetInfo",
                                            [&](auto* info) { return axcclGroupsGetInfo(groups, info); });
    ExpectKeepsToTheSize<axcclPipelineInfo_t>("axcclPipelineGetInfo",
                                              [&](auto* info) { return axcclPipelineGetInfo(pipeline, info); });
    EXPECT_OK(axcclPipelineDestroy(pipeline));
    EXPECT_OK(axcclGroupsDestroy(groups));
  });
}

}  // namespace
}  // namespace axccl::tests
