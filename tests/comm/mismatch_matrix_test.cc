// Every pair of different calls that two ranks can make at one place of their programs, point-to-point calls against
// collectives included, for which NCCL hangs: ncclInvalidUsage on both within a second, in a text that names both calls
// as the programs made them. Calls that match succeed, however late a rank comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Cuda;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Threads;

constexpr int64_t kFour[1] = {4}, kTwo[1] = {2}, kEight[1] = {8}, kOne[1] = {1};
constexpr int64_t kTwoEach[2] = {2, 2}, kFourEach[2] = {4, 4}, kFromStart[2] = {0, 2}, kOneEach[2] = {1, 1};
constexpr int32_t kRoots[1] = {0};

axcclView_t View(const void* data, const int64_t* sizes, ncclDataType_t type = ncclFloat32) {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = const_cast<void*>(data), view.datatype = type, view.num_dims = 1, view.sizes = sizes;
  return view;
}

// One rank's communicator, channel, stream and buffers for a call.
struct Site {
  ncclComm_t comm;
  axcclChannel_t channel;
  cudaStream_t stream;
  int rank;
  float in[8], out[8];
};

struct Made {
  const char* name;
  ncclResult_t (*call)(Site*);
  int family;  // calls of one family are the same call, or two ends of one message
};

#define FLAT(family, name, ...)                                           \
  {                                                                       \
    "nccl" #name, [](Site* s) { return nccl##name(__VA_ARGS__); }, family \
  }
#define VIEWS(family, name, in_sizes, out_sizes, ...)                                    \
  {                                                                                      \
    "axccl" #name,                                                                       \
        [](Site* s) {                                                                    \
          const axcclView_t in = View(s->in, in_sizes), out = View(s->out, out_sizes);   \
          return axccl##name(1, &in, &out, __VA_ARGS__, s->channel, nullptr, s->stream); \
        },                                                                               \
        family                                                                           \
  }

constexpr int64_t kThere[2] = {0, 1}, kBack[2] = {1, 0}, kBoth[4] = {0, 1, 1, 0};

const Made kMade[] = {
    FLAT(0, AllReduce, s->in, s->out, 4, ncclFloat32, ncclSum, s->comm, s->stream),
    FLAT(1, AllReduce, s->in, s->out, 5, ncclFloat32, ncclSum, s->comm, s->stream),
    FLAT(2, AllReduce, s->in, s->out, 4, ncclInt32, ncclSum, s->comm, s->stream),
    FLAT(3, AllReduce, s->in, s->out, 4, ncclFloat32, ncclMax, s->comm, s->stream),
    FLAT(4, Broadcast, s->in, s->out, 4, ncclFloat32, 0, s->comm, s->stream),
    FLAT(5, Broadcast, s->in, s->out, 4, ncclFloat32, 1, s->comm, s->stream),
    FLAT(4, Bcast, s->out, 4, ncclFloat32, 0, s->comm, s->stream),
    FLAT(6, Reduce, s->in, s->out, 4, ncclFloat32, ncclSum, 0, s->comm, s->stream),
    FLAT(7, AllGather, s->in, s->out, 4, ncclFloat32, s->comm, s->stream),
    FLAT(8, ReduceScatter, s->in, s->out, 4, ncclFloat32, ncclSum, s->comm, s->stream),
    FLAT(9, AlltoAll, s->in, s->out, 4, ncclFloat32, s->comm, s->stream),
    FLAT(10, Gather, s->in, s->out, 4, ncclFloat32, 0, s->comm, s->stream),
    FLAT(11, Scatter, s->in, s->out, 4, ncclFloat32, 0, s->comm, s->stream),
    FLAT(12, Send, s->in, 4, ncclFloat32, 1 - s->rank, s->comm, s->stream),
    FLAT(12, Recv, s->out, 4, ncclFloat32, 1 - s->rank, s->comm, s->stream),
    FLAT(13, Send, s->in, 5, ncclFloat32, 1 - s->rank, s->comm, s->stream),
    FLAT(14, Recv, s->out, 4, ncclInt32, 1 - s->rank, s->comm, s->stream),
    FLAT(15, Recv, s->out, 16, ncclUint8, 1 - s->rank, s->comm, s->stream),
    VIEWS(20, AllReduce, kFour, kFour, ncclSum),
    VIEWS(21, Broadcast, kFour, kFour, 0),
    VIEWS(22, Reduce, kFour, kFour, ncclSum, 0),
    VIEWS(23, AllGather, kFour, kEight, 0),
    VIEWS(24, ReduceScatter, kEight, kFour, 0, ncclSum),
    VIEWS(25, AllToAll, kEight, kEight, 0, 0),
    VIEWS(26, Gather, kFour, kEight, 0, 0),
    VIEWS(27, Scatter, kEight, kFour, 0, 0),
    VIEWS(28, AllGatherV, kTwo, kFour, 0, kTwoEach),
    VIEWS(29, ReduceScatterV, kFour, kTwo, 0, ncclSum, kTwoEach),
    VIEWS(30, GatherV, kTwo, kFour, 0, 0, kTwoEach),
    VIEWS(31, ScatterV, kFour, kTwo, 0, 0, kTwoEach),
    VIEWS(32, AllToAllV, kFour, kFour, 0, kTwoEach, kTwoEach),
    VIEWS(33, RaggedAllToAll, kFour, kFour, 0, kFromStart, kTwoEach, kFromStart, kTwoEach),
    VIEWS(34, BroadcastFrom, kFour, kFour, kRoots),
    VIEWS(35, ReduceTo, kFour, kFour, ncclSum, kRoots),
    VIEWS(36, CollectivePermute, kFour, kFour, kThere, 1),
    VIEWS(37, CollectivePermute, kFour, kFour, kBack, 1),
    VIEWS(38, CollectivePermute, kFour, kFour, kBoth, 2),
    VIEWS(39, CollectivePermute, kTwo, kTwo, kBoth, 2),
    {"axcclSend",
     [](Site* s) {
       const axcclView_t in = View(s->in, kFour);
       return axcclSend(1, &in, 1 - s->rank, s->channel, nullptr, s->stream);
     },
     40},
    {"axcclRecv",
     [](Site* s) {
       const axcclView_t out = View(s->out, kFour);
       return axcclRecv(1, &out, 1 - s->rank, s->channel, nullptr, s->stream);
     },
     40},
};
#undef FLAT
#undef VIEWS

struct Pair {
  const Made* made[2];  // by rank
};

bool IsRight(const Pair& pair) {
  const char* name = pair.made[0]->name;
  const bool message = std::strstr(name, "Send") != nullptr || std::strstr(name, "Recv") != nullptr;
  const bool same_way = message && std::strcmp(name, pair.made[1]->name) == 0;
  return pair.made[0]->family == pair.made[1]->family && !same_way;
}

// All pairs, or every `step`-th; on a created channel, only pairs of calls that take one.
std::vector<Pair> Pairs(bool created, size_t step) {
  std::vector<Pair> pairs;
  size_t n = 0;
  for (const Made& first : kMade) {
    for (const Made& second : kMade) {
      const Pair pair{{&first, &second}};
      const bool views = std::strncmp(first.name, "axccl", 5) == 0 && std::strncmp(second.name, "axccl", 5) == 0;
      if (!IsRight(pair) && (views || !created) && n++ % step == 0) pairs.push_back(pair);
    }
  }
  return pairs;
}

bool Names(const std::string& text, const std::string& call) { return text.find(call + " ") != std::string::npos; }

void ExpectBothNamed(const Pair& pair, ncclComm_t comm, uint64_t deadline) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess && NowNs() < deadline) ASSERT_OK(ncclCommGetAsyncError(comm, &state));
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_EQ(state, ncclInvalidUsage) << pair.made[0]->name << " against " << pair.made[1]->name << ": " << text;
  for (const Made* made : pair.made) EXPECT_TRUE(Names(text, made->name)) << made->name << " is not in: " << text;
}

// Runs each pair on its own communicator, many at a time.
void RunPairs(RankContext& context, const std::vector<Pair>& pairs, bool created) {
  constexpr size_t kAtATime = 192;
  harness::Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int rank = context.rank();
  for (size_t begin = 0; begin < pairs.size(); begin += kAtATime) {
    const size_t count = std::min(kAtATime, pairs.size() - begin);
    std::vector<Site> sites(count);
    std::vector<axcclStream_t> streams(count);
    for (size_t i = 0; i < count; ++i) {
      Site& site = sites[i];
      site.rank = rank;
      ASSERT_OK(ncclCommSplit(clique.comm(), 0, rank, &site.comm, nullptr));
      ASSERT_OK(axcclStreamCreate(&streams[i], axcclStreamNonBlocking));
      site.stream = Cuda(streams[i]);
      site.channel = axcclDefaultChannel(site.comm);
      if (created) {
        ASSERT_OK(axcclChannelCreate(&site.channel, site.comm, nullptr, 7, 0));
      }
    }
    ASSERT_TRUE(context.Barrier());
    for (size_t i = 0; i < count; ++i) {
      const Made& made = *pairs[begin + i].made[rank];
      ASSERT_TRUE(context.Step("%s", made.name));
      const ncclResult_t called = made.call(&sites[i]);
      EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage)
          << made.name << ": " << ncclGetLastError(nullptr);
    }
    const uint64_t deadline = NowNs() + AllowedNs(1000);
    for (size_t i = 0; i < count; ++i) ExpectBothNamed(pairs[begin + i], sites[i].comm, deadline);
    ASSERT_TRUE(context.Barrier());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NE(axcclStreamSynchronize(streams[i]), ncclInProgress);
      if (created) {
        EXPECT_OK(axcclChannelDestroy(sites[i].channel));
      }
      EXPECT_OK(ncclCommAbort(sites[i].comm));
      EXPECT_OK(axcclStreamDestroy(streams[i]));
    }
  }
}

TEST(MismatchMatrix, EveryPairOfThreads) {
  RunRanks(Threads(2), [](RankContext& context) { RunPairs(context, Pairs(false, 1), false); });
}

TEST(MismatchMatrix, EveryPairOfProcessesOnCreatedChannels) {
  RunRanks(Processes(2), [](RankContext& context) { RunPairs(context, Pairs(true, 1), true); });
}

TEST(MismatchMatrix, SomePairsOfProcesses) {
  RunRanks(Processes(2), [](RankContext& context) { RunPairs(context, Pairs(false, 7), false); });
}

// Each rank waits for the next, and none for the previous one, so no two ranks can detect it alone.
struct Circle {
  harness::Layout layout;
  bool created;  // a channel, and views
  bool permutes;
};

void RunInCircle(RankContext& context, const Circle& circle) {
  constexpr size_t kCount = 1 << 18;
  harness::Clique clique;
  ASSERT_TRUE(clique.Init(context));
  const int n = context.nranks(), self = context.rank(), next = (self + 1) % n, before = (self + n - 1) % n;
  std::vector<float> in(kCount), out(kCount);
  const int64_t sizes[1] = {kCount};
  const axcclView_t send = View(in.data(), sizes), receive = View(out.data(), sizes);
  axcclChannel_t channel = axcclDefaultChannel(clique.comm());
  if (circle.created) {
    ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), nullptr, 7, 0));
  }
  const cudaStream_t stream = Cuda(clique.stream());
  ASSERT_TRUE(context.Barrier());
  const uint64_t deadline = NowNs() + AllowedNs(1000);
  if (circle.permutes) {
    const int64_t pair[2] = {self, next};
    ASSERT_OK(axcclCollectivePermute(1, &send, &receive, pair, 1, channel, nullptr, stream));
  } else if (circle.created) {
    ASSERT_OK(axcclSend(1, &send, next, channel, nullptr, stream));
    (void)axcclRecv(1, &receive, before, channel, nullptr, stream);
  } else {
    ASSERT_OK(ncclSend(in.data(), kCount, ncclFloat32, next, clique.comm(), stream));
    (void)ncclRecv(out.data(), kCount, ncclFloat32, before, clique.comm(), stream);
  }
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess && NowNs() < deadline) ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
  EXPECT_EQ(state, ncclInvalidUsage);
  const std::string text = ncclGetLastError(nullptr);
  const std::string call = circle.permutes ? "axcclCollectivePermute " : circle.created ? "axcclSend " : "ncclSend ";
  for (int rank = 0; rank < n && n <= 4; ++rank) {
    const std::string called =
        "rank " + std::to_string(rank) +
        (text.find("mismatch: rank " + std::to_string(rank)) != std::string::npos ? " called " : ", which called ");
    EXPECT_NE(text.find(called + call), std::string::npos) << called << " is not in: " << text;
  }
  EXPECT_NE(text.find("to rank " + std::to_string(next)), std::string::npos) << text;
  EXPECT_NE(axcclStreamSynchronize(clique.stream()), ncclInProgress);
  if (circle.created) {
    EXPECT_OK(axcclChannelDestroy(channel));
  }
  EXPECT_OK(ncclCommAbort(clique.comm()));
  clique.ForgetComms();
}

TEST(MismatchMatrix, ACircleIsReported) {
  const Circle circles[] = {{Threads(3), false, false},
                            {Processes(3), false, false},
                            {Processes(3), true, false},
                            {Processes(3), false, true},
                            {Threads(4), true, true}};
  for (const Circle& circle : circles)
    RunRanks(circle.layout, [&](RankContext& context) { RunInCircle(context, circle); });
}

// The text names only some ranks of a long circle.
TEST(MismatchMatrix, ALongCircleIsReported) {
  RunRanks(Threads(7), [](RankContext& context) {
    harness::Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(1 << 18);
    ASSERT_OK(ncclSend(data.data(), data.size(), ncclFloat32, (context.rank() + 1) % 7, clique.comm(),
                       Cuda(clique.stream())));
    clique.ExpectMismatch({"ncclSend count 262144 float to rank", "3 more like it, the last of which waits for rank"});
  });
}

// Programs of events, collectives and messages, that all ranks see in one order; every rank puts some consecutive
// events into groups as it likes. By the rule (nccl.h, "Order") they must run, also if ranks come so late that the
// others have long waited in any of these calls.
void RunInOrder(RankContext& context, bool created) {
  constexpr int kEvents = 24, kWords = 512;
  harness::Clique clique;
  ASSERT_TRUE(clique.Init(context, 2));
  const int n = context.nranks(), self = context.rank();
  harness::Random all(harness::Seed()), own(harness::Seed() + 1 + static_cast<uint64_t>(self));
  axcclChannel_t channel = axcclDefaultChannel(clique.comm());
  if (created) {
    ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), nullptr, 3, 0));
  }
  std::vector<std::vector<float>> in(kEvents, std::vector<float>(kWords)), out(in);
  std::vector<float> expected(kEvents, -1);
  int open = 0;
  for (int e = 0; e < kEvents; ++e) {
    const int from = static_cast<int>(all.Below(static_cast<uint64_t>(n)));
    const int to = (from + 1 + static_cast<int>(all.Below(static_cast<uint64_t>(n) - 1))) % n;
    const uint64_t kind = all.Below(4);  // 0: all-reduce, 1: broadcast, 2, 3: a message
    in[e].assign(kWords, static_cast<float>(100 * e + self));
    const int64_t sizes[1] = {kWords};
    const axcclView_t send = View(in[e].data(), sizes), receive = View(out[e].data(), sizes);
    const cudaStream_t stream = Cuda(clique.stream(0, static_cast<int>(own.Below(2))));
    if (kind >= 2 && self != from && self != to) continue;
    if (open == 0 && own.OneIn(3)) {
      ASSERT_OK(ncclGroupStart());
      open = 1 + static_cast<int>(own.Below(4));
    }
    if (open == 0 && own.OneIn(8)) std::this_thread::sleep_for(std::chrono::milliseconds(90));  // late
    if (kind == 0) {
      ASSERT_OK(axcclAllReduce(1, &send, &receive, ncclMax, channel, nullptr, stream));
      expected[e] = static_cast<float>(100 * e + n - 1);
    } else if (kind == 1) {
      ASSERT_OK(axcclBroadcast(1, &send, &receive, from, channel, nullptr, stream));
      expected[e] = static_cast<float>(100 * e + from);
    } else if (self == from) {
      ASSERT_OK(axcclSend(1, &send, to, channel, nullptr, stream));
    } else {
      ASSERT_OK(axcclRecv(1, &receive, from, channel, nullptr, stream));
      expected[e] = static_cast<float>(100 * e + from);
    }
    if (open > 0 && --open == 0) {
      ASSERT_OK(ncclGroupEnd());
    }
  }
  if (open > 0) {
    ASSERT_OK(ncclGroupEnd());
  }
  ASSERT_TRUE(context.Step("wait"));
  ASSERT_TRUE(clique.Synchronize());
  for (int e = 0; e < kEvents; ++e) {
    if (expected[e] >= 0) {
      EXPECT_EQ(out[e], std::vector<float>(kWords, expected[e])) << "event " << e;
    }
  }
  if (created) {
    ASSERT_OK(axcclChannelDestroy(channel));
  }
}

// With more than two ranks, the text names the odd one.
TEST(MismatchMatrix, TheOddRankIsNamed) {
  RunRanks(Processes(4), [](RankContext& context) {
    harness::Clique clique;
    ASSERT_TRUE(clique.Init(context));
    float data[5] = {};
    const size_t count = context.rank() == 2 ? 5 : 4;
    ASSERT_OK(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())));
    clique.ExpectMismatch(
        {"ncclAllReduce count 4 float sum", "rank 2 called ncclAllReduce count 5 float sum", "of 4 ranks"});
  });
}

TEST(MismatchMatrix, LateRanksInOneOrderAreNoMismatch) {
  RunRanks(Threads(4), [](RankContext& context) { RunInOrder(context, false); });
  RunRanks(Processes(3), [](RankContext& context) { RunInOrder(context, true); });
}

}  // namespace
}  // namespace axccl::tests
