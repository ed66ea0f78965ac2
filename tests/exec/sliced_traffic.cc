#include "tests/exec/sliced_traffic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/verify/verify.h"

namespace axccl::exec {
namespace {

using device::host::Poll;
using harness::Random;
using harness::Scramble;
using plan::Kind;

constexpr int32_t kSpoiled = 0x5b0115ed, kGarbage = 0x6a6bace;
// Rounds in which no rank makes progress, before that counts as a deadlock.
constexpr int kIdleRounds = 1000;

}  // namespace

bool SlicedShape::splits() const { return contract.kind == Kind::kReduceScatter || contract.kind == Kind::kAllToAll; }
bool SlicedShape::joins() const { return contract.kind == Kind::kAllGather || contract.kind == Kind::kAllToAll; }

BlockForm SlicedShape::Form() const {
  BlockForm form;
  form.shape = block;
  form.split = static_cast<decltype(form.split)>(splits() ? dim : -1);
  form.concat = static_cast<decltype(form.concat)>(joins() ? dim : -1);
  return form;
}

std::string Describe(const SlicedShape& shape) {
  return std::string(plan::KindName(shape.contract.kind)) + " ranks " + std::to_string(shape.contract.ranks) +
         " root " + std::to_string(shape.contract.root) + " " + Text(shape.Form(), DataType::kInt32) + ", " +
         std::to_string(shape.chunking.slices) + " slices along dimension " + std::to_string(shape.slice_dim) + " " +
         algo::ChunkOrderName(shape.chunking.order) + (shape.chunking.produced ? ", produced" : "") + ", innermost " +
         std::to_string(shape.innermost);
}

void AnyBlocks(SlicedShape* shape, Random* random) {
  shape->block.dims = 1 + static_cast<int>(random->Below(3));
  for (int d = 0; d < shape->block.dims; ++d)
    shape->block.sizes[d] = random->OneIn(40) ? 0 : 1 + static_cast<int64_t>(random->Below(12));
  shape->dim = static_cast<int>(random->Below(static_cast<uint64_t>(shape->block.dims)));
  shape->slice_dim = static_cast<int>(random->Below(static_cast<uint64_t>(shape->block.dims)));
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(shape->block.sizes[shape->slice_dim], 1));
  shape->chunking.slices = 1 + static_cast<int>(random->Below(rows));
}

EnsembleOptions RoomFor(const SlicedShape& shape, Layout layout) {
  EnsembleOptions options;
  options.ranks = shape.contract.ranks;
  options.layout = layout;
  options.lanes = shape.contract.ranks + 1;
  options.scratch_bytes = 4096;
  options.process_bytes = 1u << 20;
  return options;
}

SlicedTraffic::SlicedTraffic(Ensemble* ensemble, const std::vector<SlicedShape>& shapes, int starts, Random* random)
    : ensemble_(ensemble),
      starts_(starts),
      random_(random),
      salt_(random->Next()),
      ranks_(static_cast<size_t>(ensemble->ranks())) {
  for (int rank = 0; rank < ensemble->ranks(); ++rank)
    MakeRank(rank, shapes[shapes.size() == 1 ? 0 : static_cast<size_t>(rank)]);
}

void SlicedTraffic::MakeRank(int number, const SlicedShape& shape) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  rank.shape = shape;
  const plan::Contract& contract = shape.contract;
  const auto make = [&](Pipeline::Side side, int blocks, int dim) {
    rank.sides[side] = MakePlace(number, shape, blocks, dim);
    rank.words[side] = std::make_unique<Pipeline::Word[]>(static_cast<size_t>(Chunks(rank, side)));
  };
  make(Pipeline::kIn, plan::InputBlocks(contract, number), shape.splits() ? shape.dim : -1);
  make(Pipeline::kOut, plan::OutputBlocks(contract, number), shape.joins() ? shape.dim : -1);
  auto schedule = algo::GenerateChunked(contract, algo::ChunkedAlgorithms(contract.kind)[0], shape.chunking);
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  const auto plan = verify::MakePlan(std::move(schedule).value());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  PipelinePart part;
  part.channel = ensemble_->channel(number);
  part.call = CallOf(rank);
  part.program = Program::Make(plan.value(), number).value();
  const int64_t rows = shape.block.sizes[shape.slice_dim];
  part.slicing.count = part.call.count;
  part.slicing.row = part.call.count == 0 ? 1 : part.call.count / static_cast<uint64_t>(rows);
  part.slicing.granule = 16;
  part.slicing.slices = plan.value()->schedule.slices;
  part.slicing.parts = plan.value()->schedule.parts;
  auto run = SlicedRun::Make(part, {rank.words[Pipeline::kIn].get(), rank.words[Pipeline::kOut].get()});
  ASSERT_TRUE(run.ok()) << run.status().message();
  rank.run = std::move(run).value();
}

SlicedTraffic::Place SlicedTraffic::MakePlace(int rank, const SlicedShape& shape, int blocks, int dim) {
  Place place;
  place.blocks = blocks;
  if (blocks == 0) return place;
  const tensor::Shape all = shape.Form().OperandShape(dim, blocks);
  std::vector<int> order(static_cast<size_t>(all.dims));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 1; i < order.size(); ++i) std::swap(order[i], order[random_->Below(i + 1)]);
  const bool dense = shape.innermost >= 0;
  if (dense) std::swap(*std::find(order.begin(), order.end(), shape.innermost), order[0]);
  int64_t step = 1, first = 0, last = 0;
  for (const int d : order) {
    const int64_t reach = std::max<int64_t>(all.sizes[d] - 1, 0) * step;
    const bool backwards = !dense && random_->OneIn(3);
    place.strides[d] = backwards ? -step : step;
    (backwards ? first : last) += reach;
    step += reach + static_cast<int64_t>(!dense && random_->OneIn(3) ? random_->Below(4) : 0);
  }
  const auto bytes = static_cast<size_t>(first + last + 1) * sizeof(int32_t);
  place.data = ensemble_->Allocate(rank, bytes, 64, true) + first * static_cast<int64_t>(sizeof(int32_t));
  const auto count = static_cast<uint64_t>(tensor::Elements(shape.block));
  for (int block = 0; block < blocks; ++block) {
    for (uint64_t i = 0; i < count; ++i) {
      int64_t at = dim < 0 ? 0 : block * shape.block.sizes[dim] * place.strides[dim];
      uint64_t rest = i;
      for (int d = shape.block.dims; d-- > 0; rest /= static_cast<uint64_t>(shape.block.sizes[d]))
        at += static_cast<int64_t>(rest % static_cast<uint64_t>(shape.block.sizes[d])) * place.strides[d];
      place.offsets.push_back(at);
    }
  }
  return place;
}

// As the API makes it: the dimension of the slices comes first.
Call SlicedTraffic::CallOf(const Rank& rank) const {
  const SlicedShape& shape = rank.shape;
  ViewOperand operand;
  operand.form = shape.Form().WithFirst(shape.slice_dim);
  operand.type = DataType::kInt32;
  operand.input = rank.sides[Pipeline::kIn].data;
  operand.output = rank.sides[Pipeline::kOut].data;
  operand.block_bytes = static_cast<uint64_t>(tensor::Elements(shape.block)) * sizeof(int32_t);
  for (const auto side : {Pipeline::kIn, Pipeline::kOut}) {
    int64_t* const strides = side == Pipeline::kIn ? operand.input_strides : operand.output_strides;
    std::copy_n(rank.sides[side].strides, tensor::kMaxDims, strides);
    std::rotate(strides, strides + shape.slice_dim, strides + shape.slice_dim + 1);
  }
  ViewList list;
  list.operands.push_back(operand);
  list.slices = {shape.chunking.slices, static_cast<int8_t>(shape.slice_dim),
                 static_cast<uint8_t>(shape.chunking.order), shape.chunking.produced};
  Call call;
  call.kind = shape.contract.kind;
  call.root = shape.contract.root;
  call.type = operand.type;
  call.count = list.BlockCount();
  call.input = operand.input;
  call.output = operand.output;
  call.views = std::make_shared<ViewList>(std::move(list));
  return call;
}

// Visits the elements of a chunk by their number in the operand.
template <class Visit>
void SlicedTraffic::ForEachOfChunk(const Rank& rank, Pipeline::Side side, uint32_t chunk, const Visit& visit) const {
  const auto slices = static_cast<uint64_t>(rank.shape.chunking.slices);
  const uint64_t block = chunk / slices, slice = chunk % slices;
  const tensor::Shape& shape = rank.shape.block;
  const auto rows = static_cast<uint64_t>(shape.sizes[rank.shape.slice_dim]);
  const auto count = static_cast<uint64_t>(tensor::Elements(shape));
  uint64_t inner = 1;
  for (int d = rank.shape.slice_dim + 1; d < shape.dims; ++d) inner *= static_cast<uint64_t>(shape.sizes[d]);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = i / inner % rows;
    if (row >= rows * slice / slices && row < rows * (slice + 1) / slices) visit(block * count + i);
  }
}

int32_t SlicedTraffic::Input(int rank, size_t element, int start) const {
  return static_cast<int32_t>(Scramble(salt_ + static_cast<uint64_t>(start), static_cast<uint64_t>(rank), element) %
                              20001) -
         10000;
}

int32_t SlicedTraffic::Expected(int rank, size_t element, int start) const {
  const plan::Contract& c = ranks_[0].shape.contract;
  const auto count = static_cast<size_t>(tensor::Elements(ranks_[0].shape.block));
  const size_t block = element / count, in_block = element % count, own = static_cast<size_t>(rank) * count;
  switch (c.kind) {
    case Kind::kBroadcast:
      return Input(c.root, element, start);
    case Kind::kAllGather:
      return Input(static_cast<int>(block), in_block, start);
    case Kind::kAllToAll:
      return Input(static_cast<int>(block), own + in_block, start);
    case Kind::kSendRecv:
      return Input(0, element, start);
    default:
      break;
  }
  int32_t sum = 0;
  for (int q = 0; q < c.ranks; ++q) sum += Input(q, c.kind == Kind::kReduceScatter ? own + in_block : element, start);
  return sum;
}

testing::AssertionResult SlicedTraffic::Begin(int number) {
  testing::AssertionResult result = testing::AssertionSuccess();
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const auto chunks = static_cast<uint32_t>(Chunks(rank, Pipeline::kIn));
  for (const auto side : {Pipeline::kIn, Pipeline::kOut}) {
    for (int i = 0; i < Chunks(rank, side); ++i) rank.words[side][static_cast<size_t>(i)] = Pipeline::kNotYet;
    for (size_t i = 0; i < rank.sides[side].offsets.size(); ++i) {
      int32_t& element = Element(rank.sides[side], i);
      if (rank.started > 0 && element != kSpoiled)
        result = testing::AssertionFailure() << "some rank wrote to a buffer of rank " << number << " after its end";
      element = kGarbage;
    }
  }
  rank.undeclared.resize(chunks);
  std::iota(rank.undeclared.begin(), rank.undeclared.end(), 0u);
  rank.checked.assign(static_cast<size_t>(Chunks(rank, Pipeline::kOut)), false);
  ++rank.started;
  rank.runs = true;
  while (!rank.shape.chunking.produced && !rank.undeclared.empty()) Declare(number, rank.undeclared.back());
  rank.run->Begin();
  return result;
}

void SlicedTraffic::Declare(int number, uint32_t chunk) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  rank.undeclared.erase(std::find(rank.undeclared.begin(), rank.undeclared.end(), chunk));
  ForEachOfChunk(rank, Pipeline::kIn, chunk,
                 [&](size_t i) { Element(rank.sides[Pipeline::kIn], i) = Input(number, i, rank.started); });
  if (rank.shape.chunking.produced) rank.words[Pipeline::kIn][chunk].store(Pipeline::kThere, std::memory_order_release);
}

testing::AssertionResult SlicedTraffic::CheckNew(int number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  testing::AssertionResult result = testing::AssertionSuccess();
  for (uint32_t chunk = 0; chunk < rank.checked.size(); ++chunk) {
    if (rank.checked[chunk] || rank.words[Pipeline::kOut][chunk] != Pipeline::kThere) continue;
    rank.checked[chunk] = true;
    ForEachOfChunk(rank, Pipeline::kOut, chunk, [&](size_t i) {
      const int32_t expected = Expected(number, i, rank.started), found = Element(rank.sides[Pipeline::kOut], i);
      if (result && found != expected)
        result = testing::AssertionFailure() << "start " << rank.started << ", rank " << number << ", chunk " << chunk
                                             << ": element " << i << " is " << found << ", expected " << expected;
    });
  }
  return result;
}

testing::AssertionResult SlicedTraffic::CheckEnd(int number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  rank.runs = false;
  if (!rank.run->status().ok()) return testing::AssertionSuccess();
  const auto failure = [&] { return testing::AssertionFailure() << "start " << rank.started << ", rank " << number; };
  if (!rank.undeclared.empty()) return failure() << " ended before its input was ready";
  if (std::find(rank.checked.begin(), rank.checked.end(), false) != rank.checked.end())
    return failure() << " ended without all of its output";
  const Place& input = rank.sides[Pipeline::kIn];
  for (size_t i = 0; i < input.offsets.size(); ++i) {
    if (Element(input, i) != Input(number, i, rank.started)) return failure() << " has another input";
  }
  for (const auto side : {Pipeline::kIn, Pipeline::kOut}) {
    for (size_t i = 0; i < rank.sides[side].offsets.size(); ++i) Element(rank.sides[side], i) = kSpoiled;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult SlicedTraffic::Act(int number, bool* moved) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  *moved = false;
  if (before_steps_) before_steps_(number);
  if (!rank.runs) {
    if (rank.started == starts_ || !rank.run->status().ok()) return testing::AssertionSuccess();
    *moved = true;
    return Begin(number);
  }
  if (!rank.undeclared.empty() && random_->OneIn(3)) {
    *moved = true;
    Declare(number, rank.undeclared[random_->Below(rank.undeclared.size())]);
    return testing::AssertionSuccess();
  }
  const Poll poll = rank.run->Progress(random_->OneIn(3) ? 1 : 1 << random_->Below(14));
  *moved = poll != Poll::kBlocked;
  if (auto result = CheckNew(number); !result) return result;
  if (poll == Poll::kBlocked && random_->OneIn(4)) return CheckBlocked(number);
  return poll == Poll::kDone ? CheckEnd(number) : testing::AssertionSuccess();
}

// A thread would sleep now until another rank signals, so the rank must not be able to go on by itself. A failure may
// be noticed at any time.
testing::AssertionResult SlicedTraffic::CheckBlocked(int number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const uint64_t signals = ensemble_->Signals();
  const int there = CountWords(number, Pipeline::kThere);
  const Poll poll = rank.run->Progress(1 << 20);
  const bool went_on =
      poll != Poll::kBlocked || ensemble_->Signals() != signals || CountWords(number, Pipeline::kThere) != there;
  if (went_on && rank.run->status().ok())
    return testing::AssertionFailure() << "rank " << number << " was blocked, and went on alone";
  return poll == Poll::kDone ? CheckEnd(number) : testing::AssertionSuccess();
}

testing::AssertionResult SlicedTraffic::Drive(Pace pace) {
  const auto ranks = static_cast<uint64_t>(ensemble_->ranks());
  const uint64_t starved = random_->Below(ranks);
  uint64_t rank = random_->Below(ranks), idle = 0;
  const auto all_ended = [&] {
    for (int r = 0; r < ensemble_->ranks(); ++r) {
      if (!Ended(r)) return false;
    }
    return true;
  };
  while (!all_ended()) {
    bool moved = false;
    if (auto result = Act(static_cast<int>(rank), &moved); !result) return result;
    if (const Status& status = StatusOf(static_cast<int>(rank)); !status.ok())
      return testing::AssertionFailure() << "rank " << rank << ": " << status.message();
    if (pace != Pace::kRuns || !moved) rank = random_->Below(ranks);
    if (pace == Pace::kStarve && rank == starved && !random_->OneIn(20)) rank = (rank + 1) % ranks;
    idle = moved ? 0 : idle + 1;
    if (idle > kIdleRounds * ranks) return testing::AssertionFailure() << "no rank makes progress";
  }
  return testing::AssertionSuccess();
}

int SlicedTraffic::CountWords(int number, uint32_t value) const {
  const Rank& rank = ranks_[static_cast<size_t>(number)];
  int count = 0;
  for (const auto side : {Pipeline::kIn, Pipeline::kOut}) {
    for (int i = 0; i < Chunks(rank, side); ++i) count += rank.words[side][static_cast<size_t>(i)] == value;
  }
  return count;
}

std::vector<const std::byte*> SlicedTraffic::Elements(int number, Pipeline::Side side) const {
  const Place& place = ranks_[static_cast<size_t>(number)].sides[side];
  std::vector<const std::byte*> elements;
  for (const int64_t offset : place.offsets)
    elements.push_back(place.data + offset * static_cast<int64_t>(sizeof(int32_t)));
  return elements;
}

}  // namespace axccl::exec
