// Sizes, offsets and numbers that are compiled into programs for NCCL (x86-64 and every other LP64 ABI).
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "nccl.h"

namespace {

struct Fact {
  const char* what;
  long long found;
  long long expected;
};

#define OFFSET(type, field, expected) \
  { #type "." #field, static_cast < long long>(offsetof(type, field)), expected }
#define SIZE(type, expected) \
  { "sizeof " #type, static_cast<long long>(sizeof(type)), expected }
#define VALUE(name, expected) \
  { #name, static_cast < long long>(name), expected }

void Check(const Fact* facts, size_t count) {
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(facts[i].found, facts[i].expected) << facts[i].what;
}

TEST(Abi, Config) {
  const Fact facts[] = {
      SIZE(ncclConfig_t, 112),
      OFFSET(ncclConfig_t, size, 0),
      OFFSET(ncclConfig_t, magic, 8),
      OFFSET(ncclConfig_t, version, 12),
      OFFSET(ncclConfig_t, blocking, 16),
      OFFSET(ncclConfig_t, cgaClusterSize, 20),
      OFFSET(ncclConfig_t, minCTAs, 24),
      OFFSET(ncclConfig_t, maxCTAs, 28),
      OFFSET(ncclConfig_t, netName, 32),
      OFFSET(ncclConfig_t, splitShare, 40),
      OFFSET(ncclConfig_t, trafficClass, 44),
      OFFSET(ncclConfig_t, commName, 48),
      OFFSET(ncclConfig_t, collnetEnable, 56),
      OFFSET(ncclConfig_t, CTAPolicy, 60),
      OFFSET(ncclConfig_t, shrinkShare, 64),
      OFFSET(ncclConfig_t, nvlsCTAs, 68),
      OFFSET(ncclConfig_t, nChannelsPerNetPeer, 72),
      OFFSET(ncclConfig_t, nvlinkCentricSched, 76),
      OFFSET(ncclConfig_t, graphUsageMode, 80),
      OFFSET(ncclConfig_t, numRmaCtx, 84),
      OFFSET(ncclConfig_t, maxP2pPeers, 88),
      OFFSET(ncclConfig_t, graphStreamOrdering, 92),
      OFFSET(ncclConfig_t, launchOrderImplicit, 96),
      OFFSET(ncclConfig_t, numRmaSig, 100),
      OFFSET(ncclConfig_t, rmaEagerInit, 104),
      OFFSET(ncclConfig_t, hostCftMode, 108),
  };
  Check(facts, std::size(facts));
}

TEST(Abi, OtherStructs) {
  const Fact facts[] = {
      SIZE(ncclUniqueId, 128),
      {"alignof ncclUniqueId", alignof(ncclUniqueId), 1},
      SIZE(ncclSimInfo_t, 24),
      OFFSET(ncclSimInfo_t, size, 0),
      OFFSET(ncclSimInfo_t, magic, 8),
      OFFSET(ncclSimInfo_t, version, 12),
      OFFSET(ncclSimInfo_t, estimatedTime, 16),
      SIZE(ncclWaitSignalDesc_t, 16),
      OFFSET(ncclWaitSignalDesc_t, opCnt, 0),
      OFFSET(ncclWaitSignalDesc_t, peer, 4),
      OFFSET(ncclWaitSignalDesc_t, sigIdx, 8),
      OFFSET(ncclWaitSignalDesc_t, ctx, 12),
      SIZE(ncclCollConfig_t, 64),
      OFFSET(ncclCollConfig_t, size, 0),
      OFFSET(ncclCollConfig_t, magic, 8),
      OFFSET(ncclCollConfig_t, version, 12),
      OFFSET(ncclCollConfig_t, ext, 16),
      OFFSET(ncclCollConfig_t, minCTAs, 24),
      OFFSET(ncclCollConfig_t, maxCTAs, 28),
      OFFSET(ncclCollConfig_t, nvlsCTAs, 32),
      OFFSET(ncclCollConfig_t, cgaClusterSize, 36),
      OFFSET(ncclCollConfig_t, algSelection, 40),
      OFFSET(ncclCollConfig_t, forceAlgSelection, 48),
      OFFSET(ncclCollConfig_t, CTAPolicy, 52),
      OFFSET(ncclCollConfig_t, userProfilerTag, 56),
      SIZE(ncclConfigExt_t, 24),
      OFFSET(ncclConfigExt_t, next, 0),
      OFFSET(ncclConfigExt_t, key, 8),
      OFFSET(ncclConfigExt_t, val, 16),
      SIZE(ncclComm_t, 8),
      SIZE(ncclWindow_t, 8),
      SIZE(cudaStream_t, 8),
  };
  Check(facts, std::size(facts));
}

TEST(Abi, Enums) {
  const Fact facts[] = {
      SIZE(ncclResult_t, 4),
      SIZE(ncclDataType_t, 4),
      SIZE(ncclRedOp_t, 4),
      SIZE(ncclScalarResidence_t, 4),
      SIZE(ncclCommMemStat_t, 4),
      SIZE(ncclHostCftMode_t, 4),
      VALUE(ncclSuccess, 0),
      VALUE(ncclUnhandledCudaError, 1),
      VALUE(ncclSystemError, 2),
      VALUE(ncclInternalError, 3),
      VALUE(ncclInvalidArgument, 4),
      VALUE(ncclInvalidUsage, 5),
      VALUE(ncclRemoteError, 6),
      VALUE(ncclInProgress, 7),
      VALUE(ncclTimeout, 8),
      VALUE(ncclNumResults, 9),
      VALUE(ncclInt8, 0),
      VALUE(ncclChar, 0),
      VALUE(ncclUint8, 1),
      VALUE(ncclInt32, 2),
      VALUE(ncclInt, 2),
      VALUE(ncclUint32, 3),
      VALUE(ncclInt64, 4),
      VALUE(ncclUint64, 5),
      VALUE(ncclFloat16, 6),
      VALUE(ncclHalf, 6),
      VALUE(ncclFloat32, 7),
      VALUE(ncclFloat, 7),
      VALUE(ncclFloat64, 8),
      VALUE(ncclDouble, 8),
      VALUE(ncclBfloat16, 9),
      VALUE(ncclFloat8e4m3, 10),
      VALUE(ncclFloat8e5m2, 11),
      VALUE(ncclNumTypes, 12),
      VALUE(ncclSum, 0),
      VALUE(ncclProd, 1),
      VALUE(ncclMax, 2),
      VALUE(ncclMin, 3),
      VALUE(ncclAvg, 4),
      VALUE(ncclNumOps, 5),
      VALUE(ncclMaxRedOp, 0x7fffffff),
      VALUE(ncclScalarDevice, 0),
      VALUE(ncclScalarHostImmediate, 1),
      VALUE(ncclStatGpuMemSuspend, 0),
      VALUE(ncclStatGpuMemSuspended, 1),
      VALUE(ncclStatGpuMemPersist, 2),
      VALUE(ncclStatGpuMemTotal, 3),
      VALUE(ncclHostCftDefault, INT_MIN),
      VALUE(ncclHostCftEnable, 1),
      VALUE(ncclHostCftDisable, 2),
      VALUE(ncclHostCftFallback, 3),
  };
  Check(facts, std::size(facts));
}

TEST(Abi, Constants) {
  const Fact facts[] = {
      VALUE(NCCL_UNIQUE_ID_BYTES, 128),
      VALUE(NCCL_CONFIG_UNDEF_INT, INT_MIN),
      VALUE(NCCL_SPLIT_NOCOLOR, -1),
      VALUE(NCCL_API_MAGIC, 0xcafebeefll),
      VALUE(NCCL_WIN_DEFAULT, 0),
      VALUE(NCCL_WIN_COLL_SYMMETRIC, 1),
      VALUE(NCCL_WIN_STRICT_ORDERING, 2),
      VALUE(NCCL_WIN_REQUIRED_ALIGNMENT, 4096),
      VALUE(NCCL_CTA_POLICY_DEFAULT, 0),
      VALUE(NCCL_CTA_POLICY_EFFICIENCY, 1),
      VALUE(NCCL_CTA_POLICY_ZERO, 2),
      VALUE(NCCL_SHRINK_DEFAULT, 0),
      VALUE(NCCL_SHRINK_ABORT, 1),
      VALUE(NCCL_REVOKE_DEFAULT, 0),
      VALUE(NCCL_SUSPEND_MEM, 1),
      VALUE(NCCL_VERSION(2, 7, 8), 2708),
      VALUE(NCCL_VERSION(2, 8, 3), 2803),
      VALUE(NCCL_VERSION(2, 9, 0), 20900),
      VALUE(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NCCL_VERSION_CODE),
  };
  Check(facts, std::size(facts));
  EXPECT_EQ(NCCL_UNDEF_FLOAT, -1.0f);
}

TEST(Abi, InitializersFillEveryField) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(config.size, sizeof(config));
  EXPECT_EQ(config.magic, 0xcafebeefu);
  EXPECT_EQ(config.version, static_cast<unsigned>(NCCL_LAYOUT_VERSION_CODE));
  EXPECT_EQ(config.netName, nullptr);
  EXPECT_EQ(config.commName, nullptr);
  for (const int field : {config.blocking,
                          config.cgaClusterSize,
                          config.minCTAs,
                          config.maxCTAs,
                          config.splitShare,
                          config.trafficClass,
                          config.collnetEnable,
                          config.CTAPolicy,
                          config.shrinkShare,
                          config.nvlsCTAs,
                          config.nChannelsPerNetPeer,
                          config.nvlinkCentricSched,
                          config.graphUsageMode,
                          config.numRmaCtx,
                          config.maxP2pPeers,
                          config.graphStreamOrdering,
                          config.launchOrderImplicit,
                          config.numRmaSig,
                          config.rmaEagerInit,
                          config.hostCftMode})
    EXPECT_EQ(field, NCCL_CONFIG_UNDEF_INT);

  const ncclCollConfig_t call = NCCL_COLLCONFIG_INITIALIZER;
  EXPECT_EQ(call.size, sizeof(call));
  EXPECT_EQ(call.magic, 0xcafebeefu);
  EXPECT_EQ(call.ext, nullptr);
  EXPECT_EQ(call.algSelection, nullptr);
  EXPECT_EQ(call.forceAlgSelection, 1);
  EXPECT_EQ(call.userProfilerTag, 0u);
  for (const int field : {call.minCTAs, call.maxCTAs, call.nvlsCTAs, call.cgaClusterSize, call.CTAPolicy})
    EXPECT_EQ(field, NCCL_CONFIG_UNDEF_INT);

  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(info.size, sizeof(info));
  EXPECT_EQ(info.magic, 0x74685283u);
  EXPECT_EQ(info.estimatedTime, -1.0f);
}

TEST(Abi, ErrorStringsAreTheOnesToolsMatch) {
  const std::pair<int, const char*> texts[] = {
      {0, "no error"},
      {1, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
      {2, "unhandled system error (run with NCCL_DEBUG=INFO for details)"},
      {3, "internal error - please report this issue to the NCCL developers"},
      {4, "invalid argument (run with NCCL_DEBUG=WARN for details)"},
      {5, "invalid usage (run with NCCL_DEBUG=WARN for details)"},
      {6, "remote process exited or there was a network error"},
      {7, "NCCL operation in progress"},
      {8, "timeout"},
      {9, "unknown result code"},
      {-1, "unknown result code"},
  };
  for (const auto& [code, text] : texts)
    EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(code)), text) << code;
}

TEST(Abi, VersionWorksBeforeAnythingElse) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
}

}  // namespace
