// ncclConfig_t and ncclSimInfo_t: versioned structs, and every value out of range.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
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

}  // namespace
}  // namespace axccl::tests
