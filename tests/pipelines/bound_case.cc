#include "tests/pipelines/bound_case.h"

#include <algorithm>
#include <cstring>

#include "tests/harness/element.h"
#include "tests/harness/gpu.h"

namespace axccl::tests {

using harness::Random;

namespace {

axcclPipelineKind_t KindOf(ViewOp op) {
  switch (op) {
    case ViewOp::kAllGather:
      return axcclPipelineAllGather;
    case ViewOp::kReduceScatter:
      return axcclPipelineReduceScatter;
    case ViewOp::kAllReduce:
      return axcclPipelineAllReduce;
    case ViewOp::kAllToAll:
      return axcclPipelineAllToAll;
    default:
      return axcclPipelineBroadcast;
  }
}

bool HasOrder(ViewOp op) { return op == ViewOp::kAllGather || op == ViewOp::kReduceScatter || op == ViewOp::kAllToAll; }

std::string IndexText(const Sizes& index) {
  std::string text = "[";
  for (const int64_t i : index) text += std::to_string(i) + " ";
  return text + "]";
}

}  // namespace

std::string Cut::Text() const {
  return std::to_string(slices) + " slices along " + std::to_string(slice_dim) + " order " +
         std::to_string(static_cast<int>(order)) + (produced ? " produced" : "") +
         (engine == axcclEngineCopy ? " by copy engines" : "");
}

Cut AnyCut(const ViewCase& c, Random* random) {
  Cut cut;
  cut.slice_dim = static_cast<int>(random->Below(c.block.size()));
  const int64_t rows = std::max<int64_t>(c.block[static_cast<size_t>(cut.slice_dim)], 1);
  constexpr int64_t kSlices[] = {1, 2, 3, 7, 8};
  cut.slices = std::min(kSlices[random->Below(5)], rows);
  if (HasOrder(c.op)) cut.order = static_cast<axcclChunkOrder_t>(random->Below(4));
  // A producer cannot write one chunk while another one, which shares its elements, is read.
  const bool shares = std::any_of(c.repeats.begin(), c.repeats.end(), [](uint32_t repeats) { return repeats != 0; });
  cut.produced = random->OneIn(2) && !shares;
  const bool reduces = c.op == ViewOp::kAllReduce || c.op == ViewOp::kReduceScatter;
  if (harness::OnGpu() && !reduces && random->OneIn(2)) cut.engine = axcclEngineCopy;
  return cut;
}

ViewCase AnyPipelineCase(Random* random, int nranks, int64_t max_elements) {
  for (;;) {
    const ViewCase c = AnyViewCase(random, nranks, max_elements);
    const bool has_kind = c.op != ViewOp::kGather && c.op != ViewOp::kScatter && c.op != ViewOp::kReduce;
    // Floats of 8 bits do not have all multiples of a larger number, of which the oracle makes averages.
    const bool inexact =
        nranks > 8 && c.fold == ncclAvg && harness::TypeBytes(c.type) == 1 && harness::IsFloatType(c.type);
    if (has_kind && !c.block.empty() && !inexact) return c;
  }
}

BoundCase::BoundCase(const ViewCase& c, const Cut& cut, int rank, harness::Memory memory)
    : c_(c), cut_(cut), rank_(rank) {
  const auto size = static_cast<int64_t>(harness::TypeBytes(c.type));
  const bool in_place = c.InPlace(rank);
  const Placement in = InputPlacement(c, rank), out = OutputPlacement(c, rank);
  const auto need = [size](const Placement& p) {
    return harness::GuardedArena::Need(static_cast<size_t>(p.before + p.after) * static_cast<size_t>(size));
  };
  arena_ = harness::GuardedArena::Create(memory, need(in) + need(out) + 4096);
  Random random(harness::Scramble(c.seed, 0xb0d, static_cast<uint64_t>(rank)));
  if (c.HasInput(rank)) input_ = std::make_unique<Tensor>(in, c.type, arena_.get(), &random);
  spec_.in.datatype = spec_.out.datatype = c.type;
  if (!in_place && c.HasOutput(rank)) output_ = std::make_unique<Tensor>(out, c.type, arena_.get(), &random);
  const auto describe = [&](bool is_input, char* data, const Placement& placement) {
    axcclView_t& view = is_input ? spec_.in : spec_.out;
    sizes_[is_input] = is_input ? c.InputSizes() : c.OutputSizes();
    strides_[is_input] = placement.strides;
    view.data = data;
    view.num_dims = static_cast<int>(sizes_[is_input].size());
    view.sizes = sizes_[is_input].data();
    view.strides = strides_[is_input].data();
  };
  if (in_place) {
    // The larger operand's placement; the smaller one is a block of it.
    in_place_ = in;
    in_place_data_ = input_->data;
    const int dim = std::max(c.split, c.concat);
    if (dim >= 0)
      in_place_data_ += rank * c.block[static_cast<size_t>(dim)] * in.strides[static_cast<size_t>(dim)] * size;
    describe(true, c.concat >= 0 ? in_place_data_ : input_->data, in);
    describe(false, c.concat >= 0 ? input_->data : in_place_data_, in);
  } else {
    if (input_ != nullptr) describe(true, input_->data, in);
    if (output_ != nullptr) describe(false, output_->data, out);
  }
  spec_.kind = KindOf(c.op);
  spec_.dim = c.op == ViewOp::kAllGather ? c.concat : std::max(c.split, 0);
  spec_.concat_dim = std::max(c.concat, 0);
  spec_.root = c.root;
  spec_.op = c.fold;
  spec_.slice_dim = cut.slice_dim;
  spec_.slices = cut.slices;
  spec_.order = cut.order;
  spec_.engine = cut.engine;
  spec_.flags = cut.produced ? axcclProducer : 0;
}

char* BoundCase::InputAt(const Sizes& index) const {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides_[1][d];
  return static_cast<char*>(spec_.in.data) + at * static_cast<int64_t>(harness::TypeBytes(c_.type));
}

char* BoundCase::OutputAt(const Sizes& index) const {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides_[0][d];
  return static_cast<char*>(spec_.out.data) + at * static_cast<int64_t>(harness::TypeBytes(c_.type));
}

// Visits the indices of a chunk in the whole operand.
template <class Visit>
void BoundCase::ForEachOf(bool input, int64_t chunk, const Visit& visit) const {
  const int64_t block = chunk / cut_.slices, slice = chunk % cut_.slices;
  const int dim = input ? c_.split : c_.concat;
  const auto d = static_cast<size_t>(cut_.slice_dim);
  const int64_t rows = c_.block[d], first = rows * slice / cut_.slices, end = rows * (slice + 1) / cut_.slices;
  Sizes sizes = c_.block;
  sizes[d] = end - first;
  ForEachIndex(sizes, [&](const Sizes& in_chunk) {
    Sizes index = in_chunk;
    index[d] += first;
    if (dim >= 0) index[static_cast<size_t>(dim)] += block * c_.block[static_cast<size_t>(dim)];
    visit(index);
  });
}

void BoundCase::Write(const Sizes& index) {
  const Element element = InputElement(c_, rank_, index);
  std::memcpy(InputAt(index), element.data(), harness::TypeBytes(c_.type));
}

void BoundCase::Produce(int64_t chunk) {
  ForEachOf(true, chunk, [&](const Sizes& index) { Write(index); });
}

void BoundCase::Poison() {
  const auto poison = [&](const Sizes& sizes, bool input) {
    ForEachIndex(sizes, [&](const Sizes& index) {
      std::memset(input ? InputAt(index) : OutputAt(index), 0xd1, harness::TypeBytes(c_.type));
    });
  };
  if (c_.HasOutput(rank_)) poison(c_.OutputSizes(), false);
  if (c_.HasInput(rank_)) poison(c_.InputSizes(), true);
}

void BoundCase::Prepare() {
  Poison();
  if (cut_.produced || !c_.HasInput(rank_)) return;
  ForEachIndex(c_.InputSizes(), [&](const Sizes& index) { Write(index); });
}

std::string BoundCase::CheckChunk(int64_t chunk) const {
  std::string wrong;
  ForEachOf(false, chunk, [&](const Sizes& index) {
    const Element element = OutputElement(c_, rank_, index);
    if (wrong.empty() && std::memcmp(OutputAt(index), element.data(), harness::TypeBytes(c_.type)) != 0)
      wrong =
          "chunk " + std::to_string(chunk) + " of rank " + std::to_string(rank_) + " is wrong at " + IndexText(index);
  });
  return wrong;
}

std::string BoundCase::Check() const {
  const int64_t blocks = !c_.HasOutput(rank_) ? 0 : c_.concat >= 0 ? c_.nranks : 1;
  for (int64_t chunk = 0; chunk < blocks * cut_.slices; ++chunk) {
    if (std::string wrong = CheckChunk(chunk); !wrong.empty()) return wrong;
  }
  return arena_->CheckSentinels();
}

}  // namespace axccl::tests
