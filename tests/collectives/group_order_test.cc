// Group order through the API (axccl/channels.h): NCCL's calls and calls on views, groups of created channels, all
// kinds of memory, ranks as threads and processes, every algorithm that can be requested. The bits are those of the
// definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"
#include "tests/harness/left_fold.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::FoldOp;
using harness::GuardedArena;
using harness::LastErrorHas;
using harness::Layout;
using harness::LeftFold;
using harness::Memory;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

using Bytes = std::vector<unsigned char>;

constexpr double kScale = 0.3;
constexpr int64_t kRows = 7;  // rows of a rank's part, in all calls

// The inputs of a reduction, and its results. Made before the ranks are started.
struct Golden {
  LeftFold fold;
  std::vector<int> permuted;  // a group
  Bytes ascending_result, permuted_result, scaled_result;

  Golden(ncclDataType_t type, FoldOp op, int nranks, int64_t cols)
      : fold(type, op, nranks, static_cast<size_t>(nranks * kRows * cols),
             Scramble(Seed(), type, static_cast<int>(op))),
        permuted(static_cast<size_t>(nranks)) {
    std::iota(permuted.begin(), permuted.end(), 0);
    ascending_result = fold.Result(permuted);
    std::reverse(permuted.begin(), permuted.end());
    if (nranks > 2) std::swap(permuted[1], permuted[2]);  // [3, 1, 2, 0]
    permuted_result = fold.Result(permuted);
    if (op == FoldOp::kSum) scaled_result = fold.Result(permuted, kScale);
  }
};

std::vector<Golden> AllGolden(int nranks) {
  std::vector<Golden> all;
  for (const ncclDataType_t type : harness::kFoldTypes) {
    for (const FoldOp op : harness::kFoldOps) {
      if (!harness::HasFoldOp(type, op)) continue;
      // A few large ones, which take several turns with little scratch memory.
      const bool large = op == FoldOp::kSum && (type == ncclFloat32 || type == ncclBfloat16);
      all.emplace_back(type, op, nranks, large ? 1301 : 19);
    }
  }
  return all;
}

// The ranks of a thread, and their buffers.
class Caller {
 public:
  Caller(RankContext& context, Clique& clique) : context_(context), clique_(clique) {
    for (int i = 0; i < clique.size(); ++i) {
      for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
        arenas_.push_back(GuardedArena::Create(memory, size_t{8} << 20));
    }
  }
  ~Caller() {
    for (const axcclChannel_t channel : channels_) EXPECT_OK(axcclChannelDestroy(channel));
  }

  bool MakeChannels(const std::vector<int>& order) {
    const std::vector<int64_t> ids(order.begin(), order.end());
    const axcclGroups_t groups = harness::MakeGroups(clique_.nranks(), {ids});
    for (int i = 0; i < clique_.size(); ++i) {
      EXPECT_OK(axcclChannelCreate(&channels_.emplace_back(), clique_.comm(i), groups, 5, axcclGroupOrder));
    }
    EXPECT_OK(axcclGroupsDestroy(groups));
    return !testing::Test::HasFailure();
  }

  void All(const Golden& golden, bool mapped) {
    golden_ = &golden;
    mapped_ = mapped;
    Nccl();
    Views();
    Lists();
    if (golden.fold.op() == FoldOp::kSum) Scaled();
  }

 private:
  struct Output {
    const unsigned char* data;
    const Bytes* wanted;
    size_t first, count;  // elements
  };

  size_t size() const { return golden_->fold.element_bytes(); }
  size_t elements() const { return golden_->fold.elements(); }
  size_t part() const { return elements() / static_cast<size_t>(clique_.nranks()); }
  ncclDataType_t type() const { return golden_->fold.type(); }

  unsigned char* Take(int member, size_t count) {
    return static_cast<unsigned char*>(arenas_[static_cast<size_t>(2 * member + !mapped_)]->Take(count * size(), 0));
  }
  unsigned char* Input(int member) {
    unsigned char* in = Take(member, elements());
    std::memcpy(in, golden_->fold.Input(clique_.rank(member)).data(), elements() * size());
    return in;
  }
  // Puts element e at place 2 e.
  unsigned char* Spaced(int member) {
    unsigned char* in = Take(member, 2 * elements());
    const Bytes& from = golden_->fold.Input(clique_.rank(member));
    for (size_t e = 0; e < elements(); ++e) std::memcpy(in + 2 * e * size(), from.data() + e * size(), size());
    return in;
  }
  // The memory of an output that must be elements [first, first + count) of the result.
  unsigned char* Expect(int member, const Bytes& wanted, size_t first, size_t count) {
    unsigned char* out = Take(member, count);
    outputs_.push_back({out, &wanted, first, count});
    return out;
  }
  ncclRedOp_t Op(int member) {
    const FoldOp op = golden_->fold.op();
    if (op != FoldOp::kPreMulSum) return op == FoldOp::kSum ? ncclSum : op == FoldOp::kProd ? ncclProd : ncclAvg;
    ncclRedOp_t own;
    uint64_t scalar = golden_->fold.Scalar(clique_.rank(member));
    EXPECT_OK(ncclRedOpCreatePreMulSum(&own, &scalar, type(), ncclScalarHostImmediate, clique_.comm(member)));
    return own;
  }
  void Release(int member, ncclRedOp_t op) {
    if (golden_->fold.op() != FoldOp::kPreMulSum) return;
    EXPECT_OK(ncclRedOpDestroy(op, clique_.comm(member)));
  }
  bool Begin(const char* what) {
    return context_.Step("%s of %s, ncclMemAlloc %d", what, golden_->fold.Text().c_str(), mapped_);
  }
  void Finish() {
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique_.Synchronize());
    for (const Output& output : outputs_) {
      const unsigned char* wanted = output.wanted->data() + output.first * size();
      ASSERT_EQ(std::memcmp(output.data, wanted, output.count * size()), 0) << golden_->fold.Text();
    }
    outputs_.clear();
    for (const auto& arena : arenas_) {
      ASSERT_EQ(arena->CheckSentinels(), "");
      arena->Reset();
    }
  }

  // On the default channel, with AXCCL_ORDER=group.
  void Nccl() {
    ASSERT_TRUE(Begin("NCCL's calls"));
    const int root = clique_.nranks() - 1;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique_.size(); ++i) {
      const ncclComm_t comm = clique_.comm(i);
      const cudaStream_t stream = Cuda(clique_.stream(i));
      const ncclRedOp_t op = Op(i);
      const Bytes& wanted = golden_->ascending_result;
      const size_t rank = static_cast<size_t>(clique_.rank(i));
      ASSERT_OK(ncclAllReduce(Input(i), Expect(i, wanted, 0, elements()), elements(), type(), op, comm, stream));
      unsigned char* in_place = Input(i);
      outputs_.push_back({in_place, &wanted, 0, elements()});
      ASSERT_OK(ncclAllReduce(in_place, in_place, elements(), type(), op, comm, stream));
      ASSERT_OK(
          ncclReduceScatter(Input(i), Expect(i, wanted, rank * part(), part()), part(), type(), op, comm, stream));
      unsigned char* out = clique_.rank(i) == root ? Expect(i, wanted, 0, elements()) : nullptr;
      ASSERT_OK(ncclReduce(Input(i), out, elements(), type(), op, root, comm, stream));
      Release(i, op);
    }
    Finish();
  }

  int Position(int member) const {
    const std::vector<int>& group = golden_->permuted;
    return static_cast<int>(std::find(group.begin(), group.end(), clique_.rank(member)) - group.begin());
  }

  // On a channel whose group has another order: [n * rows, cols], split along rows and along columns.
  void Views() {
    ASSERT_TRUE(Begin("views"));
    const int64_t n = clique_.nranks(), cols = static_cast<int64_t>(part()) / kRows;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique_.size(); ++i) {
      const axcclChannel_t channel = channels_[static_cast<size_t>(i)];
      const cudaStream_t stream = Cuda(clique_.stream(i));
      const ncclRedOp_t op = Op(i);
      const Bytes& wanted = golden_->permuted_result;
      const auto position = static_cast<size_t>(Position(i));
      const View in(Input(i), {n * kRows, cols}, {}, type());
      ASSERT_OK(axcclAllReduce(1, in, View(Expect(i, wanted, 0, elements()), {n * kRows, cols}, {}, type()), op,
                               channel, nullptr, stream));
      ASSERT_OK(axcclReduceScatter(1, in, View(Expect(i, wanted, position * part(), part()), {kRows, cols}, {}, type()),
                                   0, op, channel, nullptr, stream));
      // The same elements as [cols, n * rows], with gaps between them.
      const View across(Spaced(i), {cols, n * kRows}, {2, 2 * cols}, type());
      ASSERT_OK(axcclReduceScatter(1, across,
                                   View(Expect(i, wanted, position * part(), part()), {cols, kRows}, {1, cols}, type()),
                                   1, op, channel, nullptr, stream));
      unsigned char* out = position == 0 ? Expect(i, wanted, 0, elements()) : nullptr;
      const View reduced(out, {n * kRows, cols}, {}, type());
      ASSERT_OK(axcclReduce(1, in, position == 0 ? static_cast<const axcclView_t*>(reduced) : nullptr, op, 0, channel,
                            nullptr, stream));
      Release(i, op);
    }
    Finish();
  }

  // Uneven parts and a root that is read late; and the flag on a call, on a channel without the flag.
  void Lists() {
    ASSERT_TRUE(Begin("uneven calls"));
    const int64_t n = clique_.nranks(), cols = static_cast<int64_t>(part()) / kRows;
    const Bytes& wanted = golden_->permuted_result;
    std::vector<int64_t> extents(static_cast<size_t>(n), kRows);
    if (n > 1) extents[0] += 3, extents[1] -= 3;
    axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
    options.flags = axcclGroupOrder;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique_.size(); ++i) {
      const axcclChannel_t channel = channels_[static_cast<size_t>(i)];
      const cudaStream_t stream = Cuda(clique_.stream(i));
      const ncclRedOp_t op = Op(i);
      const auto position = static_cast<size_t>(Position(i));
      const View in(Input(i), {n * kRows, cols}, {}, type());
      int64_t before = 0;
      for (size_t p = 0; p < position; ++p) before += extents[p];
      unsigned char* own =
          Expect(i, wanted, static_cast<size_t>(before * cols), static_cast<size_t>(extents[position] * cols));
      ASSERT_OK(axcclReduceScatterV(1, in, View(own, {extents[position], cols}, {}, type()), 0, op, extents.data(),
                                    channel, nullptr, stream));
      unsigned char* to = position == 0 ? Expect(i, wanted, 0, elements()) : Take(i, elements());
      ASSERT_OK(
          axcclReduceTo(1, in, View(to, {n * kRows, cols}, {}, type()), op, &kRootZero, channel, nullptr, stream));
      const View flagged(Expect(i, golden_->ascending_result, 0, elements()), {n * kRows, cols}, {}, type());
      ASSERT_OK(axcclAllReduce(1, in, flagged, op, axcclDefaultChannel(clique_.comm(i)), &options, stream));
      Release(i, op);
    }
    Finish();
  }

  // Scaled results, of every call that can scale.
  void Scaled() {
    ASSERT_TRUE(Begin("scaled results"));
    const int64_t n = clique_.nranks(), cols = static_cast<int64_t>(part()) / kRows;
    const Bytes& wanted = golden_->scaled_result;
    const std::vector<int64_t> extents(static_cast<size_t>(n), kRows);
    axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
    options.scale = kScale;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique_.size(); ++i) {
      const axcclChannel_t channel = channels_[static_cast<size_t>(i)];
      const cudaStream_t stream = Cuda(clique_.stream(i));
      const auto position = static_cast<size_t>(Position(i));
      const View in(Input(i), {n * kRows, cols}, {}, type());
      const auto whole = [&](bool here) -> unsigned char* {
        return here ? Expect(i, wanted, 0, elements()) : Take(i, elements());
      };
      const auto own = [&] { return Expect(i, wanted, position * part(), part()); };
      ASSERT_OK(
          axcclAllReduce(1, in, View(whole(true), {n * kRows, cols}, {}, type()), ncclSum, channel, &options, stream));
      ASSERT_OK(
          axcclReduceScatter(1, in, View(own(), {kRows, cols}, {}, type()), 0, ncclSum, channel, &options, stream));
      ASSERT_OK(axcclReduceScatterV(1, in, View(own(), {kRows, cols}, {}, type()), 0, ncclSum, extents.data(), channel,
                                    &options, stream));
      ASSERT_OK(axcclReduce(1, in, View(whole(position == 0), {n * kRows, cols}, {}, type()), ncclSum, 0, channel,
                            &options, stream));
      ASSERT_OK(axcclReduceTo(1, in, View(whole(position == 0), {n * kRows, cols}, {}, type()), ncclSum, &kRootZero,
                              channel, &options, stream));
    }
    Finish();
  }

  static constexpr int32_t kRootZero = 0;

  RankContext& context_;
  Clique& clique_;
  const Golden* golden_ = nullptr;
  bool mapped_ = false;
  std::vector<axcclChannel_t> channels_;
  std::vector<std::unique_ptr<GuardedArena>> arenas_;  // two for each rank
  std::vector<Output> outputs_;
};

class GroupOrderTest : public testing::TestWithParam<Layout> {};

TEST_P(GroupOrderTest, BitsAreThoseOfTheLeftFold) {
  const std::vector<Golden> golden = AllGolden(GetParam().nranks());
  const char* const algorithms[] = {"", "direct", "oneshot", "twoshot", "ring", "tree", "rhd", "pairwise"};
  for (size_t k = 0; k < std::size(algorithms); ++k) {
    const uint64_t layout =
        static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
    if (k > 0 && !harness::IsSampled(k, layout)) continue;
    SCOPED_TRACE(std::string("NCCL_ALGO=") + algorithms[k]);
    RunOptions options;
    options.environment = {{"AXCCL_ORDER", "group"},
                           {"NCCL_ALGO", algorithms[k]},
                           {"NCCL_MIN_CTAS", std::to_string(1 + k % 4)},
                           {"AXCCL_SCRATCH_BYTES", k % 2 == 0 ? "2M" : "96K"},
                           {"AXCCL_CMA", k % 3 == 0 ? "0" : "auto"}};
    options.deadline = std::chrono::seconds(60);
    RunRanks(
        GetParam(),
        [&golden](RankContext& context) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          Caller caller(context, clique);
          ASSERT_TRUE(caller.MakeChannels(golden[0].permuted));
          for (const Golden& g : golden) {
            for (const bool mapped : {true, false, true}) {
              caller.All(g, mapped);
              if (testing::Test::HasFailure()) return;
            }
          }
        },
        options);
    if (HasFailure()) return;
  }
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts = {harness::Processes(1), harness::Threads(2),   harness::Processes(3),
                                 harness::Threads(4),   harness::OneThread(5), harness::Processes(8)};
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see order that another process makes between two threads
  layouts.push_back({2, 3, 1});
  layouts.push_back({1, 7, 1});
#endif
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, GroupOrderTest, testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.Text(); });

// Shows that the test above can fail: without the flag a ring gives other bits, with the flag no ring is used.
TEST(GroupOrder, RingsAreNotTaken) {
  const LeftFold fold(ncclFloat32, FoldOp::kSum, 4, 1000, Seed());
  const Bytes wanted = fold.Result({0, 1, 2, 3});
  RunOptions run;
  run.environment = {{"NCCL_ALGO", "ring"}};
  RunRanks(
      harness::Threads(4),
      [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (const bool ordered : {false, true, false}) {
          axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
          options.flags = ordered ? axcclGroupOrder : 0;
          Bytes in = fold.Input(clique.rank(0)), out(in.size());
          ASSERT_OK(axcclAllReduce(1, View(in.data(), {1000}, {}, ncclFloat32),
                                   View(out.data(), {1000}, {}, ncclFloat32), ncclSum,
                                   axcclDefaultChannel(clique.comm()), &options, Cuda(clique.stream())));
          ASSERT_TRUE(clique.Synchronize());
          const char* taken = nullptr;
          ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &taken));
          EXPECT_EQ(std::string(taken) == "ring", !ordered) << taken;
          EXPECT_EQ(fold.Differences(out, wanted) > 50, !ordered) << fold.Text();
          EXPECT_EQ(out == wanted, ordered) << fold.Text();
          // A call whose bits are the same in every order may still use a ring.
          ASSERT_OK(axcclAllReduce(1, View(in.data(), {1000}, {}, ncclFloat32),
                                   View(out.data(), {1000}, {}, ncclFloat32), ncclMax,
                                   axcclDefaultChannel(clique.comm()), &options, Cuda(clique.stream())));
          ASSERT_TRUE(clique.Synchronize());
          ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &taken));
          EXPECT_STREQ(taken, "ring");
        }
      },
      run);
}

// a = 3 a + b: neither associative nor commutative.
void ThreeTimesPlus(void* accumulator, const void* operand, size_t count, void*) {
  for (size_t i = 0; i < count; ++i)
    static_cast<uint32_t*>(accumulator)[i] =
        3 * static_cast<uint32_t*>(accumulator)[i] + static_cast<const uint32_t*>(operand)[i];
}

TEST(GroupOrder, CallbacksNeedNotBeAssociative) {
  for (const char* algorithm : {"direct", "oneshot", "twoshot", "tree"}) {
    RunOptions run;
    run.environment = {{"NCCL_ALGO", algorithm}};
    for (const Layout& layout : {harness::Processes(4), harness::Threads(4)}) {
      RunRanks(
          layout,
          [](RankContext& context) {
            Clique clique;
            ASSERT_TRUE(clique.Init(context));
            const axcclGroups_t groups = harness::MakeGroups(4, {{3, 1, 0, 2}});
            axcclChannel_t channel;
            ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), groups, 0, axcclGroupOrder));
            ASSERT_OK(axcclGroupsDestroy(groups));
            ncclRedOp_t op;
            ASSERT_OK(axcclRedOpCreateCallback(&op, ThreeTimesPlus, nullptr, ncclUint32, clique.comm()));
            const auto input = [](int rank, uint32_t i) { return static_cast<uint32_t>(Scramble(Seed(), i, rank)); };
            std::vector<uint32_t> in(5000), out(5000);
            for (uint32_t i = 0; i < in.size(); ++i) in[i] = input(clique.rank(0), i);
            ASSERT_OK(axcclAllReduce(1, View(in.data(), {5000}, {}, ncclUint32),
                                     View(out.data(), {5000}, {}, ncclUint32), op, channel, nullptr,
                                     Cuda(clique.stream())));
            ASSERT_TRUE(clique.Synchronize());
            for (uint32_t i = 0; i < in.size(); ++i) {
              const uint32_t wanted = ((input(3, i) * 3 + input(1, i)) * 3 + input(0, i)) * 3 + input(2, i);
              ASSERT_EQ(out[i], wanted) << "element " << i << ", AXCCL_TEST_SEED=" << Seed();
            }
            ASSERT_OK(ncclRedOpDestroy(op, clique.comm()));
            ASSERT_OK(axcclChannelDestroy(channel));
          },
          run);
    }
  }
}

TEST(GroupOrder, DisagreementIsReported) {
  for (const Layout& layout : {harness::Processes(2), harness::Threads(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
      float data[64] = {};
      const View view(data, {64}, {}, ncclFloat32);
      const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
      // Calls that do not reduce floats ignore the flag.
      options.flags = clique.rank(0) == 0 ? axcclGroupOrder : 0;
      ASSERT_OK(axcclBroadcast(1, view, view, 0, channel, &options, Cuda(clique.stream())));
      ASSERT_OK(axcclAllReduce(1, view, view, ncclMax, channel, &options, Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      (void)axcclAllReduce(1, view, view, ncclSum, channel, &options, Cuda(clique.stream()));
      clique.ExpectMismatch({"float sum in group order", "mismatch at operation 2"});
    });
  }
}

// Scaling works without group order, too. The sums and halves of these numbers are exact.
TEST(Scale, EveryAlgorithmScalesOnce) {
  for (const char* algorithm : {"direct", "oneshot", "twoshot", "ring", "tree", "rhd", "pairwise"}) {
    RunOptions run;
    run.environment = {{"NCCL_ALGO", algorithm}, {"AXCCL_SCRATCH_BYTES", "96K"}};
    for (const Layout& layout : {harness::Processes(4), harness::Threads(3)}) {
      RunRanks(
          layout,
          [](RankContext& context) {
            Clique clique;
            ASSERT_TRUE(clique.Init(context));
            const int64_t n = clique.nranks(), count = 9001;
            const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
            const cudaStream_t stream = Cuda(clique.stream());
            axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
            options.scale = 0.5;
            std::vector<float> in(static_cast<size_t>(n * count)), all(in.size()), part(static_cast<size_t>(count)),
                one(in.size());
            for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 1000 * (1 + clique.rank(0)));
            const View input(in.data(), {n * count}, {}, ncclFloat32);
            ASSERT_OK(axcclAllReduce(1, input, View(all.data(), {n * count}, {}, ncclFloat32), ncclSum, channel,
                                     &options, stream));
            ASSERT_OK(axcclReduceScatter(1, input, View(part.data(), {count}, {}, ncclFloat32), 0, ncclSum, channel,
                                         &options, stream));
            ASSERT_OK(axcclReduce(1, input, View(one.data(), {n * count}, {}, ncclFloat32), ncclSum, 1, channel,
                                  &options, stream));
            // The next call is not scaled.
            ASSERT_OK(axcclReduceScatter(1, input, View(in.data() + clique.rank(0) * count, {count}, {}, ncclFloat32),
                                         0, ncclSum, channel, nullptr, stream));
            ASSERT_TRUE(clique.Synchronize());
            const auto wanted = [n](size_t i) { return static_cast<float>(i % 1000) * n * (n + 1) / 4; };
            const size_t first = static_cast<size_t>(clique.rank(0) * count);
            for (size_t i = 0; i < all.size(); ++i) {
              ASSERT_EQ(all[i], wanted(i)) << i;
              ASSERT_EQ(one[i], clique.rank(0) == 1 ? wanted(i) : 0) << i;
            }
            for (size_t i = 0; i < part.size(); ++i) {
              ASSERT_EQ(part[i], wanted(first + i)) << i;
              ASSERT_EQ(in[first + i], 2 * wanted(first + i)) << i;
            }
          },
          run);
      if (HasFailure()) return;
    }
  }
}

TEST(Scale, MustBeTheSameOnAllRanks) {
  for (const Layout& layout : {harness::Processes(2), harness::Threads(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
      options.scale = clique.rank(0) == 0 ? 0.25 : 0;
      float data[64] = {};
      const View view(data, {64}, {}, ncclFloat32);
      (void)axcclAllReduce(1, view, view, ncclSum, axcclDefaultChannel(clique.comm()), &options, Cuda(clique.stream()));
      clique.ExpectMismatch({"float sum scaled by 0.25"});
    });
  }
}

TEST(GroupOrder, FlagsAreChecked) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    axcclChannel_t channel, same;
    EXPECT_EQ(axcclChannelCreate(&channel, clique.comm(), nullptr, 7, 2), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("axcclChannelCreate: argument flags is 0x2; pass 0 or axcclGroupOrder"))
        << ncclGetLastError(nullptr);
    ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), nullptr, 7, axcclGroupOrder));
    ASSERT_OK(axcclChannelCreate(&same, clique.comm(), nullptr, 7, axcclGroupOrder));
    EXPECT_EQ(same, channel);
    EXPECT_EQ(axcclChannelCreate(&same, clique.comm(), nullptr, 7, 0), ncclInvalidUsage);
    EXPECT_TRUE(LastErrorHas("channel 7 of ranks [0] lives with it; pass the same flags")) << ncclGetLastError(nullptr);
    ASSERT_OK(axcclChannelDestroy(channel));
    ASSERT_OK(axcclChannelDestroy(channel));
    ASSERT_OK(axcclChannelCreate(&channel, clique.comm(), nullptr, 7, 0));
    ASSERT_OK(axcclChannelDestroy(channel));
  });
}

}  // namespace
}  // namespace axccl::tests
