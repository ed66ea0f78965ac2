// A call that was right before and comes again: what may have changed since is checked each time.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/harness/case_runner.h"

namespace axccl::tests {
namespace {

using harness::Cuda;
using harness::ExpectLastErrorHas;

#define ASSERT_NCCL(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

// Two ranks of this thread, each on a device of its own.
class KnownCallTest : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    ASSERT_NCCL(ncclCommInitAll(comms_.data(), kRanks, nullptr));
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_NCCL(axcclHostSetDevice(rank));
      ASSERT_NCCL(axcclStreamCreate(&streams_[rank], axcclStreamNonBlocking));
    }
  }
  void TearDown() override {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (streams_[rank] != nullptr) {
        EXPECT_EQ(axcclStreamDestroy(streams_[rank]), ncclSuccess);
      }
      if (comms_[rank] != nullptr) {
        EXPECT_EQ(ncclCommDestroy(comms_[rank]), ncclSuccess);
      }
    }
  }

  // Calls on both ranks, waits, and compares: rank r has r + 1 + i in element i.
  void Sum(size_t count, ncclRedOp_t op = ncclSum, bool in_place = false) {
    std::array<std::vector<int>, kRanks> in, out;
    for (int rank = 0; rank < kRanks; ++rank) {
      in[rank].resize(count);
      std::iota(in[rank].begin(), in[rank].end(), rank + 1);
      out[rank].assign(count, -1);
      int* const send = in[rank].data();
      int* const recv = in_place ? send : out[rank].data();
      ASSERT_NCCL(ncclAllReduce(send, recv, count, ncclInt32, op, comms_[rank], Cuda(streams_[rank])));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_NCCL(axcclStreamSynchronize(streams_[rank]));
      const std::vector<int>& result = in_place ? in[rank] : out[rank];
      for (size_t i = 0; i < count; ++i) {
        const int element = static_cast<int>(i);
        ASSERT_EQ(result[i], op == ncclMax ? element + 2 : 2 * element + 3) << "element " << i << " of " << count;
      }
    }
  }
  ncclResult_t Call(const void* send, void* recv, size_t count, cudaStream_t stream) {
    return ncclAllReduce(send, recv, count, ncclInt32, ncclSum, comms_[0], stream);
  }

  std::array<ncclComm_t, kRanks> comms_{};
  std::array<axcclStream_t, kRanks> streams_{};
  std::array<int, 64> memory_{};
};

TEST_F(KnownCallTest, BuffersAreCheckedEachTime) {
  for (int i = 0; i < 3; ++i) Sum(4);
  int* const p = memory_.data();
  EXPECT_EQ(Call(nullptr, p, 4, Cuda(streams_[0])), ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "sendbuff"});
  EXPECT_EQ(Call(p, nullptr, 4, Cuda(streams_[0])), ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "recvbuff"});
  EXPECT_EQ(Call(p, p + 3, 4, Cuda(streams_[0])), ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "overlap"});
  EXPECT_EQ(Call(p + 1, p, 4, Cuda(streams_[0])), ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "overlap"});
  Sum(4);
  Sum(4, ncclSum, true);
  Sum(4);
}

TEST_F(KnownCallTest, WhereInPlaceIsDependsOnTheRank) {
  for (int round = 0; round < 3; ++round) {
    std::array<std::array<int, 4>, kRanks> all{};
    for (int rank = 0; rank < kRanks; ++rank) {
      int* const own = &all[rank][static_cast<size_t>(2 * rank)];
      own[0] = 10 * rank + round;
      own[1] = own[0] + 1;
      ASSERT_NCCL(ncclAllGather(own, all[rank].data(), 2, ncclInt32, comms_[rank], Cuda(streams_[rank])));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_NCCL(axcclStreamSynchronize(streams_[rank]));
      EXPECT_EQ(all[rank], (std::array<int, 4>{round, round + 1, 10 + round, 11 + round}));
      int* const other = &all[rank][static_cast<size_t>(2 - 2 * rank)];
      EXPECT_EQ(ncclAllGather(other, all[rank].data(), 2, ncclInt32, comms_[rank], Cuda(streams_[rank])),
                ncclInvalidArgument);
      ExpectLastErrorHas({"ncclAllGather", "overlap"});
    }
  }
}

TEST_F(KnownCallTest, AStreamThatEndsIsNotFoundAgain) {
  for (int i = 0; i < 2; ++i) Sum(4);
  const axcclStream_t gone = streams_[0];
  ASSERT_NCCL(axcclStreamDestroy(gone));
  EXPECT_EQ(Call(memory_.data(), &memory_[8], 4, Cuda(gone)), ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "stream"});
  ASSERT_NCCL(axcclHostSetDevice(0));
  ASSERT_NCCL(axcclStreamCreate(&streams_[0], axcclStreamNonBlocking));  // where the last one was
  EXPECT_EQ(Call(memory_.data(), &memory_[8], 4, Cuda(gone)), ncclInvalidArgument);
  EXPECT_EQ(axcclStreamSynchronize(gone), ncclInvalidArgument);
  Sum(4);
}

TEST_F(KnownCallTest, ACommunicatorThatEndsIsNotFoundAgain) {
  for (int i = 0; i < 2; ++i) Sum(4);
  const ncclComm_t gone = comms_[0];
  for (ncclComm_t& comm : comms_) ASSERT_NCCL(ncclCommDestroy(std::exchange(comm, nullptr)));
  comms_[0] = gone;
  EXPECT_EQ(Call(memory_.data(), &memory_[8], 4, Cuda(streams_[0])), ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "comm"});
  ASSERT_NCCL(ncclCommInitAll(comms_.data(), kRanks, nullptr));
  Sum(4);
}

TEST_F(KnownCallTest, ACommunicatorThatIsAbortedServesNoMore) {
  for (int i = 0; i < 2; ++i) Sum(4);
  ASSERT_NCCL(ncclCommRevoke(comms_[0], NCCL_REVOKE_DEFAULT));
  EXPECT_NE(Call(memory_.data(), &memory_[8], 4, Cuda(streams_[0])), ncclSuccess);
  ExpectLastErrorHas({"ncclAllReduce", "revoked"});
}

TEST_F(KnownCallTest, AnOperatorThatEndsIsNotFoundAgain) {
  int two = 2;
  std::array<ncclRedOp_t, kRanks> ops{};
  for (int rank = 0; rank < kRanks; ++rank)
    ASSERT_NCCL(ncclRedOpCreatePreMulSum(&ops[rank], &two, ncclInt32, ncclScalarHostImmediate, comms_[rank]));
  for (int i = 0; i < 2; ++i) {
    std::array<int, kRanks> in{3, 4}, out{};
    for (int rank = 0; rank < kRanks; ++rank)
      ASSERT_NCCL(ncclAllReduce(&in[rank], &out[rank], 1, ncclInt32, ops[rank], comms_[rank], Cuda(streams_[rank])));
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_NCCL(axcclStreamSynchronize(streams_[rank]));
      EXPECT_EQ(out[rank], 14);
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_NCCL(ncclRedOpDestroy(ops[rank], comms_[rank]));
  EXPECT_EQ(ncclAllReduce(memory_.data(), &memory_[8], 1, ncclInt32, ops[0], comms_[0], Cuda(streams_[0])),
            ncclInvalidArgument);
  ExpectLastErrorHas({"ncclAllReduce", "op"});
  Sum(1);
}

TEST_F(KnownCallTest, InAGroupItWaitsForTheEnd) {
  for (int i = 0; i < 2; ++i) Sum(4);
  std::array<std::array<int, 4>, kRanks> in{{{1, 2, 3, 4}, {5, 6, 7, 8}}}, out{};
  ASSERT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank)
    ASSERT_NCCL(
        ncclAllReduce(in[rank].data(), out[rank].data(), 4, ncclInt32, ncclSum, comms_[rank], Cuda(streams_[rank])));
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(out[rank], (std::array<int, 4>{}));
  ASSERT_NCCL(ncclGroupEnd());
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_NCCL(axcclStreamSynchronize(streams_[rank]));
    EXPECT_EQ(out[rank], (std::array<int, 4>{6, 8, 10, 12}));
  }
}

TEST_F(KnownCallTest, ManyCallsTakeEachOthersPlace) {
  for (int round = 0; round < 3; ++round) {
    for (size_t count = 0; count < 60; ++count) {
      Sum(count);
      Sum(count, ncclMax, count % 2 != 0);
    }
  }
}

}  // namespace
}  // namespace axccl::tests
