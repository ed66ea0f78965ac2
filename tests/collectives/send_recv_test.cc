// Point-to-point: rings, all pairs in any order, self, several messages per pair, all sizes, mixed with collectives.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/collectives/cases.h"
#include "tests/collectives/owned_view.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::FullTests;
using harness::GuardedArena;
using harness::Layout;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

// The byte at `index` of message `k` from `from` to `to`.
uint8_t MessageByte(uint64_t seed, int from, int to, int k, size_t index) {
  const uint64_t pair = (static_cast<uint64_t>(from) << 32) + static_cast<uint64_t>(to);
  return static_cast<uint8_t>(Scramble(seed, pair, (static_cast<uint64_t>(k) << 40) + index / 8) >> (index % 8 * 8));
}

// A message of this thread's rank, sent or received, in an arena.
struct Message {
  int from;
  int to;
  int k;
  size_t bytes;
  uint8_t* data;
};

class Mailbag {
 public:
  Mailbag(uint64_t seed, size_t arena_bytes) : seed_(seed) {
    for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc}) {
      arenas_.push_back(GuardedArena::Create(memory, arena_bytes));
    }
  }

  uint8_t* AddSend(int from, int to, int k, size_t bytes) {
    uint8_t* data = Take(from, to, k, bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = MessageByte(seed_, from, to, k, i);
    return data;
  }

  uint8_t* AddRecv(int from, int to, int k, size_t bytes) {
    uint8_t* data = Take(to, from, k + 7, bytes);
    expected_.push_back({from, to, k, bytes, data});
    return data;
  }

  void CheckAndReset() {
    for (const Message& message : expected_) {
      for (size_t i = 0; i < message.bytes; ++i) {
        ASSERT_EQ(message.data[i], MessageByte(seed_, message.from, message.to, message.k, i))
            << "byte " << i << " of " << message.bytes << " of message " << message.k << " from " << message.from
            << " to " << message.to;
      }
    }
    for (auto& arena : arenas_) {
      ASSERT_EQ(arena->CheckSentinels(), "");
      arena->Reset();
    }
    expected_.clear();
  }

 private:
  // Kind of memory and alignment depend on message and side.
  uint8_t* Take(int a, int b, int k, size_t bytes) {
    const uint64_t hash = Scramble(seed_, static_cast<uint64_t>(a * 131 + b), static_cast<uint64_t>(k));
    return static_cast<uint8_t*>(arenas_[hash & 1]->Take(bytes, hash >> 8 & 63));
  }

  uint64_t seed_;
  std::vector<std::unique_ptr<GuardedArena>> arenas_;
  std::vector<Message> expected_;
};

class SendRecvTest : public testing::TestWithParam<Layout> {};

TEST_P(SendRecvTest, RingOfEverySize) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Mailbag bag(Seed(), (size_t{40} << 20) * static_cast<size_t>(clique.size()));
    const int n = context.nranks();
    for (size_t bytes :
         {0, 1, 3, 8, 63, 64, 65, 255, 1024, 4095, 8192, 16385, 65536, 131071, 1 << 18, (1 << 20) + 1, 8 << 20}) {
      ASSERT_TRUE(context.Step("ring of %zu bytes", bytes));
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        const int r = clique.rank(i);
        const int next = (r + 1) % n;
        const int previous = (r + n - 1) % n;
        ASSERT_OK(
            ncclSend(bag.AddSend(r, next, 0, bytes), bytes, ncclUint8, next, clique.comm(i), Cuda(clique.stream(i))));
        ASSERT_OK(ncclRecv(bag.AddRecv(previous, r, 0, bytes), bytes, ncclUint8, previous, clique.comm(i),
                           Cuda(clique.stream(i))));
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_NO_FATAL_FAILURE(bag.CheckAndReset());
    }
  });
}

// Every rank sends several messages to every rank, itself included, in one group, each in its own order.
TEST_P(SendRecvTest, AllPairsInAnyOrder) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    Mailbag bag(Seed(), (size_t{12} << 20) * static_cast<size_t>(clique.size()));
    for (int round = 0; round < 12; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      const auto size_of = [&](int from, int to, int k) {
        const uint64_t pair = static_cast<uint64_t>(from * 64 + to);
        const uint64_t hash = Scramble(Seed(), pair, static_cast<uint64_t>(round * 8 + k));
        return static_cast<size_t>(hash >> 8) % ((size_t{1} << (hash % 15)) + 1);
      };
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        const int r = clique.rank(i);
        // The next message index to each peer: in order per pair and direction, any order between pairs.
        std::vector<int> sent(static_cast<size_t>(n)), received(static_cast<size_t>(n));
        Random random(Scramble(Seed(), static_cast<uint64_t>(round), static_cast<uint64_t>(r)));
        constexpr int kMessages = 3;
        for (int left = 2 * n * kMessages; left > 0;) {
          const int peer = static_cast<int>(random.Below(static_cast<uint64_t>(n)));
          const bool send = random.OneIn(2);
          int& k = (send ? sent : received)[static_cast<size_t>(peer)];
          if (k == kMessages) continue;
          if (send) {
            const size_t bytes = size_of(r, peer, k);
            ASSERT_OK(ncclSend(bag.AddSend(r, peer, k, bytes), bytes, ncclInt8, peer, clique.comm(i),
                               Cuda(clique.stream(i))));
          } else {
            const size_t bytes = size_of(peer, r, k);
            ASSERT_OK(ncclRecv(bag.AddRecv(peer, r, k, bytes), bytes, ncclInt8, peer, clique.comm(i),
                               Cuda(clique.stream(i))));
          }
          ++k;
          --left;
        }
      }
      ASSERT_OK(ncclGroupEnd());
      if (round % 3 == 2) {
        ASSERT_TRUE(clique.Synchronize());
        ASSERT_NO_FATAL_FAILURE(bag.CheckAndReset());
      }
    }
  });
}

// Ungrouped calls between pairs of ranks, matched in order; the receiver may call first or last.
TEST_P(SendRecvTest, UngroupedPairsAreFirstInFirstOut) {
  if (GetParam().ranks > 1) GTEST_SKIP() << "ungrouped pairs need a thread for each rank";
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const int r = context.rank();
    const int peer = r ^ 1;
    if (peer >= n) return;
    Mailbag bag(Seed(), size_t{8} << 20);
    Random random(Scramble(Seed(), static_cast<uint64_t>(r / 2)));
    for (int k = 0; k < 60; ++k) {
      ASSERT_TRUE(context.Step("message %d", k));
      const size_t bytes = random.Below(size_t{1} << random.Below(17));
      const bool forward = (r % 2 == 0) == random.OneIn(2);
      if (forward) {
        ASSERT_OK(
            ncclSend(bag.AddSend(r, peer, k, bytes), bytes, ncclUint8, peer, clique.comm(), Cuda(clique.stream())));
      } else {
        ASSERT_OK(
            ncclRecv(bag.AddRecv(peer, r, k, bytes), bytes, ncclUint8, peer, clique.comm(), Cuda(clique.stream())));
      }
    }
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_NO_FATAL_FAILURE(bag.CheckAndReset());
  });
}

TEST_P(SendRecvTest, MixedWithCollectivesInOneGroup) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const auto size = static_cast<size_t>(clique.size());
    Mailbag bag(Seed(), (size_t{4} << 20) * size);
    // Allocated once for all rounds: freeing GPU memory waits for all work that runs on the GPU.
    const auto memory = GuardedArena::Create(
        Memory::kMalloc, size * (GuardedArena::Need(8 << 13) + GuardedArena::Need(8 * static_cast<size_t>(n))));
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      const size_t count = size_t{1} << (round % 14);
      std::vector<int64_t*> sums(size), all(size);
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        const int r = clique.rank(i);
        const int next = (r + 1 + round) % n;
        const int previous = ((r - 1 - round) % n + n) % n;
        const cudaStream_t stream = Cuda(clique.stream(i));
        sums[i] = static_cast<int64_t*>(memory->Take(count * 8, 0));
        all[i] = static_cast<int64_t*>(memory->Take(static_cast<size_t>(n) * 8, 0));
        for (size_t k = 0; k < count; ++k) sums[i][k] = static_cast<int64_t>(k) + r;
        all[i][static_cast<size_t>(r)] = r * 100 + round;
        ASSERT_OK(ncclRecv(bag.AddRecv(previous, r, round, count), count, ncclUint8, previous, clique.comm(i), stream));
        ASSERT_OK(ncclAllReduce(sums[i], sums[i], count, ncclInt64, ncclSum, clique.comm(i), stream));
        ASSERT_OK(ncclSend(bag.AddSend(r, next, round, count), count, ncclUint8, next, clique.comm(i), stream));
        ASSERT_OK(ncclAllGather(&all[i][static_cast<size_t>(r)], all[i], 1, ncclInt64, clique.comm(i), stream));
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_NO_FATAL_FAILURE(bag.CheckAndReset());
      for (int i = 0; i < clique.size(); ++i) {
        for (size_t k = 0; k < count; ++k) {
          ASSERT_EQ(sums[i][k], static_cast<int64_t>(k) * n + n * (n - 1) / 2) << k;
        }
        for (int r = 0; r < n; ++r) ASSERT_EQ(all[i][static_cast<size_t>(r)], r * 100 + round);
      }
      ASSERT_EQ(memory->CheckSentinels(), "");
      memory->Reset();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SendRecvTest,
                         testing::Values(harness::Threads(2), harness::Threads(4), harness::Processes(1),
                                         harness::Processes(2), harness::Processes(3), harness::Processes(6),
                                         harness::OneThread(2), harness::OneThread(4), Layout{2, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

TEST(SendRecv, OneDirectionAtATimeFloods) {
  // Many sends before the first receive: the sender's calls return, and the data waits for its receiver.
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int kMessages = 500;
    Mailbag bag(Seed(), size_t{2} << 20);
    if (context.rank() == 0) {
      for (int k = 0; k < kMessages; ++k) {
        ASSERT_OK(ncclSend(bag.AddSend(0, 1, k, 100), 100, ncclUint8, 1, clique.comm(), Cuda(clique.stream())));
      }
      context.Set(0, 1);
    } else {
      ASSERT_EQ(context.Await(0), 1u);
      for (int k = 0; k < kMessages; ++k) {
        ASSERT_OK(ncclRecv(bag.AddRecv(0, 1, k, 100), 100, ncclUint8, 0, clique.comm(), Cuda(clique.stream())));
      }
    }
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_NO_FATAL_FAILURE(bag.CheckAndReset());
  });
}

TEST(SendRecv, SelfSendNeedsItsReceiveInTheGroup) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int values[3] = {1, 2, 3};
    const auto memory = GuardedArena::Create(Memory::kMalloc, 2 * GuardedArena::Need(sizeof values));
    void* const out = std::memcpy(memory->Take(sizeof values, 0), values, sizeof values);
    void* const in = memory->Take(sizeof values, 0);
    const int r = context.rank();
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclRecv(in, 3, ncclInt32, r, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclSend(out, 3, ncclInt32, r, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(std::memcmp(in, values, sizeof values), 0);
  });
}

// A message of a rank to itself is a copy, so both ends must be of the same form.
TEST(SendRecv, ToOneselfMustAgree) {
  RunRanks(harness::OneThread(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const ncclComm_t comm = clique.comm();
    const axcclChannel_t channel = axcclDefaultChannel(comm);
    const cudaStream_t stream = Cuda(clique.stream());
    harness::DeviceVector<int32_t> input = {1, 2, 3, 4, 5, 6, 7, 8}, output(8, 0);
    int32_t *const in = input.data(), *const out = output.data();
    const View four(in, {4}), eight(out, {8}), square(out, {2, 2}), floats(out, {4}, {}, ncclFloat32);
    const auto refused = [&](ncclResult_t sent, ncclResult_t received, const char* what) {
      EXPECT_OK(sent);
      EXPECT_OK(received);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << what;
      EXPECT_TRUE(harness::LastErrorHas("ncclGroupEnd: rank 0 sends itself")) << ncclGetLastError(nullptr);
      EXPECT_TRUE(harness::LastErrorHas("they must agree")) << ncclGetLastError(nullptr);
      EXPECT_TRUE(clique.Synchronize());
      for (const int32_t element : output) EXPECT_EQ(element, 0) << what;
    };
    ASSERT_OK(ncclGroupStart());
    refused(ncclSend(in, 4, ncclInt32, 0, comm, stream), ncclRecv(out, 8, ncclInt32, 0, comm, stream), "counts");
    ASSERT_OK(ncclGroupStart());
    refused(ncclSend(in, 4, ncclInt32, 0, comm, stream), ncclRecv(out, 4, ncclFloat32, 0, comm, stream), "types");
    for (const View* const to : {&eight, &square, &floats}) {
      ASSERT_OK(ncclGroupStart());
      refused(axcclSend(1, four, 0, channel, nullptr, stream), axcclRecv(1, *to, 0, channel, nullptr, stream), "views");
    }
    ASSERT_OK(ncclGroupStart());
    refused(axcclSend(1, four, 0, channel, nullptr, stream), ncclRecv(out, 4, ncclInt32, 0, comm, stream), "a view");
  });
}

}  // namespace
}  // namespace axccl::tests
