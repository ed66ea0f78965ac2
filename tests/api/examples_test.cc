// The examples of the public headers, as they stand there: every call of views.h with its data, the groups of
// channels.h, and the C code of types.h, channels.h and README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/api/example_text.h"
#include "tests/api/examples.h"
#include "tests/harness/client.h"
#include "tests/harness/folder.h"

namespace axccl::test {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::RankContext;

std::string Header(const std::string& name) {
  return harness::Contents(AXCCL_TEST_SOURCE_DIR "/include/axccl/" + name);
}

// Tensors, each in its own memory, as the views of a call.
class Views {
 public:
  // `strides`: of every view; empty: row-major without gaps. Memory holds `fill`.
  Views(const std::vector<Tensor>& tensors, const std::vector<int64_t>& strides, float fill) : tensors_(tensors) {
    for (const Tensor& tensor : tensors_) {
      std::vector<int64_t>& steps = strides_.emplace_back(strides);
      if (strides.empty()) steps = RowMajor(tensor.sizes);
      memory_.emplace_back(static_cast<size_t>(OffsetOf(steps, tensor.sizes, tensor.values.size() - 1)) + 1, fill);
      axcclView_t view = AXCCL_VIEW_INITIALIZER;
      view.data = memory_.back().data();
      view.num_dims = static_cast<int>(tensor.sizes.size());
      view.sizes = tensor.sizes.data();
      view.strides = strides.empty() ? nullptr : steps.data();
      views_.push_back(view);
    }
  }
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  const axcclView_t* get() const { return views_.empty() ? nullptr : views_.data(); }
  int count() const { return static_cast<int>(views_.size()); }
  const std::vector<float>& memory(size_t i) const { return memory_[i]; }

  void Write() {
    for (size_t t = 0; t < tensors_.size(); ++t)
      for (size_t i = 0; i < tensors_[t].values.size(); ++i) At(t, i) = tensors_[t].values[i];
  }
  void Check() {
    for (size_t t = 0; t < tensors_.size(); ++t)
      for (size_t i = 0; i < tensors_[t].values.size(); ++i)
        EXPECT_EQ(At(t, i), tensors_[t].values[i]) << "operand " << t << ", element " << i;
  }

 private:
  static std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return strides;
  }
  // The offset of element number `i` in row-major order.
  static int64_t OffsetOf(const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes, size_t i) {
    int64_t offset = 0;
    for (size_t d = sizes.size(); d-- > 0; i /= static_cast<size_t>(sizes[d]))
      offset += static_cast<int64_t>(i % static_cast<size_t>(sizes[d])) * strides[d];
    return offset;
  }
  float& At(size_t t, size_t i) { return memory_[t][static_cast<size_t>(OffsetOf(strides_[t], tensors_[t].sizes, i))]; }

  const std::vector<Tensor> tensors_;
  std::deque<std::vector<int64_t>> strides_;
  std::vector<std::vector<float>> memory_;
  std::vector<axcclView_t> views_;
};

// One rank's call of an example.
struct Call {
  const CallExample& example;
  const RankExample& own;
  int rank;
  const axcclView_t *in, *out;
  int count;
  axcclChannel_t channel;
  cudaStream_t stream;
  std::vector<int64_t> extents, send, receive, input_offsets, output_offsets, pairs;
  std::vector<int32_t> roots;

  int Get(const char* name) const { return static_cast<int>(example.settings.numbers.at(name)); }
  ncclRedOp_t op() const {
    EXPECT_TRUE(example.settings.Has("ncclSum") || example.settings.Has("ncclMax"));
    return example.settings.Has("ncclMax") ? ncclMax : ncclSum;
  }
};

using MakeCall = std::function<ncclResult_t(const Call&)>;

const std::map<std::string, MakeCall>& AllCalls() {
#define AXCCL_CALL(name, ...)                                                                                  \
  {                                                                                                            \
#name, [](const Call& c) { return name(c.count, c.in, c.out, __VA_ARGS__, c.channel, nullptr, c.stream); } \
  }
#define AXCCL_LIST_CALL(name, ...)                                                                                  \
  {                                                                                                                 \
#name, [](const Call& c) { return name(c.in, c.out __VA_OPT__(, ) __VA_ARGS__, c.channel, nullptr, c.stream); } \
  }
  static const std::map<std::string, MakeCall> calls = {
      AXCCL_CALL(axcclAllGather, c.Get("dim")),
      AXCCL_CALL(axcclReduceScatter, c.Get("dim"), c.op()),
      AXCCL_CALL(axcclAllReduce, c.op()),
      AXCCL_CALL(axcclAllToAll, c.Get("split_dim"), c.Get("concat_dim")),
      AXCCL_CALL(axcclGather, c.Get("dim"), c.Get("root")),
      AXCCL_CALL(axcclScatter, c.Get("dim"), c.Get("root")),
      AXCCL_CALL(axcclBroadcast, c.Get("root")),
      AXCCL_CALL(axcclReduce, c.op(), c.Get("root")),
      AXCCL_CALL(axcclAllGatherV, c.Get("dim"), c.extents.data()),
      AXCCL_CALL(axcclReduceScatterV, c.Get("dim"), c.op(), c.extents.data()),
      AXCCL_CALL(axcclGatherV, c.Get("dim"), c.Get("root"), c.extents.data()),
      AXCCL_CALL(axcclScatterV, c.Get("dim"), c.Get("root"), c.extents.data()),
      AXCCL_CALL(axcclAllToAllV, c.Get("dim"), c.send.data(), c.receive.data()),
      AXCCL_CALL(axcclRaggedAllToAll, c.Get("dim"), c.input_offsets.data(), c.send.data(), c.output_offsets.data(),
                 c.receive.data()),
      AXCCL_CALL(axcclBroadcastFrom, c.roots.data()),
      AXCCL_CALL(axcclReduceTo, c.op(), c.roots.data()),
      AXCCL_CALL(axcclCollectivePermute, c.pairs.data(), static_cast<int>(c.pairs.size() / 2)),
      AXCCL_LIST_CALL(axcclAllGatherList),
      AXCCL_LIST_CALL(axcclReduceScatterList, c.op()),
      AXCCL_LIST_CALL(axcclAllToAllList),
      AXCCL_LIST_CALL(axcclGatherList, c.Get("root")),
      AXCCL_LIST_CALL(axcclScatterList, c.Get("root")),
      // Two ranks: the one with an input sends to the other.
      {"axcclSend",
       [](const Call& c) {
         if (c.in != nullptr) return axcclSend(c.count, c.in, 1 - c.rank, c.channel, nullptr, c.stream);
         return axcclRecv(c.count, c.out, 1 - c.rank, c.channel, nullptr, c.stream);
       }},
  };
#undef AXCCL_CALL
#undef AXCCL_LIST_CALL
  return calls;
}

void RunExample(const CallExample& example, RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  std::deque<Views> ins, outs;
  std::deque<Call> calls;
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    const RankExample& own = example.ranks[static_cast<size_t>(clique.rank(i))];
    const float before = example.settings.Has("out of zeros before") ? 0.0f : 99.0f;
    Views& in = ins.emplace_back(own.in.tensors, example.settings.List("in strides"), 99.0f);
    Views& out = outs.emplace_back(own.out.tensors, example.settings.List("out strides"), before);
    in.Write();
    if (!own.in.memory.empty()) {
      EXPECT_EQ(in.memory(0), own.in.memory);
    }
    const std::vector<int64_t> roots = example.settings.List("roots");
    Call& call = calls.emplace_back(Call{.example = example,
                                         .own = own,
                                         .rank = clique.rank(i),
                                         .in = in.get(),
                                         .out = out.get(),
                                         .count = std::max(in.count(), out.count()),
                                         .channel = axcclDefaultChannel(clique.comm(i)),
                                         .stream = Cuda(clique.stream(i)),
                                         .extents = example.settings.List("extents"),
                                         .send = own.settings.List("send_extents"),
                                         .receive = own.settings.List("receive_extents"),
                                         .input_offsets = own.settings.List("input_offsets"),
                                         .output_offsets = own.settings.List("output_offsets"),
                                         .pairs = example.settings.List("pairs"),
                                         .roots = {roots.begin(), roots.end()}});
    ASSERT_OK(AllCalls().at(example.call)(call));
  }
  ASSERT_OK(ncclGroupEnd());
  ASSERT_TRUE(clique.Synchronize());
  for (int i = 0; i < clique.size(); ++i) {
    SCOPED_TRACE("rank " + std::to_string(clique.rank(i)));
    outs[static_cast<size_t>(i)].Check();
    const std::vector<float>& memory = calls[static_cast<size_t>(i)].own.out.memory;
    if (!memory.empty()) {
      EXPECT_EQ(outs[static_cast<size_t>(i)].memory(0), memory);
    }
  }
}

// Every function of views.h has its own example except axcclRecv, which shares that of axcclSend.
TEST(Examples, ViewsGiveWhatTheirHeaderShows) {
  const std::string header = Header("views.h"), opening = "\nncclResult_t ";
  std::set<std::string> functions, shown = {"axcclRecv"};
  for (size_t at = header.find(opening); at != header.npos; at = header.find(opening, at + 1)) {
    const size_t name = at + opening.size();
    functions.insert(header.substr(name, header.find('(', name) - name));
  }
  for (const CallExample& example : ReadCallExamples(header)) {
    shown.insert(example.call);
    ASSERT_TRUE(AllCalls().contains(example.call)) << example.call;
    const int ranks = static_cast<int>(example.ranks.size());
    for (const Layout& layout : {harness::Processes(ranks), harness::OneThread(ranks)}) {
      SCOPED_TRACE(example.call + ", " + layout.Text());
      harness::RunRanks(layout, [&example](RankContext& context) { RunExample(example, context); });
    }
  }
  EXPECT_EQ(shown, functions);
}

std::vector<std::vector<int64_t>> GroupsOf(axcclGroups_t groups) {
  std::vector<std::vector<int64_t>> lists;
  axcclGroupsInfo_t info{};
  info.size = sizeof(info);
  EXPECT_OK(axcclGroupsGetInfo(groups, &info));
  for (int group = 0; group < info.num_groups; ++group) {
    int ranks[64] = {}, size = 0;
    EXPECT_OK(axcclGroupsGetRanks(groups, group, ranks, 64, &size));
    lists.emplace_back(ranks, ranks + size);
  }
  EXPECT_OK(axcclGroupsDestroy(groups));
  return lists;
}

TEST(Examples, GroupsOfReplicasAndPartitions) {
  const std::map<std::string, axcclGroupMode_t> modes = {
      {"axcclCrossReplica", axcclCrossReplica},
      {"axcclCrossPartition", axcclCrossPartition},
      {"axcclCrossReplicaAndPartition", axcclCrossReplicaAndPartition}};
  const auto examples = ReadGroupsExamples(Header("channels.h"), "Example, 4 replicas x 2 partitions:");
  EXPECT_EQ(examples.size(), 3u);
  for (const GroupsExample& example : examples) {
    SCOPED_TRACE(example.what);
    const size_t space = example.what.find(' ');
    std::vector<int64_t> ids;
    const auto lists = ReadLists(example.what.substr(space));
    for (const std::vector<int64_t>& list : lists) ids.insert(ids.end(), list.begin(), list.end());
    axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
    spec.mode = modes.at(example.what.substr(0, space));
    spec.num_replicas = 4, spec.num_partitions = 2;
    spec.ids = ids.data(), spec.num_groups = lists.size(), spec.group_size = lists[0].size();
    axcclGroups_t groups = nullptr;
    ASSERT_OK(axcclGroupsCreate(&groups, &spec));
    EXPECT_EQ(GroupsOf(groups), example.groups);
  }
}

TEST(Examples, GroupsOfAMesh) {
  const axcclMeshAxis_t mesh_axes[] = {{"x", 2}, {"y", 4}};
  const std::map<std::string, axcclAxisRef_t> axes = {
      {"\"y\"", {"y", 1, 0}}, {"\"x\"", {"x", 1, 0}}, {"\"y\":(1)2", {"y", 1, 2}}};
  const auto examples = ReadGroupsExamples(Header("channels.h"), "Example, mesh {\"x\" 2, \"y\" 4}:");
  EXPECT_EQ(examples.size(), axes.size());
  for (const GroupsExample& example : examples) {
    SCOPED_TRACE(example.what);
    axcclMesh_t mesh = AXCCL_MESH_INITIALIZER;
    mesh.axes = mesh_axes, mesh.num_axes = 2;
    axcclGroups_t groups = nullptr;
    ASSERT_OK(axcclGroupsCreateFromMesh(&groups, &mesh, &axes.at(example.what), 1));
    EXPECT_EQ(GroupsOf(groups), example.groups);
  }
}

TEST(Examples, GroupsInCode) {
  const std::vector<std::vector<int64_t>> expected = {{0, 1}, {3, 2}};
  EXPECT_EQ(GroupsOf(ExampleGroups()), expected);
}

// A view of `data`, [1, n].
struct Row {
  Row(float* data, int64_t n) : sizes{1, n} { view.data = data, view.num_dims = 2, view.sizes = sizes; }
  int64_t sizes[2];
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
};

TEST(Examples, BoardOfAnotherRank) {
  harness::RunCliques(harness::Processes(2), [](RankContext& context, Clique& clique) {
    float value = 1;
    const auto call = [&] {
      ASSERT_OK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, clique.comm(), Cuda(clique.stream())));
    };
    if (context.rank() == 1) call();
    ASSERT_TRUE(context.Barrier());
    testing::internal::CaptureStdout();
    ExampleBoard(clique.comm());
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "rank 1 is in ncclAllReduce count 1 float sum (operation 0)\n");
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) call();
    ASSERT_TRUE(clique.Synchronize());
  });
}

TEST(Examples, ChannelOfNeighbours) {
  harness::RunCliques(harness::Threads(4), [](RankContext& context, Clique& clique) {
    const int rank = context.rank();
    float in = static_cast<float>(1 + rank), out = 0;
    ExampleChannel(clique.comm(), Row(&in, 1).view, Row(&out, 1).view, Cuda(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(out, rank < 2 ? 3.0f : 7.0f);
  });
}

TEST(Examples, MeshOfTheReadme) {
  harness::RunCliques(harness::Threads(8), [](RankContext& context, Clique& clique) {
    const int first = context.rank() / 4 * 4;
    float in = static_cast<float>(context.rank()), out[4] = {};
    ExampleMesh(clique.comm(), Row(&in, 1).view, Row(out, 4).view, Cuda(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], static_cast<float>(first + i));
  });
}

TEST(Examples, DimensionOfTheReadme) {
  harness::RunCliques(harness::Threads(2), [](RankContext& context, Clique& clique) {
    constexpr int64_t kRows = 3, kCols = 2, kRanks = 2;
    float part[kRows * kCols], wide[kRows * kCols * kRanks] = {};
    for (int64_t i = 0; i < kRows * kCols; ++i) part[i] = static_cast<float>(100 * context.rank() + i);
    ExampleDimension(part, wide, kRows, kCols, kRanks, clique.comm(), Cuda(clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t col = 0; col < kCols * kRanks; ++col)
        EXPECT_EQ(wide[row * kCols * kRanks + col], static_cast<float>(col / kCols * 100 + row * kCols + col % kCols));
  });
}

TEST(Examples, Malloc) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) { EXPECT_GE(ExampleMalloc(), 200000 * sizeof(float)); });
}

// The operator is commutative, as it must be: the result does not depend on which rank has which value.
TEST(Examples, Callback) {
  harness::RunCliques(harness::Threads(2), [](RankContext& context, Clique& clique) {
    float data[2][4] = {{1, -5, 2, -3}, {-2, 4, -2, 3}};
    const float expected[4] = {-2, -5, 2, 3};
    for (const int swapped : {0, 1}) {
      float result[4] = {};
      ncclRedOp_t op = ncclSum;
      ASSERT_OK(axcclRedOpCreateCallback(&op, ExampleCallback(), nullptr, ncclFloat32, clique.comm()));
      ASSERT_OK(ncclAllReduce(data[context.rank() ^ swapped], result, 4, ncclFloat32, op, clique.comm(),
                              Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(std::memcmp(result, expected, sizeof(result)), 0) << "swapped " << swapped;
      ASSERT_OK(ncclRedOpDestroy(op, clique.comm()));
    }
  });
}

}  // namespace
}  // namespace axccl::test
