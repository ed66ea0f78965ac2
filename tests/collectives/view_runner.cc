#include "tests/collectives/view_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace axccl::tests {

using harness::Clique;
using harness::Cuda;
using harness::GuardedArena;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::Scramble;
using harness::Seed;

namespace {

constexpr size_t kArenaBytes = size_t{32} << 20;

// Memory of one tensor or, in place, two tensors, and the bytes that it must hold in the end.
struct Image {
  GuardedArena* arena = nullptr;
  char* begin = nullptr;
  std::vector<char> expected;

  void Expect(const void* at, const Element& element, size_t bytes) {
    std::memcpy(expected.data() + (static_cast<const char*>(at) - begin), element.data(), bytes);
  }
};

}  // namespace

// A tensor in the test's memory, in the form in which the call takes it.
struct ViewRunner::Tensor {
  Placement placement;
  char* data = nullptr;  // the first element
  axcclView_t view = AXCCL_VIEW_INITIALIZER;

  void Describe(const Sizes& sizes, ncclDataType_t type) {
    placement.sizes = sizes;
    view.data = data;
    view.datatype = type;
    view.num_dims = static_cast<int>(sizes.size());
  }
  // The struct, valid once the tensor has its place.
  const axcclView_t* View() {
    view.sizes = placement.sizes.data();
    view.strides = placement.dense ? nullptr : placement.strides.data();
    return &view;
  }
};

// One rank's part in one case.
struct ViewRunner::Part {
  ViewCase c;
  int rank = 0;
  bool in_place = false;
  bool mapped = false;  // all memory is from ncclMemAlloc
  Tensor input, output;
  std::vector<Image> images;

  void Fill();
  void Predict();
  void Check() const;
};

ViewRunner::ViewRunner(RankContext& context, Clique& clique) : context_(context), clique_(clique) {
  for (int i = 0; i < clique.size(); ++i) {
    for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
      arenas_.push_back(GuardedArena::Create(memory, kArenaBytes));
  }
  constexpr size_t kFlatBytes = 16 * sizeof(int);
  flat_memory_ = GuardedArena::Create(Memory::kMalloc, GuardedArena::Need(kFlatBytes));
  flat_ = static_cast<int*>(flat_memory_->Take(kFlatBytes, 0));
}

ViewRunner::~ViewRunner() = default;

bool ViewRunner::Enqueue(const ViewCases& cases, bool among) {
  if (!context_.Step("%zu operands, first %s", cases.size(), cases[0].Text().c_str())) return false;
  std::vector<DueCall> due;
  for (int i = 0; i < clique_.size(); ++i)
    due.push_back({&cases, {i, clique_.rank(i), axcclDefaultChannel(clique_.comm(i)), Cuda(clique_.stream(i))}});
  if (!Fits(due) && !Finish()) return false;
  const bool group = clique_.size() > 1 || among;
  ncclResult_t result = group ? ncclGroupStart() : ncclSuccess;
  for (const auto& [call, seat] : due) {
    if (among && result == ncclSuccess) result = CallNccl(seat.member);
    if (result == ncclSuccess) result = Enqueue(*call, seat);
    if (among && result == ncclSuccess) result = CallNccl(seat.member);
  }
  if (group) result = ncclGroupEnd();
  EXPECT_OK(result) << cases.size() << " operands, first " << cases[0].Text();
  return !testing::Test::HasFailure();
}

bool ViewRunner::Fits(std::span<const DueCall> due) const {
  std::vector<size_t> need(static_cast<size_t>(clique_.size()));
  for (const auto& [cases, seat] : due) {
    for (const ViewCase& c : *cases) {
      for (const Placement& p : {InputPlacement(c, seat.rank), OutputPlacement(c, seat.rank)})
        need[static_cast<size_t>(seat.member)] +=
            GuardedArena::Need(static_cast<size_t>(p.before + p.after) * harness::TypeBytes(c.type));
    }
  }
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (arenas_[i]->Left() < need[i / 2]) return false;
  }
  return true;
}

ncclResult_t ViewRunner::Enqueue(const ViewCases& cases, const Seat& seat) {
  const size_t first = parts_.size();
  for (const ViewCase& c : cases) parts_.push_back(Prepare(c, seat, cases[0].seed % 2 == 0));
  return Launch(std::span(parts_).subspan(first), seat);
}

bool ViewRunner::Finish() {
  if (!clique_.Synchronize()) return false;
  for (const auto& part : parts_) part->Check();
  for (const auto& arena : arenas_) {
    EXPECT_EQ(arena->CheckSentinels(), "") << "after " << parts_.size() << " cases";
    arena->Reset();
  }
  parts_.clear();
  return !testing::Test::HasFailure();
}

// Memory for a tensor with that placement.
ViewRunner::Tensor ViewRunner::Place(Part* part, const Seat& seat, const Placement& placement, Random* random) {
  const size_t size = harness::TypeBytes(part->c.type);
  Image image;
  image.arena = arenas_[2 * static_cast<size_t>(seat.member) + (part->mapped ? 0 : random->Below(2))].get();
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

std::unique_ptr<ViewRunner::Part> ViewRunner::Prepare(const ViewCase& c, const Seat& seat, bool mapped) {
  auto part = std::make_unique<Part>();
  const int rank = seat.rank;
  const auto size = static_cast<int64_t>(harness::TypeBytes(c.type));
  Random random(Scramble(c.seed, 0xb0ffe5, static_cast<uint64_t>(rank)));
  part->c = c;
  part->rank = rank;
  part->in_place = c.InPlace(rank);
  part->mapped = mapped;
  if (c.HasInput(rank)) part->input = Place(part.get(), seat, InputPlacement(c, rank), &random);
  if (part->in_place) {
    part->output = part->input;
    // The smaller operand is a part of the larger one.
    const int dim = std::max(c.split, c.concat);
    const auto d = static_cast<size_t>(dim);
    Tensor& inner = c.concat >= 0 ? part->input : part->output;
    if (dim >= 0 && inner.data != nullptr) inner.data += rank * c.block[d] * inner.placement.strides[d] * size;
    if (dim >= 0) inner.placement.dense = false;
  } else if (c.HasOutput(rank)) {
    part->output = Place(part.get(), seat, OutputPlacement(c, rank), &random);
  }
  part->input.Describe(c.InputSizes(), c.type);
  part->output.Describe(c.OutputSizes(), c.type);
  if (c.HasInput(rank)) part->Fill();
  if (c.HasOutput(rank)) part->Predict();
  return part;
}

void ViewRunner::Part::Fill() {
  Image* const image = &images.front();
  const size_t size = harness::TypeBytes(c.type);
  ForEachIndex(input.placement.sizes, [&](const Sizes& index) {
    char* at = input.data + OffsetOf(input.placement, index) * static_cast<int64_t>(size);
    const Element element = InputElement(c, rank, index);
    std::memcpy(at, element.data(), size);
    image->Expect(at, element, size);
  });
}

void ViewRunner::Part::Predict() {
  Image* const image = &images.back();
  const size_t size = harness::TypeBytes(c.type);
  ForEachIndex(output.placement.sizes, [&](const Sizes& index) {
    const char* at = output.data + OffsetOf(output.placement, index) * static_cast<int64_t>(size);
    image->Expect(at, OutputElement(c, rank, index), size);
  });
}

ncclResult_t ViewRunner::Launch(std::span<const std::unique_ptr<Part>> parts, const Seat& seat) {
  const ViewCase& c = parts[0]->c;
  const int rank = parts[0]->rank, count = static_cast<int>(parts.size());
  Random random(Scramble(c.seed, 0xca11, static_cast<uint64_t>(rank)));
  // An invalid pointer where the rank has no operand: the call ignores it.
  const axcclView_t nonsense = {7, nullptr, ncclFloat32, -3, nullptr, nullptr};
  std::vector<axcclView_t> inputs, outputs;
  for (const auto& part : parts) {
    inputs.push_back(c.HasInput(rank) ? *part->input.View() : nonsense);
    outputs.push_back(part->c.HasOutput(rank) ? *part->output.View() : nonsense);
  }
  const axcclView_t* in = c.HasInput(rank) || random.OneIn(2) ? inputs.data() : nullptr;
  const bool looked_at = c.op == ViewOp::kReduce;
  const axcclView_t* out = c.HasOutput(rank) || (!looked_at && random.OneIn(2)) ? outputs.data() : nullptr;
  // Operands may differ in the number of dimensions, so not all dimensions can be counted from the end.
  const int dims = static_cast<int>(c.block.size());
  const int split = count > 1 || random.OneIn(2) ? c.split : c.split - dims;
  const int concat = count > 1 || random.OneIn(2) ? c.concat : c.concat - dims;
  axcclOptions_t choice = AXCCL_OPTIONS_INITIALIZER;
  // Equal on all ranks.
  if (c.seed % 5 == 0) choice.bucket_bytes = c.seed / 5 % 4096;
  const axcclOptions_t* options = c.seed % 5 < 2 ? &choice : nullptr;
  const axcclChannel_t channel = seat.channel;
  const cudaStream_t stream = seat.stream;
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

ncclResult_t ViewRunner::CallNccl(int member) {
  int* const data = &flat_[member];
  return ncclAllReduce(data, data, 1, ncclInt32, ncclMax, clique_.comm(member), Cuda(clique_.stream(member)));
}

void ViewRunner::Part::Check() const {
  for (const Image& image : images) {
    const auto wrong = std::mismatch(image.expected.begin(), image.expected.end(), image.begin);
    if (wrong.first == image.expected.end()) continue;
    ADD_FAILURE() << "rank " << rank << " of " << c.nranks << (in_place ? ", in place: " : ": ") << c.Text()
                  << ": byte " << wrong.first - image.expected.begin() << " of " << image.expected.size()
                  << " of buffer " << &image - images.data() << " is " << static_cast<int>(*wrong.second)
                  << ", expected " << static_cast<int>(*wrong.first) << "; AXCCL_TEST_SEED=" << Seed();
  }
}

}  // namespace axccl::tests
