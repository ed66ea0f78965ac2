// A preloaded profiler sees all calls that the program makes, and none that the library makes itself.
#include <gtest/gtest.h>

#include "axccl/axccl.h"
#include "nccl.h"

extern "C" int interposer_calls;

namespace {

TEST(Interpose, SeesTheProgramsCallsOnly) {
  ncclComm_t comms[2];
  interposer_calls = 0;
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  EXPECT_EQ(interposer_calls, 0) << "ncclCommInitAll went through an interposable name";

  float in[2] = {1, 2}, out[2] = {};
  const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ncclAllReduce(&in[rank], &out[rank], 1, ncclFloat32, ncclSum, comms[rank], nullptr), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(interposer_calls, 4);

  ASSERT_EQ(pncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ncclBcast(&in[rank], 1, ncclFloat32, 0, comms[rank], nullptr), ncclSuccess);
    ASSERT_EQ(ncclAllReduceConfig(&in[rank], &out[rank], 1, ncclFloat32, ncclSum, comms[rank], nullptr, &config),
              ncclSuccess);
  }
  ASSERT_EQ(pncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(interposer_calls, 4) << "the library called itself by an interposable name";
  EXPECT_EQ(axcclHostDeviceSynchronize(), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[1], 2);
}

}  // namespace
