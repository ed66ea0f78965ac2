// Tags of messages, and receives from any source: which message meets which receive, whatever the order of calls; and
// what ends a receive that nobody serves.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;

constexpr int kStreams = 4;

struct Tagged : axcclOptions_t {
  explicit Tagged(int the_tag, int* the_source = nullptr) : axcclOptions_t AXCCL_OPTIONS_INITIALIZER {
    tag = the_tag;
    source = the_source;
  }
};

class TagsTest : public testing::TestWithParam<Layout> {};

// Every rank sends every other one messages of four tags, each tag on a stream of its own, in an order of its own.
TEST_P(TagsTest, MessagesMeetByTag) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, kStreams));
    axcclChannel_t created;
    ASSERT_OK(axcclChannelCreate(&created, clique.comm(), nullptr, 3, 0));
    const int ranks = context.nranks(), self = context.rank();
    Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(self)));
    for (const axcclChannel_t channel : {axcclDefaultChannel(clique.comm()), created}) {
      constexpr int kEach = 5;  // messages of a tag to each rank
      const auto size = static_cast<size_t>(ranks * kStreams * kEach);
      harness::DeviceVector<int32_t> out(size), in(size, -1);
      const auto at = [&](int rank, int tag, int i) {
        return static_cast<size_t>((rank * kStreams + tag) * kEach + i);
      };
      std::vector<int> tags(kStreams);
      std::iota(tags.begin(), tags.end(), 0);
      for (size_t k = tags.size(); k > 1; --k) std::swap(tags[k - 1], tags[random.Below(k)]);
      for (int i = 0; i < kEach; ++i) {
        for (const int tag : tags) {
          const Tagged options(tag);
          ASSERT_OK(ncclGroupStart());
          for (int rank = 0; rank < ranks; ++rank) {
            const size_t place = at(rank, tag, i);
            out[place] = static_cast<int32_t>(at(self, tag, i)) * 100 + rank;
            const View from(&out[place], {1}), to(&in[place], {1});
            ASSERT_OK(axcclSend(1, from, rank, channel, &options, Cuda(clique.stream(0, tag))));
            ASSERT_OK(axcclRecv(1, to, rank, channel, &options, Cuda(clique.stream(0, tag))));
          }
          ASSERT_OK(ncclGroupEnd());
        }
      }
      ASSERT_TRUE(clique.Synchronize());
      for (int rank = 0; rank < ranks; ++rank) {
        for (int tag = 0; tag < kStreams; ++tag) {
          for (int i = 0; i < kEach; ++i)
            ASSERT_EQ(in[at(rank, tag, i)], static_cast<int32_t>(at(rank, tag, i)) * 100 + self) << rank << tag << i;
        }
      }
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(axcclChannelDestroy(created));
  });
}

// The sender's first message is what the receiver waits for last; without tags that is a mismatch.
TEST_P(TagsTest, OppositeOrdersMeet) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, kStreams));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    for (int round = 0; round < 20; ++round) {
      harness::DeviceVector<int32_t> data(2 * kStreams, -1);
      for (int k = 0; k < kStreams; ++k) {
        const int stream = context.rank() == 0 ? k : kStreams - 1 - k;
        const Tagged options(stream + 1);
        int32_t* const place = &data[static_cast<size_t>(2 * stream)];
        const View view(place, {1 + stream % 2});  // other sizes: a wrong meeting is an error
        if (context.rank() == 0) {
          place[0] = 1000 * round + stream;
          ASSERT_OK(axcclSend(1, view, 1, channel, &options, Cuda(clique.stream(0, stream))));
        } else if (context.rank() == 1) {
          ASSERT_OK(axcclRecv(1, view, 0, channel, &options, Cuda(clique.stream(0, stream))));
        }
      }
      ASSERT_TRUE(clique.Synchronize());
      for (int stream = 0; stream < kStreams && context.rank() == 1; ++stream)
        ASSERT_EQ(data[static_cast<size_t>(2 * stream)], 1000 * round + stream);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST_P(TagsTest, AReceiveFromAnySourceTakesWhatComes) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, kStreams));
    axcclChannel_t created;
    ASSERT_OK(axcclChannelCreate(&created, clique.comm(), nullptr, 3, 0));
    const int ranks = context.nranks(), root = ranks - 1;
    int tag = 0;
    for (const axcclChannel_t channel : {axcclDefaultChannel(clique.comm()), created}) {
      for (int round = 0; round < 30; ++round) {
        tag = round % 3;                                   // 0, too: in the order of the channel
        const size_t size = round % 2 == 0 ? 3 : 200'000;  // eager and large
        const auto count = static_cast<int64_t>(size);
        if (context.rank() != root) {
          std::vector<int32_t> data(size, 100 * round + context.rank());
          const View view(data.data(), {count});
          const Tagged options(tag);
          ASSERT_OK(axcclSend(1, view, root, channel, &options, Cuda(clique.stream(0, tag))));
          ASSERT_TRUE(clique.Synchronize());
        } else {
          std::vector<std::vector<int32_t>> data(static_cast<size_t>(ranks - 1), std::vector<int32_t>(size, -1));
          std::vector<int> sources(data.size(), -1);
          for (size_t k = 0; k < data.size(); ++k) {
            const View view(data[k].data(), {count});
            const Tagged options(tag, &sources[k]);
            ASSERT_OK(axcclRecv(1, view, AXCCL_ANY_SOURCE, channel, &options, Cuda(clique.stream(0, tag))));
          }
          ASSERT_TRUE(clique.Synchronize());
          for (size_t k = 0; k < data.size(); ++k) {
            ASSERT_GE(sources[k], 0);
            for (const int32_t value : data[k]) ASSERT_EQ(value, 100 * round + sources[k]);
          }
          std::sort(sources.begin(), sources.end());
          for (int k = 0; k < ranks - 1; ++k) ASSERT_EQ(sources[static_cast<size_t>(k)], k) << "each once";
        }
      }
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(axcclChannelDestroy(created));
  });
}

// All ranks receive before they send, and each direction, tag and peer has a stream of its own: no call holds another.
TEST_P(TagsTest, DirectionsAndPeersAreIndependent) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    const int ranks = context.nranks(), self = context.rank();
    ASSERT_TRUE(clique.Init(context, 2 * ranks));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const Tagged options(1);
    for (int round = 0; round < 10; ++round) {
      harness::DeviceVector<int32_t> in(static_cast<size_t>(ranks), -1), out(static_cast<size_t>(ranks), self);
      for (const bool sending : {false, true}) {
        for (int peer = 0; peer < ranks; ++peer) {
          if (peer == self) continue;
          const View view(&(sending ? out : in)[static_cast<size_t>(peer)], {1});
          const cudaStream_t stream = Cuda(clique.stream(0, 2 * peer + sending));
          ASSERT_OK(sending ? axcclSend(1, view, peer, channel, &options, stream)
                            : axcclRecv(1, view, peer, channel, &options, stream));
        }
      }
      ASSERT_TRUE(clique.Synchronize());
      for (int peer = 0; peer < ranks; ++peer) {
        EXPECT_EQ(in[static_cast<size_t>(peer)], peer == self ? -1 : peer);
      }
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// A mixture of named and any sources, with another tag under way that never comes until later.
TEST_P(TagsTest, AnySourceLeavesOtherTagsAlone) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, kStreams));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    int32_t early = 0, late = 0;
    int source = -1;
    const View to_early(&early, {1}), to_late(&late, {1});
    if (context.rank() == 0) {
      const Tagged seven(7, &source), eight(8);
      ASSERT_OK(axcclRecv(1, to_late, AXCCL_ANY_SOURCE, channel, &seven, Cuda(clique.stream(0, 0))));
      ASSERT_OK(axcclRecv(1, to_early, 1, channel, &eight, Cuda(clique.stream(0, 1))));
      ASSERT_OK(axcclStreamSynchronize(clique.stream(0, 1)));
      EXPECT_EQ(early, 8);
      EXPECT_EQ(axcclStreamQuery(clique.stream(0, 0)), ncclInProgress);
    }
    if (context.rank() == 1) {
      early = 8;
      const Tagged eight(8);
      ASSERT_OK(axcclSend(1, to_early, 0, channel, &eight, Cuda(clique.stream())));
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      late = 7;
      const Tagged seven(7);
      ASSERT_OK(axcclSend(1, to_late, 0, channel, &seven, Cuda(clique.stream())));
    }
    ASSERT_TRUE(clique.Synchronize());
    if (context.rank() == 0) {
      EXPECT_EQ(late, 7);
      EXPECT_EQ(source, 1);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST_P(TagsTest, ADeadlineEndsAReceiveFromAnySource) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int32_t data = 0;
    const View view(&data, {1});
    Tagged options(9);
    options.timeout = 0.3;
    if (context.rank() == 0) {
      ASSERT_OK(
          axcclRecv(1, view, AXCCL_ANY_SOURCE, axcclDefaultChannel(clique.comm()), &options, Cuda(clique.stream())));
      EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclTimeout);
      const std::string text = ncclGetLastError(clique.comm());
      EXPECT_NE(text.find("rank 0 waited 0.3 s for any rank in axcclRecv of blocks [1] int32"), std::string::npos)
          << text;
      EXPECT_NE(text.find("with tag 9: deadline of the call's options passed; no rank has sent one"), std::string::npos)
          << text;
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Abort, and the death or departure of the senders.
TEST_P(TagsTest, OtherEndsOfAReceiveFromAnySource) {
  for (const std::string how : {"abort", "leave", "die"}) {
    if (how == "die" && GetParam().processes == 1) continue;
    RunRanks(GetParam(), [&](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      int32_t data = 0;
      const View view(&data, {1});
      const Tagged options(1);
      if (context.rank() == 0) {
        ASSERT_OK(
            axcclRecv(1, view, AXCCL_ANY_SOURCE, axcclDefaultChannel(clique.comm()), &options, Cuda(clique.stream())));
      }
      ASSERT_TRUE(context.Barrier(1));
      const uint64_t started = harness::NowNs();
      if (context.rank() != 0) {
        if (how == "die") context.Die();
        if (how == "leave") {
          ASSERT_OK(ncclCommDestroy(clique.comm()));
          clique.ForgetComms();
        }
      } else if (how == "abort") {
        ASSERT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
        EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage);
      } else {
        EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclRemoteError) << how;
      }
      EXPECT_LT(harness::NowNs() - started, harness::AllowedNs(3000)) << how;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TagsTest,
                         testing::Values(harness::Processes(2), harness::Processes(4), harness::Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

// The options' source is written whether the receive names a rank or not.
TEST(Tags, AReceiveFromANamedRankWritesItsSource) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    for (const int tag : {0, 3}) {
      for (const int peer : {1 - context.rank(), context.rank()}) {
        harness::DeviceVector<int32_t> data = {context.rank(), -1};
        const View in(&data[0], {1}), out(&data[1], {1});
        int source = -7;
        const Tagged sends(tag), receives(tag, &source);
        ASSERT_OK(ncclGroupStart());
        ASSERT_OK(axcclSend(1, in, peer, channel, &sends, stream));
        ASSERT_OK(axcclRecv(1, out, peer, channel, &receives, stream));
        ASSERT_OK(ncclGroupEnd());
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(source, peer) << "tag " << tag;
        EXPECT_EQ(data[1], peer) << "tag " << tag;
      }
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Tags, WrongArgumentsAreNamed) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int32_t data[2] = {};
    int source = 0;
    const View view(data, {1}), other(data + 1, {1});
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    const Tagged negative(-1), tagged(3), asks(0, &source);
    const auto refused = [&](ncclResult_t result, ncclResult_t expected, const char* words) {
      EXPECT_EQ(result, expected) << words;
      EXPECT_TRUE(harness::LastErrorHas(words)) << words << " not in " << ncclGetLastError(nullptr);
    };
    refused(axcclSend(1, view, 1, channel, &negative, stream), ncclInvalidArgument,
            "axcclSend: the options have tag -1; pass 0 or a positive number");
    refused(axcclAllReduce(1, view, view, ncclSum, channel, &tagged, stream), ncclInvalidArgument,
            "the options have tag 3; tags go with axcclSend and axcclRecv, pass 0");
    refused(axcclSend(1, view, 1, channel, &asks, stream), ncclInvalidArgument,
            "the options have a source, which goes with axcclRecv");
    refused(axcclSend(1, view, AXCCL_ANY_SOURCE, channel, nullptr, stream), ncclInvalidArgument,
            "argument peer is -1; pass a rank of the channel's group (0..1)");
    refused(axcclRecv(1, view, -2, channel, nullptr, stream), ncclInvalidArgument, "or AXCCL_ANY_SOURCE");
    ASSERT_OK(ncclGroupStart());
    refused(axcclRecv(1, view, AXCCL_ANY_SOURCE, channel, nullptr, stream), ncclInvalidUsage,
            "is AXCCL_ANY_SOURCE inside a group");
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    // A message to oneself meets by its tag.
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(axcclSend(1, view, context.rank(), channel, &tagged, stream));
    ASSERT_OK(axcclRecv(1, other, context.rank(), channel, nullptr, stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::tests
