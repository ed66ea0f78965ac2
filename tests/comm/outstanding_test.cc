// Calls that wait for a peer: each costs the same time and memory, however many there are.
//
// Nothing here is compared with a clock: 100,000 calls of which each looks at all others would exceed every deadline.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/comm/streams.h"
#include "tests/harness/residue.h"
#include "tests/harness/run_ranks.h"

namespace axccl::tests {
namespace {

using harness::AllocatedBytes;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;

constexpr size_t kMostBytes = 400;  // that the library may keep for a call

// Two ranks of this thread, so that it is certain which of them waits.
class Pair {
 public:
  Pair() {
    EXPECT_OK(ncclCommInitAll(comms_, 2, nullptr));
    for (int r = 0; r < 2; ++r) {
      EXPECT_OK(axcclHostSetDevice(r));
      for (axcclStream_t& stream : streams_[r]) EXPECT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
    }
  }
  ~Pair() {
    for (int r = 0; r < 2; ++r) {
      for (axcclStream_t stream : streams_[r]) EXPECT_OK(axcclStreamDestroy(stream));
      if (comms_[r] != nullptr) {
        EXPECT_OK(ncclCommDestroy(comms_[r]));
      }
    }
  }
  Pair(const Pair&) = delete;

  static constexpr int kStreams = 8;
  axcclStream_t stream(int rank, int which = 0) const { return streams_[rank][which]; }
  ncclComm_t comm(int rank) const { return comms_[rank]; }

  void AllReduce(int rank, const int* in, int* out, int which = 0) const {
    ASSERT_OK(ncclAllReduce(in, out, 2, ncclInt32, ncclSum, comms_[rank], Cuda(streams_[rank][which])));
  }
  void Send(int rank, const int* in) const {
    ASSERT_OK(ncclSend(in, 2, ncclInt32, 1 - rank, comms_[rank], Cuda(streams_[rank][0])));
  }
  void Receive(int rank, int* out) const {
    ASSERT_OK(ncclRecv(out, 2, ncclInt32, 1 - rank, comms_[rank], Cuda(streams_[rank][0])));
  }
  void Synchronize() const {
    for (int r = 0; r < 2; ++r) {
      ASSERT_OK(axcclHostSetDevice(r));
      for (axcclStream_t stream : streams_[r]) ASSERT_OK(axcclStreamSynchronize(stream));
    }
  }
  void Abort() {
    for (ncclComm_t& comm : comms_) {
      ASSERT_OK(ncclCommAbort(comm));
      comm = nullptr;
    }
  }

 private:
  ncclComm_t comms_[2] = {};
  axcclStream_t streams_[2][kStreams] = {};
};

struct Pattern {
  const char* name;
  // Makes the calls of a rank with `count` pairs of numbers; `each` is the number of calls with each of them.
  void (*call)(const Pair& pair, int rank, size_t count, const int* in, int* out);
  size_t each = 1;
  bool sums = true;  // the outputs are sums, or what the other rank has sent
};

const Pattern kPatterns[] = {
    {"AllReduce",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       for (size_t i = 0; i < count; ++i) pair.AllReduce(rank, in + 2 * i, out + 2 * i);
     }},
    {"AllReduceOnSeveralStreams",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       for (size_t i = 0; i < count; ++i) pair.AllReduce(rank, in + 2 * i, out + 2 * i, i % Pair::kStreams);
     }},
    // Each call waits for an event behind the one before it, which is on another stream.
    {"AllReduceAndEvent",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       Event event;
       for (size_t i = 0; i < count; ++i) {
         const int here = i % Pair::kStreams, next = (i + 1) % Pair::kStreams;
         pair.AllReduce(rank, in + 2 * i, out + 2 * i, here);
         ASSERT_OK(axcclEventRecord(event, pair.stream(rank, here)));
         ASSERT_OK(axcclStreamWaitEvent(pair.stream(rank, next), event));
       }
     },
     2},
    {"GroupOfOneCall",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       for (size_t i = 0; i < count; ++i) {
         ASSERT_OK(ncclGroupStart());
         pair.AllReduce(rank, in + 2 * i, out + 2 * i);
         ASSERT_OK(ncclGroupEnd());
       }
     }},
    {"GroupOfSendAndReceive",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       for (size_t i = 0; i < count; ++i) {
         ASSERT_OK(ncclGroupStart());
         pair.Send(rank, in + 2 * i);
         pair.Receive(rank, out + 2 * i);
         ASSERT_OK(ncclGroupEnd());
       }
     },
     2, false},
    {"GroupsOfAThousandMessages",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       for (size_t i = 0; i < count; ++i) {
         if (i % 500 == 0) {
           ASSERT_OK(ncclGroupStart());
         }
         pair.Send(rank, in + 2 * i);
         pair.Receive(rank, out + 2 * i);
         if (i % 500 == 499 || i + 1 == count) {
           ASSERT_OK(ncclGroupEnd());
         }
       }
     },
     2, false},
    {"OneGroup",
     [](const Pair& pair, int rank, size_t count, const int* in, int* out) {
       ASSERT_OK(ncclGroupStart());
       for (size_t i = 0; i < count; ++i) {
         pair.Send(rank, in + 2 * i);
         pair.Receive(rank, out + 2 * i);
       }
       ASSERT_OK(ncclGroupEnd());
     },
     2, false},
};

class OutstandingTest : public testing::TestWithParam<Pattern> {};

size_t Count() { return harness::TimeScale() == 1 ? 100'000 : 5'000; }

TEST_P(OutstandingTest, CostsTheSameForEachCall) {
  const Pattern pattern = GetParam();
  RunRanks(Processes(1), [&pattern](RankContext&) {
    const size_t count = Count() / pattern.each;
    std::vector<int> in[2], out[2];
    for (int r = 0; r < 2; ++r) {
      in[r].resize(2 * count);
      out[r].resize(2 * count);
      std::iota(in[r].begin(), in[r].end(), 1000 * r);
    }
    const Pair pair;
    // What the library keeps of calls that have ended does not count.
    for (int r = 0; r < 2; ++r) {
      ASSERT_OK(axcclHostSetDevice(r));
      ASSERT_NO_FATAL_FAILURE(pattern.call(pair, r, 10, in[r].data(), out[r].data()));
    }
    ASSERT_NO_FATAL_FAILURE(pair.Synchronize());

    ASSERT_OK(axcclHostSetDevice(0));
    const size_t before = AllocatedBytes();
    ASSERT_NO_FATAL_FAILURE(pattern.call(pair, 0, count, in[0].data(), out[0].data()));
    const size_t bytes = AllocatedBytes() - before;
    EXPECT_EQ(axcclStreamQuery(pair.stream(0)), ncclInProgress);
    if (harness::TimeScale() == 1) {
      EXPECT_LE(bytes, kMostBytes * pattern.each * count);
    }
    ASSERT_OK(axcclHostSetDevice(1));
    ASSERT_NO_FATAL_FAILURE(pattern.call(pair, 1, count, in[1].data(), out[1].data()));
    ASSERT_NO_FATAL_FAILURE(pair.Synchronize());
    for (int r = 0; r < 2; ++r) {
      for (size_t i = 0; i < 2 * count; ++i)
        ASSERT_EQ(out[r][i], pattern.sums ? in[0][i] + in[1][i] : in[1 - r][i]) << "rank " << r << ", number " << i;
    }
    // Nothing is kept of them, but for what serves the next calls.
    if (harness::TimeScale() == 1) {
      EXPECT_LE(AllocatedBytes(), before + (256u << 10));
    }
  });
}

TEST_P(OutstandingTest, AllEndWithAnAbort) {
  const Pattern pattern = GetParam();
  RunRanks(Processes(1), [&pattern](RankContext&) {
    const size_t count = Count() / pattern.each;
    std::vector<int> in(2 * count), out(2 * count);
    Pair pair;
    ASSERT_OK(axcclHostSetDevice(0));
    ASSERT_NO_FATAL_FAILURE(pattern.call(pair, 0, count, in.data(), out.data()));
    ASSERT_NO_FATAL_FAILURE(pair.Abort());
    for (int which = 0; which < Pair::kStreams; ++which) (void)axcclStreamSynchronize(pair.stream(0, which));
    for (int which = 0; which < Pair::kStreams; ++which) EXPECT_OK(axcclStreamQuery(pair.stream(0, which)));
  });
}

INSTANTIATE_TEST_SUITE_P(Patterns, OutstandingTest, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace axccl::tests
