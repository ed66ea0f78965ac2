// What ranks see when one of them revokes their communicator, for ranks of one machine and of several.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/timing.h"

namespace axccl::tests {

constexpr int kRevokedCell = 40;  // when, ns
constexpr int kCalledCell = 41;

inline ncclResult_t RevokeCaseSum(ncclComm_t comm, axcclStream_t stream, harness::DeviceVector<int>* data) {
  return harness::AwaitCall(
      ncclAllReduce(data->data(), data->data(), data->size(), ncclInt32, ncclSum, comm, harness::Cuda(stream)), stream,
      comm);
}

inline void ExpectRevoked(harness::RankContext& context, ncclComm_t comm, int by) {
  EXPECT_LT(harness::NowNs() - context.Get(kRevokedCell), static_cast<uint64_t>(harness::AllowedNs(100)));
  ncclResult_t state = ncclSuccess;
  EXPECT_OK(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclRemoteError);
  int value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclRemoteError);
  harness::ExpectLastErrorHas({"ncclAllReduce", "rank", std::to_string(by).c_str(), "revoked the communicator"});
}

// Those that split or shrink what was revoked form one communicator.
inline void MakeAnother(harness::RankContext& context, ncclComm_t comm, axcclStream_t stream, bool shrink) {
  ncclComm_t next = nullptr;
  ASSERT_TRUE(context.Step(shrink ? "shrink" : "split"));
  if (shrink) {
    ASSERT_OK(ncclCommShrink(comm, nullptr, 0, &next, nullptr, NCCL_SHRINK_DEFAULT));
  } else {
    ASSERT_OK(ncclCommSplit(comm, 0, 0, &next, nullptr));
  }
  harness::DeviceVector<int> data(1000, 1);
  ASSERT_OK(RevokeCaseSum(next, stream, &data));
  EXPECT_EQ(data, harness::DeviceVector<int>(1000, context.nranks()));
  EXPECT_OK(ncclCommDestroy(next));
}

// Ranks work, or rest: all that are not in a call learn of it by the next one.
inline void RunRevoke(harness::RankContext& context, int by, bool busy, size_t count) {
  harness::Clique clique;
  ASSERT_TRUE(clique.Init(context));
  harness::DeviceVector<int> data(count, 1);
  ASSERT_OK(RevokeCaseSum(clique.comm(), clique.stream(), &data));
  ASSERT_TRUE(context.Barrier());
  const bool mine = context.rank() == by;
  if (mine) {
    for (int i = 0; busy && i < 10; ++i) ASSERT_OK(RevokeCaseSum(clique.comm(), clique.stream(), &data));
    context.Set(kRevokedCell, harness::NowNs());
    ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
    EXPECT_EQ(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclSuccess);
    int value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, clique.comm(), nullptr), ncclInvalidUsage);
  } else {
    ncclResult_t result = ncclSuccess;
    ASSERT_TRUE(context.Step("until it is revoked"));
    if (!busy) context.Await(kRevokedCell);
    while (result == ncclSuccess && !context.AnyFailed()) {
      if (busy) {
        result = RevokeCaseSum(clique.comm(), clique.stream(), &data);
      } else {
        EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &result));
      }
    }
    EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
    ExpectRevoked(context, clique.comm(), by);
  }
  ASSERT_NO_FATAL_FAILURE(MakeAnother(context, clique.comm(), clique.stream(), by % 2 == 0));
  // All may revoke it; those that come later as well.
  if (!mine) {
    EXPECT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
  }
  ASSERT_NO_FATAL_FAILURE(MakeAnother(context, clique.comm(), clique.stream(), by % 2 != 0));
}

}  // namespace axccl::tests
