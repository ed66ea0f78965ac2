// Collectives on views against their definition (view_cases.h): random shapes, placements, types, memory and
// algorithms, several at once, among NCCL calls, one by one, in lists and in groups. Every byte of every buffer is
// compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/collectives/view_cases.h"
#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {
namespace {

using harness::Arena;
using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

constexpr size_t kArenaBytes = size_t{32} << 20;
constexpr int64_t kMostElements = 20000;

// A tensor in the memory of a test, as the call takes it.
struct Tensor {
  Placement placement;
  char* data = nullptr;  // of the first element
  axcclView_t view = AXCCL_VIEW_INITIALIZER;

  void Describe(const Sizes& sizes, ncclDataType_t type) {
    placement.sizes = sizes;
    view.data = data;
    view.datatype = type;
    view.num_dims = static_cast<int>(sizes.size());
  }
  // The struct, once the tensor has its place.
  const axcclView_t* View() {
    view.sizes = placement.sizes.data();
    view.strides = placement.dense ? nullptr : placement.strides.data();
    return &view;
  }
};

// Memory of one or, in place, two tensors, and what it must hold in the end.
struct Image {
  Arena* arena = nullptr;
  char* begin = nullptr;
  std::vector<char> expected;

  void Expect(const void* at, uint64_t bits, size_t bytes) {
    std::memcpy(expected.data() + (static_cast<const char*>(at) - begin), &bits, bytes);
  }
};

// The operands of a call.
using ViewCases = std::vector<ViewCase>;

// One rank's part in one case.
struct Part {
  ViewCase c;
  int rank = 0;
  bool in_place = false;
  bool mapped = false;  // all memory is ncclMemAlloc's
  Tensor input, output;
  std::vector<Image> images;
};

class ViewRunner {
 public:
  ViewRunner(RankContext& context, Clique& clique) : context_(context), clique_(clique) {
    for (int i = 0; i < clique.size(); ++i) {
      for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
        arenas_.push_back(Arena::Create(memory, kArenaBytes));
    }
  }

  // Every rank of this thread calls the case; with an NCCL call before and after it where `among` says so.
  bool Enqueue(const ViewCases& cases, bool among) {
    if (!context_.Step("%zu operands, first %s", cases.size(), cases[0].Text().c_str())) return false;
    if (!Fits(cases) && !Finish()) return false;
    const size_t first = parts_.size();
    for (int i = 0; i < clique_.size(); ++i) {
      for (const ViewCase& c : cases) parts_.push_back(Prepare(c, i, cases[0].seed % 2 == 0));
    }
    const bool group = clique_.size() > 1 || among;
    ncclResult_t result = group ? ncclGroupStart() : ncclSuccess;
    for (size_t i = 0; i < static_cast<size_t>(clique_.size()) && result == ncclSuccess; ++i) {
      const int member = static_cast<int>(i);
      if (among) result = CallNccl(member);
      if (result == ncclSuccess)
        result = Launch(std::span(parts_).subspan(first + i * cases.size(), cases.size()), member);
      if (among && result == ncclSuccess) result = CallNccl(member);
    }
    if (group) result = ncclGroupEnd();
    EXPECT_OK(result) << cases.size() << " operands, first " << cases[0].Text();
    return !testing::Test::HasFailure();
  }

  bool Finish() {
    if (!clique_.Synchronize()) return false;
    for (const auto& part : parts_) Check(*part);
    for (const auto& arena : arenas_) {
      EXPECT_EQ(arena->CheckSentinels(), "") << "after " << parts_.size() << " cases";
      arena->Reset();
    }
    parts_.clear();
    return !testing::Test::HasFailure();
  }

 private:
  bool Fits(const ViewCases& cases) const {
    size_t most = 0;
    for (int i = 0; i < clique_.size(); ++i) {
      size_t need = 0;
      for (const ViewCase& c : cases) {
        for (const Placement& p : {InputPlacement(c, clique_.rank(i)), OutputPlacement(c, clique_.rank(i))})
          need += Arena::Need(static_cast<size_t>(p.before + p.after) * harness::TypeBytes(c.type));
      }
      most = std::max(most, need);
    }
    return std::all_of(arenas_.begin(), arenas_.end(), [&](const auto& arena) { return arena->Left() >= most; });
  }

  // Memory for a tensor of that placement.
  Tensor Place(Part* part, int member, const Placement& placement, Random* random) {
    const size_t size = harness::TypeBytes(part->c.type);
    Image image;
    image.arena = arenas_[2 * static_cast<size_t>(member) + (part->mapped ? 0 : random->Below(2))].get();
    const auto bytes = static_cast<size_t>(placement.before + placement.after) * size;
    image.begin = static_cast<char*>(image.arena->Take(bytes, random->Below(8) * size));
    image.expected.assign(image.begin, image.begin + bytes);
    Tensor tensor;
    tensor.placement = placement;
    tensor.data = image.begin + static_cast<size_t>(placement.before) * size;
    if (bytes == 0 && random->OneIn(2)) tensor.data = nullptr;
    part->images.push_back(std::move(image));
    return tensor;
  }

  std::unique_ptr<Part> Prepare(const ViewCase& c, int member, bool mapped) {
    auto part = std::make_unique<Part>();
    const int rank = clique_.rank(member);
    const auto size = static_cast<int64_t>(harness::TypeBytes(c.type));
    Random random(Scramble(c.seed, 0xb0ffe5, static_cast<uint64_t>(rank)));
    part->c = c;
    part->rank = rank;
    part->in_place = c.InPlace(rank);
    part->mapped = mapped;
    if (c.HasInput(rank)) part->input = Place(part.get(), member, InputPlacement(c, rank), &random);
    if (part->in_place) {
      part->output = part->input;
      // The part of the larger operand that the smaller one is.
      const int dim = std::max(c.split, c.concat);
      const auto d = static_cast<size_t>(dim);
      Tensor& inner = c.concat >= 0 ? part->input : part->output;
      if (dim >= 0 && inner.data != nullptr) inner.data += rank * c.block[d] * inner.placement.strides[d] * size;
      if (dim >= 0) inner.placement.dense = false;
    } else if (c.HasOutput(rank)) {
      part->output = Place(part.get(), member, OutputPlacement(c, rank), &random);
    }
    part->input.Describe(c.InputSizes(), c.type);
    part->output.Describe(c.OutputSizes(), c.type);
    if (c.HasInput(rank)) Fill(part.get(), &part->images.front());
    if (c.HasOutput(rank)) Predict(part.get(), &part->images.back());
    return part;
  }

  static void Fill(Part* part, Image* image) {
    const size_t size = harness::TypeBytes(part->c.type);
    ForEachIndex(part->input.placement.sizes, [&](const Sizes& index) {
      char* at = part->input.data + OffsetOf(part->input.placement, index) * static_cast<int64_t>(size);
      const uint64_t bits = InputElement(part->c, part->rank, index);
      std::memcpy(at, &bits, size);
      image->Expect(at, bits, size);
    });
  }

  static void Predict(Part* part, Image* image) {
    const size_t size = harness::TypeBytes(part->c.type);
    ForEachIndex(part->output.placement.sizes, [&](const Sizes& index) {
      const char* at = part->output.data + OffsetOf(part->output.placement, index) * static_cast<int64_t>(size);
      image->Expect(at, OutputElement(part->c, part->rank, index), size);
    });
  }

  ncclResult_t Launch(std::span<const std::unique_ptr<Part>> parts, int member) {
    const ViewCase& c = parts[0]->c;
    const int rank = parts[0]->rank, count = static_cast<int>(parts.size());
    Random random(Scramble(c.seed, 0xca11, static_cast<uint64_t>(rank)));
    // Nonsense where the rank has no operand: it is not looked at.
    const axcclView_t nonsense = {7, nullptr, ncclFloat32, -3, nullptr, nullptr};
    std::vector<axcclView_t> inputs, outputs;
    for (const auto& part : parts) {
      inputs.push_back(c.HasInput(rank) ? *part->input.View() : nonsense);
      outputs.push_back(c.HasOutput(rank) ? *part->output.View() : nonsense);
    }
    const axcclView_t* in = c.HasInput(rank) || random.OneIn(2) ? inputs.data() : nullptr;
    const axcclView_t* out = c.HasOutput(rank) || random.OneIn(2) ? outputs.data() : nullptr;
    // Operands may differ in the number of dimensions, so that they cannot all be counted from the end.
    const int dims = static_cast<int>(c.block.size());
    const int split = count > 1 || random.OneIn(2) ? c.split : c.split - dims;
    const int concat = count > 1 || random.OneIn(2) ? c.concat : c.concat - dims;
    axcclOptions_t choice = AXCCL_OPTIONS_INITIALIZER;
    // The same on all ranks.
    if (c.seed % 5 == 0) choice.bucket_bytes = c.seed / 5 % 4096;
    const axcclOptions_t* options = c.seed % 5 < 2 ? &choice : nullptr;
    const axcclChannel_t channel = axcclDefaultChannel(clique_.comm(member));
    const cudaStream_t stream = Cuda(clique_.stream(member));
    switch (c.op) {
      case ViewOp::kAllGather:
        return axcclAllGather(count, in, out, concat, channel, options, stream);
      case ViewOp::kReduceScatter:
        return axcclReduceScatter(count, in, out, split, c.fold, channel, options, stream);
      case ViewOp::kAllReduce:
        return axcclAllReduce(count, in, out, c.fold, channel, options, stream);
      case ViewOp::kAllToAll:
        return axcclAllToAll(count, in, out, split, concat, channel, options, stream);
      case ViewOp::kGather:
        return axcclGather(count, in, out, concat, c.root, channel, options, stream);
      case ViewOp::kScatter:
        return axcclScatter(count, in, out, split, c.root, channel, options, stream);
      case ViewOp::kBroadcast:
        return axcclBroadcast(count, in, out, c.root, channel, options, stream);
      case ViewOp::kReduce:
        return axcclReduce(count, in, out, c.fold, c.root, channel, options, stream);
    }
    return ncclInternalError;
  }

  ncclResult_t CallNccl(int member) {
    int* const data = &flat_[member];
    return ncclAllReduce(data, data, 1, ncclInt32, ncclMax, clique_.comm(member), Cuda(clique_.stream(member)));
  }

  static void Check(const Part& part) {
    for (const Image& image : part.images) {
      const auto wrong = std::mismatch(image.expected.begin(), image.expected.end(), image.begin);
      if (wrong.first == image.expected.end()) continue;
      ADD_FAILURE() << "rank " << part.rank << " of " << part.c.nranks << (part.in_place ? ", in place: " : ": ")
                    << part.c.Text() << ": byte " << wrong.first - image.expected.begin() << " of "
                    << image.expected.size() << " of buffer " << &image - part.images.data() << " is "
                    << static_cast<int>(*wrong.second) << ", expected " << static_cast<int>(*wrong.first)
                    << "; AXCCL_TEST_SEED=" << Seed();
    }
  }

  RankContext& context_;
  Clique& clique_;
  std::vector<std::unique_ptr<Arena>> arenas_;  // two a rank
  std::vector<std::unique_ptr<Part>> parts_;
  int flat_[16] = {};
};

void RunViews(RankContext& context, uint64_t seed, int cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  ViewRunner runner(context, clique);
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    const int64_t most = random.OneIn(8) ? kMostElements : 300;
    ViewCases cases = {AnyViewCase(&random, clique.nranks(), most)};
    for (uint64_t more = random.OneIn(4) ? 1 + random.Below(random.OneIn(8) ? 40 : 6) : 0; more > 0; --more)
      cases.push_back(AnotherOperand(cases[0], &random, most));
    ASSERT_TRUE(runner.Enqueue(cases, random.OneIn(4)));
    if (random.OneIn(4)) {
      ASSERT_TRUE(runner.Finish());
    }
  }
  ASSERT_TRUE(runner.Finish());
}

class ViewTest : public testing::TestWithParam<Layout> {};

TEST_P(ViewTest, RandomCasesAgreeWithTheDefinition) {
  uint64_t round = static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
  for (const char* algorithms : {"", "direct", "oneshot", "ring", "tree", "twoshot", "AllGather:bruck;AllReduce:rhd"}) {
    SCOPED_TRACE("NCCL_ALGO=" + std::string(algorithms) + " AXCCL_TEST_SEED=" + std::to_string(Seed()));
    const uint64_t seed = Scramble(Seed(), ++round);
    const int cases = algorithms[0] == 0 ? 400 : 120;
    RunOptions options;
    // Little scratch, so that larger cases take several turns.
    options.environment = {{"NCCL_ALGO", algorithms}, {"AXCCL_SCRATCH_BYTES", "128K"}};
    RunRanks(
        GetParam(), [&](RankContext& context) { RunViews(context, seed, cases); }, options);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ViewTest,
                         testing::Values(harness::Processes(1), harness::Processes(2), harness::Processes(3),
                                         harness::Processes(5), harness::Threads(2), harness::Threads(4),
                                         harness::OneThread(3), harness::OneThread(5), Layout{2, 2, 1},
                                         Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
