// Unsupported functions return an error that names the function, and leave the library usable.
#include <gtest/gtest.h>

#include <string>

#include "nccl.h"
#include "tests/api/device_functions.h"

namespace {

void ExpectNamed(const char* call) {
  const std::string function = std::string(call).substr(0, std::string(call).find('('));
  EXPECT_EQ(std::string(ncclGetLastError(nullptr)).find(function + ": not served"), 0u) << ncclGetLastError(nullptr);
}

#define EXPECT_UNSUPPORTED(call)       \
  do {                                 \
    EXPECT_EQ(call, ncclInvalidUsage); \
    ExpectNamed(#call);                \
  } while (0)

TEST(Unsupported, Memory) {
  uint64_t value = 0;
  EXPECT_UNSUPPORTED(ncclCommSuspend(nullptr, NCCL_SUSPEND_MEM));
  EXPECT_UNSUPPORTED(ncclCommResume(nullptr));
  EXPECT_UNSUPPORTED(ncclCommMemStats(nullptr, ncclStatGpuMemTotal, &value));
}

TEST(Unsupported, OneSided) {
  ncclWaitSignalDesc_t wait = {1, 0, 0, 0};
  EXPECT_UNSUPPORTED(ncclPutSignal(nullptr, 0, ncclInt8, 0, nullptr, 0, 0, 0, 0, nullptr, nullptr));
  EXPECT_UNSUPPORTED(ncclSignal(0, 0, 0, 0, nullptr, nullptr));
  EXPECT_UNSUPPORTED(ncclWaitSignal(1, &wait, nullptr, nullptr));
}

TEST(Unsupported, DeviceApi) {
  const ncclTeam team = {2, 0, 1};
  EXPECT_UNSUPPORTED(ncclGinBarrierCreateRequirement(nullptr, team, 1, nullptr, nullptr));
  EXPECT_UNSUPPORTED(ncclGinOutboxCreateRequirement(1, 7, nullptr, nullptr));
  EXPECT_UNSUPPORTED(ncclGinInboxA2ACreateRequirement(team, 1, 7, nullptr, nullptr));
}

// They serve windows of ranks on GPUs (tests/cuda/windows_test.cc).
TEST(Unsupported, AddressesInWindowsOfTheHost) {
  void* pointer = nullptr;
  int multimem = 0;
  EXPECT_EQ(ncclGetLsaDevicePointer(nullptr, 0, 0, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetPeerDevicePointer(nullptr, 0, 0, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetLsaMultimemDevicePointer(nullptr, 0, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetMultimemDevicePointer(nullptr, 0, &multimem, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetMultimemDevicePointer(nullptr, 0, nullptr, &pointer), ncclInvalidArgument);
}

void ExpectComm(const char* call) {
  EXPECT_EQ(std::string(ncclGetLastError(nullptr)).find(std::string(call) + ": argument comm"), 0u)
      << ncclGetLastError(nullptr);
}

// Of ranks on GPUs, too.
TEST(Unsupported, TeamsOfNoCommunicator) {
  const ncclTeam team = {2, 0, 1};
  EXPECT_EQ(ncclTeamWorld(nullptr).ranks, 0);
  ExpectComm("ncclTeamWorld");
  EXPECT_EQ(ncclTeamLsa(nullptr).ranks, 0);
  ExpectComm("ncclTeamLsa");
  EXPECT_EQ(ncclTeamRail(nullptr).ranks, 0);
  ExpectComm("ncclTeamRail");
  EXPECT_EQ(ncclTeamRankToWorld(nullptr, team, 0), -1);
  ExpectComm("ncclTeamRankToWorld");
  EXPECT_EQ(ncclTeamRankToLsa(nullptr, team, 0), -1);
  ExpectComm("ncclTeamRankToLsa");
}

}  // namespace
