// The first operation of a channel when the ranks it waits for do not come: it ends in time, with an error that names
// the cause.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::Gather;
using harness::LastErrorHas;
using harness::Layout;
using harness::MakeChannel;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

using Values = std::vector<int64_t>;
using Lists = std::vector<std::vector<int64_t>>;

constexpr int kMomentCell = 21;  // time of the event that the ranks wait for, ns

// Expects that the stream ends with `code` soon after `since`, and a last-error text that has all of `words`.
void ExpectEnd(const Clique& clique, ncclResult_t code, uint64_t since, uint64_t promised_ms,
               const std::vector<std::string>& words) {
  EXPECT_EQ(harness::EndOf(clique.stream(), clique.comm()), code) << ncclGetLastError(nullptr);
  const uint64_t now = NowNs();
  EXPECT_LT(now, since + AllowedNs(promised_ms)) << "took " << (now - since) / 1000 << " us";
  for (const std::string& word : words)
    EXPECT_TRUE(LastErrorHas(word)) << "no \"" << word << "\" in: " << ncclGetLastError(nullptr);
}

// Whether a call that is wrong is enqueued, or gets the error itself, because another rank has found it already.
bool IsAccepted(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInvalidUsage || result == ncclRemoteError;
}

void Abort(Clique* clique) {
  EXPECT_OK(ncclCommAbort(clique->comm()));
  clique->ForgetComms();
}

class ChannelFailureTest : public testing::TestWithParam<Layout> {};

TEST_P(ChannelFailureTest, ARankThatNeverCreatesItIsATimeout) {
  RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "0.3"}};
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        axcclChannel_t channel = nullptr;
        if (context.rank() != 1) {
          channel = MakeChannel(clique.comm(), 3, {{2, 1, 0}}, 9);
          Gather gather(3, 10, context.rank());
          const uint64_t start = NowNs();
          ASSERT_OK(gather.Enqueue(channel, clique.stream()));
          ExpectEnd(clique, ncclTimeout, start, 700,
                    {"rank 1 to create and use channel 9 of ranks [2 1 0]", "AXCCL_TIMEOUT", "AllGather"});
          EXPECT_EQ(gather.Values(), (Values{-1, -1, -1}));
        }
        ASSERT_TRUE(context.Barrier(1));
        Abort(&clique);
        if (channel != nullptr) {
          EXPECT_OK(axcclChannelDestroy(channel));
        }
      },
      options);
}

// A rank that has created the channel but makes no call on it is named in the same way.
TEST_P(ChannelFailureTest, ARankThatNeverUsesItIsATimeout) {
  RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "0.3"}};
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 9);
        if (context.rank() != 2) {
          Gather gather(3, 10, context.rank());
          const uint64_t start = NowNs();
          ASSERT_OK(gather.Enqueue(channel, clique.stream()));
          ExpectEnd(clique, ncclTimeout, start, 700, {"for rank 2 to create and use channel 9"});
        }
        ASSERT_TRUE(context.Barrier(1));
        Abort(&clique);
        EXPECT_OK(axcclChannelDestroy(channel));
      },
      options);
}

TEST_P(ChannelFailureTest, DifferentGroupsAreAnErrorOnAllRanks) {
  struct Odd {
    Lists odd, others;  // the lists of rank 0, and those of ranks 1 and 2
  };
  const std::vector<Odd> cases = {{{{0, 1, 2}}, {{0, 2, 1}}}, {{{0, 1}}, {{0, 1, 2}}}, {{{0, 1, 2}}, {{1, 0}, {2}}}};
  for (const Odd& c : cases) {
    RunRanks(GetParam(), [&c](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const Lists& lists = context.rank() == 0 ? c.odd : c.others;
      axcclChannel_t channel = MakeChannel(clique.comm(), 3, lists, 4);
      ASSERT_TRUE(context.Barrier());  // once ranks have seen the error, no rank can create a channel
      axcclChannelInfo_t info{};
      info.size = sizeof(info);
      ASSERT_OK(axcclChannelGetInfo(channel, &info));
      if (info.group_size > 1) {
        Gather gather(info.group_size, 10, context.rank());
        const uint64_t start = NowNs();
        ASSERT_TRUE(IsAccepted(gather.Enqueue(channel, clique.stream())));
        ExpectEnd(clique, ncclInvalidUsage, start, 1000,
                  {"groups differ", "uses channel 4 of ranks [", "created channel 4"});
      }
      ASSERT_TRUE(context.Barrier(1));
      Abort(&clique);
      EXPECT_OK(axcclChannelDestroy(channel));
    });
  }
}

TEST_P(ChannelFailureTest, ARankThatDestroysItUnusedIsNamed) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 8);
    ASSERT_TRUE(context.Barrier(3));
    Gather gather(3, 10, context.rank());
    if (context.rank() == 1) {
      ASSERT_TRUE(context.Barrier(1));
      context.Set(kMomentCell, NowNs());
    } else {
      ASSERT_OK(gather.Enqueue(channel, clique.stream()));
      EXPECT_EQ(harness::QueryStream(clique.stream()), ncclInProgress);
      ASSERT_TRUE(context.Barrier(1));
      ExpectEnd(clique, ncclRemoteError, context.Await(kMomentCell), 100, {"rank 1, which has destroyed channel 8"});
    }
    EXPECT_OK(axcclChannelDestroy(channel));
    ASSERT_TRUE(context.Barrier(2));
    Abort(&clique);
  });
}

// Rank 1 destroys the channel. Expects that the next call on it fails on ranks 0 and 2, with that text.
void ExpectDestroyedByOne(RankContext& context, Clique* clique, axcclChannel_t channel, Gather* gather,
                          const char* text) {
  if (context.rank() == 1) {
    EXPECT_OK(axcclChannelDestroy(channel));
  }
  ASSERT_TRUE(context.Barrier(3));
  if (context.rank() != 1) {
    const uint64_t start = NowNs();
    ASSERT_OK(gather->Enqueue(channel, clique->stream()));
    ExpectEnd(*clique, ncclRemoteError, start, 1000, {text});
    EXPECT_OK(axcclChannelDestroy(channel));
  }
  ASSERT_TRUE(context.Barrier(3));
  Abort(clique);
}

// As above, but the channel is destroyed before any other rank uses it.
TEST_P(ChannelFailureTest, ARankThatHasDestroyedItUnusedIsNamed) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Gather gather(3, 10, context.rank());
    ExpectDestroyedByOne(context, &clique, MakeChannel(clique.comm(), 3, {}, 8), &gather,
                         "rank 1, which has destroyed channel 8");
  });
}

// Rank 0 destroys its first channel without using it, so it uses the id less often than the others.
TEST_P(ChannelFailureTest, AnUnusedLifetimeOfAChannelIsReported) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 4);
    if (context.rank() == 0) {
      EXPECT_OK(axcclChannelDestroy(channel));
      channel = MakeChannel(clique.comm(), 3, {}, 4);
    }
    ASSERT_TRUE(context.Barrier(3));
    Gather gather(3, 10, context.rank());
    const uint64_t start = NowNs();
    ASSERT_TRUE(IsAccepted(gather.Enqueue(channel, clique.stream())));
    ExpectEnd(clique, ncclInvalidUsage, start, 1000, {"channel 4 of ranks [0 1 2] 2 times"});
    ASSERT_TRUE(context.Barrier(1));
    Abort(&clique);
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

// The rule (channels.h): all ranks create, use and destroy a channel equally often. Programs in garbage-collected
// languages break it if they leave the destruction to a collector, which runs at another time on every rank.
TEST_P(ChannelFailureTest, ACallFailsAfterAnotherRankHasDestroyedItsEnd) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 5);
    Gather gather(3, 10, context.rank());
    ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    ExpectDestroyedByOne(context, &clique, channel, &gather, "for rank 1, which has destroyed its end of channel 5");
  });
}

// Ranks 0 and 2 still have the channel, and creating it gives the same one; rank 1 has destroyed it and gets a new one.
TEST_P(ChannelFailureTest, DifferentLifetimesAreReported) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 5);
    Gather gather(3, 10, context.rank());
    ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    if (context.rank() == 1) {
      EXPECT_OK(axcclChannelDestroy(channel));
    }
    channel = MakeChannel(clique.comm(), 3, {}, 5);
    ASSERT_TRUE(context.Barrier(3));
    const uint64_t start = NowNs();
    ASSERT_TRUE(IsAccepted(gather.Enqueue(channel, clique.stream())));
    ExpectEnd(clique, ncclRemoteError, start, 1000, {"for rank 1, which has destroyed its end of channel 5"});
    ASSERT_TRUE(context.Barrier(3));
    EXPECT_OK(axcclChannelDestroy(channel));
    if (context.rank() != 1) {
      EXPECT_OK(axcclChannelDestroy(channel));
    }
    Abort(&clique);
  });
}

// The first or a later message to a rank that has destroyed its end.
TEST_P(ChannelFailureTest, AMessageToADestroyedEndFails) {
  for (const bool first : {true, false}) {
    RunRanks(GetParam(), [first](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 5);
      axcclView_t view = AXCCL_VIEW_INITIALIZER;
      harness::DeviceVector<float> data(1, 0);
      view.data = data.data();
      const auto message = [&] {
        return context.rank() == 0 ? axcclSend(1, &view, 1, channel, nullptr, Cuda(clique.stream()))
                                   : axcclRecv(1, &view, 0, channel, nullptr, Cuda(clique.stream()));
      };
      if (!first && context.rank() != 2) {
        ASSERT_OK(message());
        ASSERT_TRUE(clique.Synchronize());
      }
      if (context.rank() == 1) {
        EXPECT_OK(axcclChannelDestroy(channel));
      }
      ASSERT_TRUE(context.Barrier(3));
      if (context.rank() == 0) {
        const uint64_t start = NowNs();
        ASSERT_OK(message());
        ExpectEnd(clique, ncclRemoteError, start, 1000, {"rank 1, which has destroyed", "channel 5 of ranks [0 1 2]"});
      }
      ASSERT_TRUE(context.Barrier(3));
      if (context.rank() != 1) {
        EXPECT_OK(axcclChannelDestroy(channel));
      }
      Abort(&clique);
    });
  }
}

// Channels of one id that are all created in time cause no error, however long a rank waits for each.
TEST_P(ChannelFailureTest, SeveralGroupsMayShareAnId) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    axcclChannel_t one = MakeChannel(clique.comm(), 3, {{0, 1, 2}}, 0);
    if (context.rank() == 1) {
      // Has only the first channel while the others check several times why rank 1 does not come.
      const uint64_t until = context.Await(kMomentCell) + 100000000u;
      while (NowNs() < until) harness::LookLater();
    }
    axcclChannel_t two = MakeChannel(clique.comm(), 3, {{2, 1, 0}}, 0);
    Gather first(3, 10, context.rank()), second(3, 10, context.rank());
    // The ranks use the channels in opposite orders.
    const int stream = context.rank() % 2;
    ASSERT_OK((stream == 0 ? first : second).Enqueue(stream == 0 ? one : two, clique.stream(0, stream)));
    if (context.rank() == 0) context.Set(kMomentCell, NowNs());
    ASSERT_OK((stream == 0 ? second : first).Enqueue(stream == 0 ? two : one, clique.stream(0, 1 - stream)));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(first.Values(), (Values{0, 1, 2}));
    EXPECT_EQ(second.Values(), (Values{2, 1, 0}));
    EXPECT_OK(axcclChannelDestroy(one));
    EXPECT_OK(axcclChannelDestroy(two));
  });
}

// It is no error either that messages have started in one direction only.
TEST_P(ChannelFailureTest, MessagesMayStartInOneDirectionOnly) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 5);
    harness::DeviceVector<int64_t> sent(1, 100 + context.rank()), received(1, -1);
    const int64_t size = 1;
    axcclView_t out = AXCCL_VIEW_INITIALIZER;
    out.data = sent.data(), out.datatype = ncclInt64, out.num_dims = 1, out.sizes = &size;
    axcclView_t in = out;
    in.data = received.data();
    if (context.rank() == 0) {
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(axcclSend(1, &out, 1, channel, nullptr, Cuda(clique.stream())));
      ASSERT_OK(axcclRecv(1, &in, 1, channel, nullptr, Cuda(clique.stream())));
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(received[0], 101);
    } else if (context.rank() == 1) {
      ASSERT_OK(axcclRecv(1, &in, 0, channel, nullptr, Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      // Rank 0 checks several times why the other message does not come.
      const uint64_t until = NowNs() + 100000000u;
      while (NowNs() < until) harness::LookLater();
      ASSERT_OK(axcclSend(1, &out, 0, channel, nullptr, Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(received[0], 100);
    }
    ASSERT_TRUE(context.Barrier(1));
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

TEST_P(ChannelFailureTest, AnAbortEndsTheWait) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = nullptr;
    if (context.rank() == 0) {
      // Never creates it; aborts while the others wait.
      ASSERT_TRUE(context.Barrier(1));
      context.Set(kMomentCell, NowNs());
      Abort(&clique);
    } else {
      channel = MakeChannel(clique.comm(), 3, {}, 1);
      Gather gather(3, 10, context.rank());
      ASSERT_OK(gather.Enqueue(channel, clique.stream()));
      ASSERT_TRUE(context.Barrier(1));
      ExpectEnd(clique, ncclRemoteError, context.Await(kMomentCell), 100, {"rank 0"});
      Abort(&clique);
      EXPECT_OK(axcclChannelDestroy(channel));
    }
    ASSERT_TRUE(context.Barrier(2));
  });
}

TEST_P(ChannelFailureTest, OwnAbortEndsTheWait) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() == 0) {
      axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 1);
      Gather gather(3, 10, context.rank());
      ASSERT_OK(gather.Enqueue(channel, clique.stream()));
      const uint64_t start = NowNs();
      Abort(&clique);
      EXPECT_EQ(harness::SynchronizeStream(clique.stream()) == ncclSuccess, harness::OnGpu());
      EXPECT_LT(NowNs(), start + AllowedNs(100));
      EXPECT_OK(axcclChannelDestroy(channel));
      EXPECT_EQ(gather.Values(), (Values{-1, -1, -1}));
    }
    ASSERT_TRUE(context.Barrier(2));
    if (context.rank() != 0) Abort(&clique);
  });
}

TEST_P(ChannelFailureTest, ADestroyedCommunicatorEndsTheWait) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {}, 1);
    if (context.rank() == 0) {
      ASSERT_TRUE(context.Barrier(1));
      context.Set(kMomentCell, NowNs());
      EXPECT_OK(ncclCommDestroy(clique.comm()));
      clique.ForgetComms();
    } else {
      Gather gather(3, 10, context.rank());
      ASSERT_OK(gather.Enqueue(channel, clique.stream()));
      ASSERT_TRUE(context.Barrier(1));
      ExpectEnd(clique, ncclRemoteError, context.Await(kMomentCell), 100, {"rank 0"});
      Abort(&clique);
    }
    EXPECT_OK(axcclChannelDestroy(channel));
    ASSERT_TRUE(context.Barrier(2));
  });
}

std::string LayoutName(const testing::TestParamInfo<Layout>& info) { return info.param.Text(); }
INSTANTIATE_TEST_SUITE_P(Layouts, ChannelFailureTest, testing::Values(Threads(3), Processes(3)), LayoutName);

TEST(ChannelDeath, BeforeOrAfterItIsCreated) {
  for (const bool created : {false, true}) {
    RunRanks(Processes(3), [created](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      axcclChannel_t channel = nullptr;
      if (created || context.rank() != 1) channel = MakeChannel(clique.comm(), 3, {}, 1);
      if (context.rank() == 1) {
        ASSERT_TRUE(context.Barrier(1));
        context.Set(kMomentCell, NowNs());
        context.Die();
      }
      Gather gather(3, 10, context.rank());
      ASSERT_OK(gather.Enqueue(channel, clique.stream()));
      ASSERT_TRUE(context.Barrier(1));
      ExpectEnd(clique, ncclRemoteError, context.Await(kMomentCell), 100, {"rank 1"});
      Abort(&clique);
      EXPECT_OK(axcclChannelDestroy(channel));
    });
  }
}

// The rank dies in an operation on a channel, after many that succeeded.
TEST(ChannelDeath, InALaterOperation) {
  RunRanks(Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel = MakeChannel(clique.comm(), 3, {{2, 0}, {1}}, 1);
    if (context.rank() != 1) {
      for (int i = 0; i < 50; ++i) {
        Gather gather(2, 10, context.rank());
        ASSERT_OK(gather.Enqueue(channel, clique.stream()));
        ASSERT_TRUE(clique.Synchronize());
        ASSERT_EQ(gather.Values(), (Values{2, 0}));
      }
    }
    if (context.rank() == 2) {
      context.Set(kMomentCell, NowNs());
      context.Die();
    }
    if (context.rank() == 0) {
      Gather gather(2, 10, 0);
      ASSERT_OK(gather.Enqueue(channel, clique.stream()));
      ExpectEnd(clique, ncclRemoteError, context.Await(kMomentCell), 100, {"rank 2"});
    }
    Abort(&clique);
    EXPECT_OK(axcclChannelDestroy(channel));
  });
}

}  // namespace
}  // namespace axccl::tests
