// Collectives with a view for every rank, against their definition: random shapes, strides, types, sizes that differ
// from rank to rank (0 included), in place and not, on the communicator and on channels.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "axccl/axccl.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;

constexpr int32_t kSentinel = 0x5a5a5a5a;

// A tensor of int32 with gaps, in memory of its own with sentinels everywhere else.
class Tensor {
 public:
  Tensor(std::vector<int64_t> sizes, Random* random) : sizes_(std::move(sizes)) {
    strides_.resize(sizes_.size());
    int64_t next = 1 + static_cast<int64_t>(random->Below(2));
    const bool columns = random->OneIn(2);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const size_t d = columns ? i : sizes_.size() - 1 - i;
      strides_[d] = next;
      next = next * std::max<int64_t>(sizes_[d], 1) + static_cast<int64_t>(random->Below(3));
    }
    memory_.assign(static_cast<size_t>(next) + 8, kSentinel);
    view_.data = memory_.data() + 4;
    view_.datatype = ncclInt32;
    view_.num_dims = static_cast<int>(sizes_.size());
    view_.sizes = sizes_.data();
    view_.strides = strides_.data();
  }
  const axcclView_t& view() const { return view_; }
  int64_t elements() const { return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>()); }
  int32_t& at(int64_t i) {
    size_t offset = 4;
    for (size_t d = sizes_.size(); d-- > 0; i /= sizes_[d]) offset += static_cast<size_t>(i % sizes_[d] * strides_[d]);
    return memory_[offset];
  }
  template <class ValueOf>
  void Fill(const ValueOf& value) {
    for (int64_t i = 0; i < elements(); ++i) at(i) = value(i);
  }
  // Takes the expected values out, so that only sentinels are left.
  template <class ValueOf>
  void Expect(const ValueOf& value) {
    for (int64_t i = 0; i < elements(); ++i) {
      ASSERT_EQ(at(i), value(i)) << "element " << i;
      at(i) = kSentinel;
    }
    for (const int32_t word : memory_) ASSERT_EQ(word, kSentinel);
  }

 private:
  const std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  harness::DeviceVector<int32_t> memory_;
  axcclView_t view_ = AXCCL_VIEW_INITIALIZER;
};

using Tensors = std::vector<std::unique_ptr<Tensor>>;

std::vector<axcclView_t> ViewsOf(const Tensors& tensors) {
  std::vector<axcclView_t> views;
  for (const auto& tensor : tensors) views.push_back(tensor->view());
  return views;
}

// What rank `from` has for rank `to`.
int32_t ValueOf(int from, int to, int64_t i) { return static_cast<int32_t>(i) * 1000 + from * 20 + to; }

// The sizes of what belongs to a pair of ranks: the same on all ranks.
std::vector<int64_t> SizesFor(uint64_t seed, int from, int to) {
  Random random(harness::Scramble(seed, static_cast<uint64_t>(from * 64 + to)));
  std::vector<int64_t> sizes;
  for (uint64_t d = random.Below(4); d > 0; --d)
    sizes.push_back(
        static_cast<int64_t>(random.OneIn(8) ? random.Below(2) : 1 + random.Below(random.OneIn(6) ? 60 : 7)));
  return sizes;
}

class Round {
 public:
  Round(Clique* clique, axcclChannel_t channel, uint64_t seed)
      : clique_(clique), channel_(channel), seed_(seed), random_(harness::Scramble(seed, clique->rank(0))) {}

  void AllGather() {
    Tensors out = PerRank([&](int r) { return SizesFor(seed_, r, 0); });
    Tensor in(SizesFor(seed_, self(), 0), &random_);
    const bool in_place = random_.OneIn(3);
    Tensor* const from = in_place ? out[size_t(self())].get() : &in;
    from->Fill([&](int64_t i) { return ValueOf(self(), 0, i); });
    ASSERT_OK(axcclAllGatherList(&from->view(), ViewsOf(out).data(), channel_, nullptr, stream()));
    ASSERT_TRUE(clique_->Synchronize());
    for (int r = 0; r < ranks(); ++r) out[size_t(r)]->Expect([&](int64_t i) { return ValueOf(r, 0, i); });
    if (!in_place) in.Expect([&](int64_t i) { return ValueOf(self(), 0, i); });
  }
  void ReduceScatter() {
    Tensors in = PerRank([&](int r) { return SizesFor(seed_, r, 0); });
    for (int r = 0; r < ranks(); ++r) in[size_t(r)]->Fill([&](int64_t i) { return ValueOf(self(), r, i); });
    Tensor out(SizesFor(seed_, self(), 0), &random_);
    ASSERT_OK(axcclReduceScatterList(ViewsOf(in).data(), &out.view(), ncclSum, channel_, nullptr, stream()));
    ASSERT_TRUE(clique_->Synchronize());
    out.Expect([&](int64_t i) {
      int32_t sum = 0;
      for (int r = 0; r < ranks(); ++r) sum += ValueOf(r, self(), i);
      return sum;
    });
    for (int r = 0; r < ranks(); ++r) in[size_t(r)]->Expect([&](int64_t i) { return ValueOf(self(), r, i); });
  }
  void AllToAll() {
    Tensors in = PerRank([&](int r) { return SizesFor(seed_, self(), r); });
    Tensors out = PerRank([&](int r) { return SizesFor(seed_, r, self()); });
    for (int r = 0; r < ranks(); ++r) in[size_t(r)]->Fill([&](int64_t i) { return ValueOf(self(), r, i); });
    ASSERT_OK(axcclAllToAllList(ViewsOf(in).data(), ViewsOf(out).data(), channel_, nullptr, stream()));
    ASSERT_TRUE(clique_->Synchronize());
    for (int r = 0; r < ranks(); ++r) out[size_t(r)]->Expect([&](int64_t i) { return ValueOf(r, self(), i); });
  }
  void Rooted(int root, bool gathers) {
    Tensors many = PerRank([&](int r) { return SizesFor(seed_, r, 0); });
    Tensor one(SizesFor(seed_, self(), 0), &random_);
    const std::vector<axcclView_t> views = ViewsOf(many);
    const bool roots = root == self();
    if (gathers) {
      one.Fill([&](int64_t i) { return ValueOf(self(), root, i); });
      ASSERT_OK(axcclGatherList(&one.view(), roots ? views.data() : nullptr, root, channel_, nullptr, stream()));
    } else {
      for (int r = 0; r < ranks(); ++r) many[size_t(r)]->Fill([&](int64_t i) { return ValueOf(root, r, i); });
      ASSERT_OK(axcclScatterList(roots ? views.data() : nullptr, &one.view(), root, channel_, nullptr, stream()));
    }
    ASSERT_TRUE(clique_->Synchronize());
    one.Expect([&](int64_t i) { return gathers ? ValueOf(self(), root, i) : ValueOf(root, self(), i); });
    for (int r = 0; r < ranks() && roots; ++r)
      many[size_t(r)]->Expect([&](int64_t i) { return gathers ? ValueOf(r, root, i) : ValueOf(root, r, i); });
  }

 private:
  template <class SizesOf>
  Tensors PerRank(const SizesOf& sizes) {
    Tensors all;
    for (int r = 0; r < ranks(); ++r) all.push_back(std::make_unique<Tensor>(sizes(r), &random_));
    return all;
  }
  int self() const { return clique_->rank(0); }
  int ranks() const { return clique_->nranks(); }
  cudaStream_t stream() const { return Cuda(clique_->stream()); }

  Clique* const clique_;
  const axcclChannel_t channel_;
  const uint64_t seed_;
  Random random_;
};

class ListCallsTest : public testing::TestWithParam<Layout> {};

TEST_P(ListCallsTest, RandomListsAgreeWithTheDefinition) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t created;
    ASSERT_OK(axcclChannelCreate(&created, clique.comm(), nullptr, 3, 0));
    for (uint64_t i = 0; i < 60; ++i) {
      const uint64_t seed = harness::Scramble(harness::Seed(), i);
      Random common(seed);
      Round round(&clique, common.OneIn(2) ? created : axcclDefaultChannel(clique.comm()), seed);
      const int root = static_cast<int>(common.Below(static_cast<uint64_t>(clique.nranks())));
      ASSERT_TRUE(context.Step("round %d", static_cast<int>(i)));
      ASSERT_NO_FATAL_FAILURE(round.AllGather());
      ASSERT_NO_FATAL_FAILURE(round.ReduceScatter());
      ASSERT_NO_FATAL_FAILURE(round.AllToAll());
      ASSERT_NO_FATAL_FAILURE(round.Rooted(root, true));
      ASSERT_NO_FATAL_FAILURE(round.Rooted(root, false));
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(axcclChannelDestroy(created));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, ListCallsTest,
                         testing::Values(harness::Processes(1), harness::Processes(2), harness::Processes(5),
                                         harness::Threads(3), harness::Threads(8)),
                         [](const auto& info) { return info.param.Text(); });

// An all-gather of a list is one operation on host ranks for as many ranks as an announcement has room for.
TEST(ListCalls, ManyRanksTakeFewOperations) {
  if (harness::OnGpu()) GTEST_SKIP() << "of host ranks";
  const int ranks = harness::FullTests() ? 130 : 70;
  RunRanks(harness::Threads(ranks), [=](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const auto operations = [&] { return harness::InfoOf(clique.comm()).operations; };
    const uint64_t before = operations();
    Round(&clique, axcclDefaultChannel(clique.comm()), harness::Seed()).AllGather();
    EXPECT_EQ(operations() - before, ranks == 130 ? 3u : 2u);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(ListCalls, WrongArgumentsAreNamed) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    Random random(1);
    Tensor two({2}, &random), three({3}, &random);
    const axcclView_t both[] = {two.view(), two.view()}, threes[] = {three.view(), three.view()};
    axcclOptions_t tagged = AXCCL_OPTIONS_INITIALIZER;
    tagged.tag = 4;
    const auto refused = [&](ncclResult_t result, const char* words) {
      EXPECT_EQ(result, ncclInvalidArgument) << words;
      EXPECT_TRUE(harness::LastErrorHas(words)) << words << " not in " << ncclGetLastError(nullptr);
    };
    refused(axcclAllGatherList(nullptr, both, channel, nullptr, stream), "axcclAllGatherList: argument in is NULL");
    refused(axcclAllGatherList(&both[0], nullptr, channel, nullptr, stream),
            "axcclAllGatherList: argument out is NULL; pass a view for every rank");
    refused(axcclAllGatherList(&both[0], threes, channel, nullptr, stream), "size 3");
    refused(axcclReduceScatterList(both, &threes[0], ncclSum, channel, nullptr, stream), "axcclReduceScatterList");
    refused(axcclAllToAllList(both, nullptr, channel, nullptr, stream), "axcclAllToAllList: argument out is NULL");
    refused(axcclAllToAllList(both, threes, channel, &tagged, stream), "axcclAllToAllList: the options have tag 4");
    refused(axcclGatherList(&both[0], threes, 2, channel, nullptr, stream), "argument root is 2");
    refused(axcclScatterList(both, nullptr, 0, channel, nullptr, stream), "axcclScatterList: argument out is NULL");
    ASSERT_TRUE(context.Barrier());
  });
}

// Two rows of four elements, the second `apart` elements after the first.
struct Rows {
  Rows(int32_t* first, int apart) : views{AXCCL_VIEW_INITIALIZER, AXCCL_VIEW_INITIALIZER} {
    static constexpr int64_t kFour = 4;
    for (int i = 0; i < 2; ++i) {
      views[i].data = first + i * apart;
      views[i].datatype = ncclInt32;
      views[i].num_dims = 1;
      views[i].sizes = &kFour;
    }
  }
  axcclView_t views[2];
};

// No output may overlap anything else, but for the part of the rank itself, which may be in place.
TEST(ListCalls, OverlapsAreRefused) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const cudaStream_t stream = Cuda(clique.stream());
    const size_t self = static_cast<size_t>(context.rank()), peer = 1 - self;
    harness::DeviceVector<int32_t> memory(32, kSentinel);
    const Rows apart(memory.data(), 4), good(memory.data() + 16, 4), close(memory.data() + 16, 2);
    const Rows shifted(memory.data() + 1, 4);
    const axcclView_t *const in = apart.views, *const out = good.views;
    const auto refused = [](ncclResult_t result, const char* call) {
      EXPECT_EQ(result, ncclInvalidArgument) << call;
      EXPECT_TRUE(harness::LastErrorHas(call) && harness::LastErrorHas("overlap")) << ncclGetLastError(nullptr);
    };
    const auto gather = [&](const axcclView_t* from, const axcclView_t* to) {
      return axcclGatherList(from, to, context.rank(), channel, nullptr, stream);
    };
    const auto scatter = [&](const axcclView_t* from, const axcclView_t* to) {
      return axcclScatterList(from, to, context.rank(), channel, nullptr, stream);
    };
    const auto reduce_scatter = [&](const axcclView_t* from, const axcclView_t* to) {
      return axcclReduceScatterList(from, to, ncclSum, channel, nullptr, stream);
    };
    // Two outputs.
    refused(axcclAllGatherList(in, close.views, channel, nullptr, stream), "axcclAllGatherList");
    refused(axcclAllToAllList(in, close.views, channel, nullptr, stream), "axcclAllToAllList");
    refused(gather(in, close.views), "axcclGatherList");
    // An output and what goes to the peer, or comes from it.
    refused(axcclAllGatherList(&out[peer], out, channel, nullptr, stream), "axcclAllGatherList");
    refused(axcclAllToAllList(in, in, channel, nullptr, stream), "axcclAllToAllList");
    refused(gather(&out[peer], out), "axcclGatherList");
    refused(scatter(in, &in[peer]), "axcclScatterList");
    refused(reduce_scatter(in, &in[peer]), "axcclReduceScatterList");
    // The rank's own part, almost in place.
    const axcclView_t own[] = {self == 0 ? shifted.views[0] : out[0], self == 0 ? out[1] : shifted.views[1]};
    refused(axcclAllGatherList(&in[self], own, channel, nullptr, stream), "axcclAllGatherList");
    refused(axcclAllToAllList(in, own, channel, nullptr, stream), "axcclAllToAllList");
    refused(gather(&in[self], own), "axcclGatherList");
    refused(scatter(in, &own[self]), "axcclScatterList");
    refused(reduce_scatter(in, &own[self]), "axcclReduceScatterList");
    for (const int32_t element : memory) ASSERT_EQ(element, kSentinel);
    // The rank's own part in place.
    for (size_t i = 0; i < 8; ++i) memory[i] = ValueOf(context.rank(), static_cast<int>(i / 4), 0);
    axcclView_t to[] = {out[0], out[1]};
    to[self] = in[self];
    ASSERT_OK(axcclAllToAllList(in, to, channel, nullptr, stream));
    ASSERT_TRUE(clique.Synchronize());
    const auto* const own_part = static_cast<const int32_t*>(to[self].data);
    const auto* const received = static_cast<const int32_t*>(to[peer].data);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(own_part[i], ValueOf(context.rank(), context.rank(), 0));
      EXPECT_EQ(received[i], ValueOf(static_cast<int>(peer), context.rank(), 0));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::tests
