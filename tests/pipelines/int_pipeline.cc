#include "tests/pipelines/int_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace axccl::tests {

namespace {

constexpr uint32_t kPoison = 0xdddddddd;

}  // namespace

const char* KindName(axcclPipelineKind_t kind) {
  constexpr const char* kNames[] = {"AllGather", "ReduceScatter", "AllReduce", "AllToAll", "Broadcast", "Permute"};
  return kNames[kind];
}

bool HasOrder(axcclPipelineKind_t kind) {
  return kind == axcclPipelineAllGather || kind == axcclPipelineReduceScatter || kind == axcclPipelineAllToAll;
}

int IntCase::InBlocks(int rank) const {
  switch (kind) {
    case axcclPipelineReduceScatter:
    case axcclPipelineAllToAll:
      return nranks;
    case axcclPipelineBroadcast:
      return rank == root;
    case axcclPipelinePermute:
      for (size_t i = 0; i < pairs.size(); i += 2) {
        if (pairs[i] == rank) return 1;
      }
      return 0;
    default:
      return 1;
  }
}

int IntCase::OutBlocks([[maybe_unused]] int rank) const {
  return kind == axcclPipelineAllGather || kind == axcclPipelineAllToAll ? nranks : 1;
}

int IntCase::SourceOf(int rank) const {
  for (size_t i = 0; i < pairs.size(); i += 2) {
    if (pairs[i + 1] == rank) return static_cast<int>(pairs[i]);
  }
  return -1;
}

std::string IntCase::Text() const {
  return std::string(KindName(kind)) + " " + std::to_string(nranks) + " ranks, blocks " + std::to_string(rows) + "x" +
         std::to_string(columns) + ", " + std::to_string(slices) + " slices, order " + std::to_string(order) +
         (produced ? ", produced, " : ", ") + harness::MemoryName(memory);
}

std::vector<int64_t> ShiftPairs(int nranks, int shift) {
  std::vector<int64_t> pairs;
  for (int r = 0; r < nranks; ++r) pairs.insert(pairs.end(), {r, (r + shift) % nranks});
  return pairs;
}

IntCase CaseOf(axcclPipelineKind_t kind, int nranks, int64_t slices) {
  IntCase c;
  c.kind = kind, c.nranks = nranks, c.slices = slices;
  c.rows = std::max<int64_t>(c.rows, slices);
  if (kind == axcclPipelinePermute) c.pairs = ShiftPairs(nranks, 1);
  return c;
}

IntPipeline::IntPipeline(const IntCase& c, int rank) : c_(c), rank_(rank) {
  const int in = c.InBlocks(rank), out = c.OutBlocks(rank);
  const auto bytes = [&](int blocks) { return static_cast<size_t>(blocks * BlockElements()) * sizeof(uint32_t); };
  arena_ = harness::GuardedArena::Create(
      c.memory, harness::GuardedArena::Need(bytes(in)) + harness::GuardedArena::Need(bytes(out)) + 4096);
  if (in != 0) in_ = static_cast<uint32_t*>(arena_->Take(bytes(in), 0));
  if (out != 0) out_ = static_cast<uint32_t*>(arena_->Take(bytes(out), 0));
  in_sizes_[0] = in * c.rows, out_sizes_[0] = out * c.rows;
  in_sizes_[1] = out_sizes_[1] = c.columns;
  spec_.kind = c.kind;
  spec_.in.data = in_, spec_.out.data = out_;
  spec_.in.sizes = in_sizes_, spec_.out.sizes = out_sizes_;
  spec_.in.num_dims = spec_.out.num_dims = 2;
  spec_.in.datatype = spec_.out.datatype = ncclInt32;
  spec_.root = c.root;
  spec_.pairs = c_.pairs.data(), spec_.num_pairs = static_cast<int>(c_.pairs.size() / 2);
  spec_.slices = c.slices;
  spec_.order = c.order;
  spec_.flags = c.produced ? axcclProducer : 0;
}

IntPipeline::IntPipeline(const IntCase& c, int rank, axcclChannel_t channel) : IntPipeline(c, rank) {
  EXPECT_OK(Create(channel));
}

IntPipeline::~IntPipeline() {
  if (handle_ == nullptr) return;
  EXPECT_OK(axcclPipelineDestroy(handle_));
}

axcclPipeline_t IntPipeline::Take() { return std::exchange(handle_, nullptr); }

int64_t IntPipeline::ChunkAt(axcclSide_t side, int64_t position) const {
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  EXPECT_OK(axcclPipelineGetChunk(handle_, side, position, &chunk));
  const auto* const data =
      (side == axcclIn ? in_ : out_) + (chunk.number / c_.slices) * BlockElements() + Begin(chunk.number % c_.slices);
  EXPECT_EQ(chunk.view.data, data);
  return chunk.number;
}

uint32_t* IntPipeline::Words(axcclSide_t side) const {
  uint32_t* words = nullptr;
  int64_t count = -1;
  EXPECT_OK(axcclPipelineGetFlags(handle_, side, &words, &count));
  EXPECT_EQ(count, side == axcclIn ? in_chunks() : out_chunks());
  return words;
}

uint32_t IntPipeline::InputValue(int step, int rank, int64_t block, int64_t element) const {
  return static_cast<uint32_t>(step * 1000003 + rank * 10007 + block * 1009 + element);
}

uint32_t IntPipeline::OutputValue(int step, int64_t block, int64_t element) const {
  const bool scatters = c_.kind == axcclPipelineReduceScatter;
  uint32_t sum = 0;
  switch (c_.kind) {
    case axcclPipelineAllGather:
      return InputValue(step, static_cast<int>(block), 0, element);
    case axcclPipelineReduceScatter:
    case axcclPipelineAllReduce:
      for (int r = 0; r < c_.nranks; ++r) sum += InputValue(step, r, scatters ? rank_ : 0, element);
      return sum;
    case axcclPipelineAllToAll:
      return InputValue(step, static_cast<int>(block), rank_, element);
    case axcclPipelineBroadcast:
      return InputValue(step, c_.root, 0, element);
    default:
      return c_.SourceOf(rank_) < 0 ? 0 : InputValue(step, c_.SourceOf(rank_), 0, element);
  }
}

void IntPipeline::Prepare(int step) {
  std::fill_n(out_, c_.OutBlocks(rank_) * BlockElements(), kPoison);
  if (in_ != nullptr) std::fill_n(in_, c_.InBlocks(rank_) * BlockElements(), kPoison);
  for (int64_t chunk = 0; !c_.produced && chunk < in_chunks(); ++chunk) Produce(chunk, step);
}

void IntPipeline::Produce(int64_t chunk, int step) {
  const int64_t block = chunk / c_.slices, slice = chunk % c_.slices;
  for (int64_t e = Begin(slice); e < Begin(slice + 1); ++e)
    in_[block * BlockElements() + e] = InputValue(step, rank_, block, e);
}

ncclResult_t IntPipeline::Declare(int64_t chunk, int step) {
  Produce(chunk, step);
  return axcclPipelineReady(handle_, chunk);
}

ncclResult_t IntPipeline::DeclareAll(int step) {
  ncclResult_t result = ncclSuccess;
  for (int64_t p = 0; p < in_chunks() && result == ncclSuccess; ++p) result = Declare(ChunkAt(axcclIn, p), step);
  return result;
}

void IntPipeline::DeclareByWords(uint32_t* in, int step) {
  for (int64_t chunk = 0; chunk < in_chunks(); ++chunk) {
    Produce(chunk, step);
    axcclDeviceReady(&in[chunk]);
  }
}

std::string IntPipeline::CheckChunk(int64_t chunk, int step) const {
  const int64_t block = chunk / c_.slices, slice = chunk % c_.slices;
  for (int64_t e = Begin(slice); e < Begin(slice + 1); ++e) {
    const uint32_t found = out_[block * BlockElements() + e], wanted = OutputValue(step, block, e);
    if (found != wanted)
      return "rank " + std::to_string(rank_) + ", chunk " + std::to_string(chunk) + ", element " + std::to_string(e) +
             " is " + std::to_string(found) + " instead of " + std::to_string(wanted);
  }
  return "";
}

std::string IntPipeline::Check(int step) const {
  for (int64_t chunk = 0; chunk < out_chunks(); ++chunk) {
    if (std::string wrong = CheckChunk(chunk, step); !wrong.empty()) return wrong;
  }
  return arena_->CheckSentinels();
}

bool IntPipeline::Poisoned(int64_t chunk) const {
  const uint32_t* const at = out_ + (chunk / c_.slices) * BlockElements();
  return std::all_of(at + Begin(chunk % c_.slices), at + Begin(chunk % c_.slices + 1),
                     [](uint32_t value) { return value == kPoison; });
}

ncclResult_t IntPipeline::Step(int step, cudaStream_t stream) {
  Prepare(step);
  if (const ncclResult_t result = axcclPipelineStart(handle_, stream); result != ncclSuccess) return result;
  if (c_.produced) {
    if (const ncclResult_t result = DeclareAll(step); result != ncclSuccess) return result;
  }
  return axcclPipelineFinish(handle_, stream);
}

}  // namespace axccl::tests
