// Collectives of count 0, which NCCL discards ("Empty collectives can be discarded", taskAppend in its enqueue.cc): not
// all ranks need to make them, they have no place in the order of calls, and wait for no rank. Messages of count 0 are
// messages, as in NCCL.
#include <gtest/gtest.h>

#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunNonBlockingCliques;

using Empty = ncclResult_t (*)(ncclComm_t, cudaStream_t);
const Empty kEmpty[] = {
    [](ncclComm_t c, cudaStream_t s) { return ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclReduce(nullptr, nullptr, 0, ncclFloat32, ncclAvg, 1, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclBroadcast(nullptr, nullptr, 0, ncclInt32, 1, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclBcast(nullptr, 0, ncclInt32, 0, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclAllGather(nullptr, nullptr, 0, ncclInt8, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclReduceScatter(nullptr, nullptr, 0, ncclInt32, ncclMax, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclAlltoAll(nullptr, nullptr, 0, ncclInt32, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclGather(nullptr, nullptr, 0, ncclInt32, 0, c, s); },
    [](ncclComm_t c, cudaStream_t s) { return ncclScatter(nullptr, nullptr, 0, ncclInt32, 1, c, s); },
    [](ncclComm_t c, cudaStream_t s) {
      ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
      return ncclAllReduceConfig(nullptr, nullptr, 0, ncclInt32, ncclSum, c, s, &config);
    },
};

void ExpectSum(ncclComm_t comm, axcclStream_t stream, int ranks) {
  int one = 1, sum = -1;
  ASSERT_OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, Cuda(stream)));
  ASSERT_OK(axcclStreamSynchronize(stream));
  EXPECT_EQ(sum, ranks);
}

// Rank 0 makes them, and the stream passes them, before the other rank calls anything.
void CallAlone(RankContext& context, Clique& clique) {
  const cudaStream_t stream = Cuda(clique.stream());
  if (context.rank() == 0) {
    for (const Empty call : kEmpty) {
      for (int i = 0; i < 2; ++i) ASSERT_OK(call(clique.comm(), stream));
    }
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
  }
  ASSERT_TRUE(context.Barrier());
  ASSERT_NO_FATAL_FAILURE(ExpectSum(clique.comm(), clique.stream(), 2));
}

TEST(EmptyCall, ConcernsNoOtherRank) { RunCliques(Processes(2), CallAlone); }

TEST(EmptyCall, ConcernsNoOtherRankOfNonBlockingCommunicators) { RunNonBlockingCliques(Processes(2), CallAlone); }

// Beside other calls, which are matched as if it were not there.
TEST(EmptyCall, HasNoPlaceInAGroup) {
  RunCliques(OneThread(2), [](RankContext&, Clique& clique) {
    for (const Empty call : kEmpty) {
      const int one = 1;
      int sums[2] = {-1, -1};
      ASSERT_OK(ncclGroupStart());
      for (int rank = 0; rank < 2; ++rank) {
        const cudaStream_t stream = Cuda(clique.stream(rank));
        if (rank == 0) {
          EXPECT_OK(call(clique.comm(rank), stream));
        }
        EXPECT_OK(ncclAllReduce(&one, &sums[rank], 1, ncclInt32, ncclSum, clique.comm(rank), stream));
        if (rank == 1) {
          EXPECT_OK(call(clique.comm(rank), stream));
        }
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(sums[0], 2);
      EXPECT_EQ(sums[1], 2);
    }
    // A group of nothing else.
    ASSERT_OK(ncclGroupStart());
    for (const Empty call : kEmpty) EXPECT_OK(call(clique.comm(1), Cuda(clique.stream(1))));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
  });
}

// A message of count 0 is received, in its order among the others.
TEST(EmptyCall, MessagesAreNone) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    const cudaStream_t stream = Cuda(clique.stream());
    int value = context.rank() == 0 ? 7 : -1;
    if (context.rank() == 0) {
      ASSERT_OK(ncclSend(nullptr, 0, ncclInt32, 1, clique.comm(), stream));
      ASSERT_OK(ncclSend(&value, 1, ncclInt32, 1, clique.comm(), stream));
      ASSERT_OK(axcclStreamSynchronize(clique.stream()));
      // Without its match: the peer makes another call.
      ASSERT_OK(ncclSend(nullptr, 0, ncclInt32, 1, clique.comm(), stream));
    } else {
      ASSERT_OK(ncclRecv(nullptr, 0, ncclInt32, 0, clique.comm(), stream));
      ASSERT_OK(ncclRecv(&value, 1, ncclInt32, 0, clique.comm(), stream));
      ASSERT_OK(axcclStreamSynchronize(clique.stream()));
      ASSERT_OK(ncclRecv(&value, 1, ncclInt32, 0, clique.comm(), stream));
    }
    EXPECT_EQ(value, 7);
    clique.ExpectMismatch({"ncclSend count 0", "ncclRecv count 1"});
  });
}

}  // namespace
}  // namespace axccl::tests
