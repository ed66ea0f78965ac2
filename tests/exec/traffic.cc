#include "tests/exec/traffic.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "src/algo/algo.h"

namespace axccl::exec {
namespace {

using device::host::Poll;
using harness::Scramble;
using plan::Kind;

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};
constexpr int32_t kSpoiled = 0x5b0115ed;
// Not a buffer: ranks pass it where the contract has none.
void* const kNowhere = reinterpret_cast<void*>(16);
// Rounds in which no rank makes progress or signals, before that counts as a deadlock.
constexpr int kIdleRounds = 1000;

}  // namespace

std::string Describe(const Shape& shape) {
  const char* scaling[] = {"", " avg", " premulsum"};
  return std::string(plan::KindName(shape.contract.kind)) + " ranks " + std::to_string(shape.contract.ranks) +
         " root " + std::to_string(shape.contract.root) + " count " + std::to_string(shape.count) +
         scaling[static_cast<int>(shape.scaling)] + " in_place " + std::to_string(shape.in_place) + " in_heap " +
         std::to_string(shape.in_heap) + (shape.form ? " as " + Text(*shape.form, DataType::kInt32) : "");
}

Exchange::Exchange(Ensemble* ensemble, const Shape& shape, uint64_t salt)
    : ensemble_(ensemble), shape_(shape), salt_(salt) {
  for (int rank = 0; rank < shape.contract.ranks; ++rank) {
    Buffers b;
    const auto inputs = static_cast<uint64_t>(plan::InputBlocks(shape.contract, rank));
    const auto outputs = static_cast<uint64_t>(plan::OutputBlocks(shape.contract, rank));
    int input_block = 0, output_block = 0;
    b.in_place = (shape.in_place >> rank & 1) != 0 &&
                 plan::InPlaceBlocks(shape.contract, rank, &input_block, &output_block) && inputs != 0 && outputs != 0;
    const bool input_heap = (shape.in_heap >> (2 * rank) & 1) != 0,
               output_heap = (shape.in_heap >> (2 * rank + 1) & 1) != 0;
    const uint64_t shift = Scramble(salt, static_cast<uint64_t>(rank)) % 16;
    const int split = shape.form ? shape.form->split : -1, concat = shape.form ? shape.form->concat : -1;
    if (!b.in_place || inputs >= outputs) b.input = MakeOperand(rank, split, inputs, input_heap, shift);
    if (!b.in_place || inputs < outputs) b.output = MakeOperand(rank, concat, outputs, output_heap, shift / 3);
    if (b.in_place) {
      // The longer buffer contains the shorter one.
      Place& inner = inputs >= outputs ? b.output : b.input;
      const Place& outer = inputs >= outputs ? b.input : b.output;
      const uint64_t at = static_cast<uint64_t>(inputs >= outputs ? input_block : output_block) * shape.count;
      const int64_t bytes = 4 * (outer.offsets.empty() ? static_cast<int64_t>(at) : outer.offsets[at]);
      inner = outer;
      inner.own += bytes, inner.data += bytes;
      inner.elements = std::min(inputs, outputs) * shape.count;
      if (shape.form) FindElements(-1, 1, &inner);
    }
    for (uint64_t i = 0; i < b.input.elements; ++i) Element(b.input, i) = InputValue(rank, i);
    buffers_.push_back(b);
  }
}

Exchange::Place Exchange::MakePlace(int rank, uint64_t elements, bool heap, uint64_t offset) {
  const size_t bytes = elements * 4;
  std::byte* const own = ensemble_->Allocate(rank, bytes + 2 * kGuard + 64, 64, heap) + kGuard + 4 * offset;
  std::byte* const data = ensemble_->AlwaysAccessible(rank, own);
  std::fill(data - kGuard, data + bytes + kGuard - 4 * offset, kGuardByte);
  Place place;
  place.own = own, place.data = data, place.elements = elements;
  place.memory = data, place.memory_elements = elements;
  return place;
}

// Blocks follow each other along `dim`; the dimensions lie in any order and direction, with gaps.
Exchange::Place Exchange::MakeOperand(int rank, int dim, uint64_t blocks, bool heap, uint64_t offset) {
  if (!shape_.form || blocks == 0) return MakePlace(rank, blocks * shape_.count, heap, offset);
  harness::Random random(Scramble(salt_, static_cast<uint64_t>(rank), blocks + (heap ? 100 : 0) + offset));
  const tensor::Shape shape = shape_.form->OperandShape(dim, static_cast<int>(blocks));
  std::vector<int> order(static_cast<size_t>(shape.dims));
  for (int d = 0; d < shape.dims; ++d) {
    order[static_cast<size_t>(d)] = d;
    std::swap(order[static_cast<size_t>(d)], order[random.Below(static_cast<uint64_t>(d) + 1)]);
  }
  int64_t strides[tensor::kMaxDims] = {};
  int64_t step = random.OneIn(4) ? 2 : 1, first = 0, last = 0;
  for (const int d : order) {
    const int64_t reach = std::max<int64_t>(shape.sizes[d] - 1, 0) * step;
    strides[d] = random.OneIn(3) ? -step : step;
    (strides[d] < 0 ? first : last) += reach;
    step += reach + static_cast<int64_t>(random.OneIn(3) ? random.Below(4) : 0);
  }
  Place place = MakePlace(rank, static_cast<uint64_t>(first + last + 1), heap, offset);
  place.own += 4 * first, place.data += 4 * first;
  place.elements = blocks * shape_.count;
  std::copy_n(strides, tensor::kMaxDims, place.strides);
  FindElements(dim, blocks, &place);
  return place;
}

void Exchange::FindElements(int dim, uint64_t blocks, Place* place) const {
  const tensor::Shape& shape = shape_.form->shape;
  place->offsets.clear();
  for (uint64_t block = 0; block < blocks; ++block) {
    const int64_t base = dim < 0 ? 0 : static_cast<int64_t>(block) * shape.sizes[dim] * place->strides[dim];
    for (uint64_t i = 0; i < shape_.count; ++i) {
      int64_t at = base;
      uint64_t rest = i;
      for (int d = shape.dims; d-- > 0; rest /= static_cast<uint64_t>(shape.sizes[d]))
        at += static_cast<int64_t>(rest % static_cast<uint64_t>(shape.sizes[d])) * place->strides[d];
      place->offsets.push_back(at);
    }
  }
}

// The guards of an inner buffer are part of the outer one, so only outer ones are checked.
bool Exchange::GuardsIntact(const Place& place) {
  const std::byte* end = place.memory + place.memory_elements * 4;
  auto intact = [](std::byte b) { return b == kGuardByte; };
  if (!std::all_of(place.memory - kGuard, place.memory, intact) || !std::all_of(end, end + 4, intact)) return false;
  if (place.offsets.empty() && place.elements != 0) return true;
  // What lies between the elements of a view is a guard, too.
  std::vector<bool> is_element(place.memory_elements);
  for (const int64_t offset : place.offsets)
    is_element[static_cast<size_t>((place.data - place.memory) / 4 + offset)] = true;
  for (size_t i = 0; i < is_element.size(); ++i) {
    if (!is_element[i] && !std::all_of(place.memory + 4 * i, place.memory + 4 * i + 4, intact)) return false;
  }
  return true;
}

Call Exchange::CallOf(int rank) const {
  const Buffers& b = buffers_[static_cast<size_t>(rank)];
  Call call;
  call.kind = shape_.contract.kind;
  call.root = shape_.contract.root;
  call.count = shape_.count;
  call.type = DataType::kInt32;
  call.combine = shape_.combine;
  call.scaling = shape_.scaling;
  call.input = plan::InputBlocks(shape_.contract, rank) != 0 ? b.input.own : kNowhere;
  call.output = plan::OutputBlocks(shape_.contract, rank) != 0 ? b.output.own : kNowhere;
  if (shape_.form) {
    ViewOperand operand;
    operand.form = *shape_.form;
    operand.type = call.type;
    operand.block_bytes = call.count * sizeof(int32_t);
    operand.input = call.input;
    operand.output = call.output;
    std::copy_n(b.input.strides, tensor::kMaxDims, operand.input_strides);
    std::copy_n(b.output.strides, tensor::kMaxDims, operand.output_strides);
    call.views = std::make_shared<ViewList>(ViewList{{operand}});
  }
  const int32_t factor = rank + 2;
  std::memcpy(&call.scalar_bytes, &factor, sizeof(factor));
  return call;
}

int32_t Exchange::InputValue(int rank, uint64_t element) const {
  return static_cast<int32_t>(Scramble(salt_, static_cast<uint64_t>(rank), element) % 20001) - 10000;
}

int32_t Exchange::Contribution(int rank, uint64_t element) const {
  return InputValue(rank, element) * (shape_.scaling == Scaling::kPreMultiply ? rank + 2 : 1);
}

int32_t Exchange::Expected(int rank, uint64_t block, uint64_t element) const {
  const plan::Contract& c = shape_.contract;
  const uint64_t own_block = static_cast<uint64_t>(rank) * shape_.count;
  switch (c.kind) {
    case Kind::kBroadcast:
      return InputValue(c.root, element);
    case Kind::kAllGather:
    case Kind::kGather:
      return InputValue(static_cast<int>(block), element);
    case Kind::kAllToAll:
      return InputValue(static_cast<int>(block), own_block + element);
    case Kind::kScatter:
      return InputValue(c.root, own_block + element);
    case Kind::kSendRecv:
      return InputValue(0, element);
    default:
      break;
  }
  const uint64_t at = c.kind == Kind::kReduceScatter ? own_block + element : element;
  int32_t folded = Contribution(0, at);
  for (int q = 1; q < c.ranks; ++q) {
    const int32_t next = Contribution(q, at);
    folded = shape_.combine == Combine::kMax ? std::max(folded, next) : folded + next;
  }
  return shape_.scaling == Scaling::kAverage ? folded / c.ranks : folded;
}

testing::AssertionResult Exchange::Ended(int rank) {
  const Buffers& b = buffers_[static_cast<size_t>(rank)];
  auto failure = [&] { return testing::AssertionFailure() << Describe(shape_) << ": rank " << rank << ": "; };
  const uint64_t all = (uint64_t{1} << (shape_.contract.ranks - 1) << 1) - 1;
  if (shape_.contract.kind == Kind::kBarrier && begun_ != all)
    return failure() << "left the barrier before all ranks came";
  for (uint64_t i = 0; i < b.output.elements; ++i) {
    const int32_t expected = Expected(rank, i / shape_.count, i % shape_.count);
    if (Element(b.output, i) != expected)
      return failure() << "output element " << i << " is " << Element(b.output, i) << ", expected " << expected;
  }
  for (uint64_t i = 0; i < b.input.elements && !b.in_place; ++i) {
    if (Element(b.input, i) != InputValue(rank, i)) return failure() << "input element " << i << " was changed";
  }
  for (const Place* place : {&b.input, &b.output}) {
    for (uint64_t i = 0; i < place->elements; ++i) Element(*place, i) = kSpoiled;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Exchange::Undisturbed() const {
  for (size_t rank = 0; rank < buffers_.size(); ++rank) {
    const Buffers& b = buffers_[rank];
    for (const Place* place : {&b.input, &b.output}) {
      const Place& other = place == &b.input ? b.output : b.input;
      if (place->data == nullptr) continue;
      for (uint64_t i = 0; i < place->elements; ++i) {
        if (Element(*place, i) != kSpoiled)
          return testing::AssertionFailure() << Describe(shape_) << ": rank " << rank
                                             << ": some rank wrote to a buffer after the rank's operation had ended";
      }
      if ((!b.in_place || place->elements > other.elements) && !GuardsIntact(*place))
        return testing::AssertionFailure() << Describe(shape_) << ": rank " << rank << ": written beside a buffer";
    }
  }
  return testing::AssertionSuccess();
}

namespace {

// The progress of one rank through the exchanges.
struct Traveller {
  size_t next = 0;
  std::optional<Operation> operation;
};

class Driver {
 public:
  Driver(Ensemble* ensemble, const std::vector<std::unique_ptr<Exchange>>& exchanges)
      : ensemble_(ensemble), exchanges_(exchanges), ranks_(static_cast<size_t>(ensemble->ranks())) {}

  bool Arrived(int rank) const { return ranks_[static_cast<size_t>(rank)].next == exchanges_.size(); }
  bool AllArrived() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Traveller& t) { return t.next == exchanges_.size(); });
  }

  // One step of one rank; *moved unless it is blocked or has arrived.
  testing::AssertionResult Step(int rank, bool* moved) {
    *moved = false;
    if (Arrived(rank)) return testing::AssertionSuccess();
    Traveller& t = ranks_[static_cast<size_t>(rank)];
    Exchange& exchange = *exchanges_[t.next];
    if (!t.operation) {
      t.operation.emplace(ensemble_->channel(rank), exchange.CallOf(rank));
      exchange.Began(rank);
      *moved = true;
    }
    const Poll poll = ensemble_->Step(rank, &*t.operation);
    *moved |= poll != Poll::kBlocked;
    if (poll != Poll::kDone) return testing::AssertionSuccess();
    const Status status = t.operation->status();
    t.operation.reset();
    ++t.next;
    if (!status.ok()) return testing::AssertionFailure() << Describe(exchange.shape()) << ": " << status.message();
    return exchange.Ended(rank);
  }

 private:
  Ensemble* const ensemble_;
  const std::vector<std::unique_ptr<Exchange>>& exchanges_;
  std::vector<Traveller> ranks_;
};

}  // namespace

testing::AssertionResult Drive(Ensemble* ensemble, const std::vector<std::unique_ptr<Exchange>>& exchanges, Pace pace,
                               harness::Random* random) {
  Driver driver(ensemble, exchanges);
  const auto ranks = static_cast<uint64_t>(ensemble->ranks());
  const uint64_t starved = random->Below(ranks);
  uint64_t rank = random->Below(ranks);
  int idle = 0;
  while (!driver.AllArrived()) {
    bool moved = false;
    if (auto result = driver.Step(static_cast<int>(rank), &moved); !result) return result;
    if (pace != Pace::kRuns || !moved) rank = random->Below(ranks);
    if (pace == Pace::kStarve && rank == starved && !random->OneIn(20)) rank = (rank + 1) % ranks;
    idle = moved ? 0 : idle + 1;
    if (idle < 10 * static_cast<int>(ranks)) continue;
    // Some rank may not have been chosen, so now all take turns. In each round of a live system some rank takes a step,
    // and most steps end blocked again.
    bool any = false;
    const uint64_t signals = ensemble->Signals();
    for (int step = 0; step < kIdleRounds * ensemble->ranks() && !any; ++step) {
      if (auto result = driver.Step(step % ensemble->ranks(), &moved); !result) return result;
      any = moved;
    }
    // An operation of many turns takes more rounds than these.
    if (!any && ensemble->Signals() == signals) return testing::AssertionFailure() << "no rank makes progress";
    idle = 0;
  }
  for (const auto& exchange : exchanges) {
    if (auto result = exchange->Undisturbed(); !result) return result;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult DriveInParallel(Ensemble* ensemble, const std::vector<std::unique_ptr<Exchange>>& exchanges) {
  std::vector<testing::AssertionResult> results(static_cast<size_t>(ensemble->ranks()), testing::AssertionSuccess());
  std::atomic<bool> stop{false};
  auto run = [&](int rank) {
    for (const auto& exchange : exchanges) {
      Operation operation(ensemble->channel(rank), exchange->CallOf(rank));
      exchange->Began(rank);
      for (Poll poll = Poll::kAgain; poll != Poll::kDone && !stop;) {
        poll = ensemble->Step(rank, &operation);
        if (poll == Poll::kBlocked) sched_yield();
      }
      if (stop) return;
      auto& result = results[static_cast<size_t>(rank)];
      result = operation.status().ok()
                   ? exchange->Ended(rank)
                   : testing::AssertionFailure() << Describe(exchange->shape()) << ": " << operation.status().message();
      if (!result) stop = true;
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ensemble->ranks(); ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    if (!result) return result;
  }
  for (const auto& exchange : exchanges) {
    if (auto result = exchange->Undisturbed(); !result) return result;
  }
  return testing::AssertionSuccess();
}

std::string Only(plan::Kind kind, std::string_view algorithm) {
  return std::string(plan::KindName(kind)) + ":" + std::string(algorithm);
}

void AnyForm(Shape* shape, harness::Random* random) {
  BlockForm form;
  form.shape.dims = static_cast<int>(random->Below(5));
  const Kind kind = shape->contract.kind;
  const bool splits = kind == Kind::kReduceScatter || kind == Kind::kScatter || kind == Kind::kAllToAll;
  const bool joins = kind == Kind::kAllGather || kind == Kind::kGather || kind == Kind::kAllToAll;
  if (splits || joins) form.shape.dims = std::max(form.shape.dims, 1);
  constexpr std::array<int64_t, 8> kSizes = {1, 1, 2, 2, 3, 4, 7, 16};
  shape->count = 1;
  for (int d = 0; d < form.shape.dims; ++d) {
    form.shape.sizes[d] = random->OneIn(40) ? 0 : random->Pick(kSizes);
    shape->count *= static_cast<uint64_t>(form.shape.sizes[d]);
  }
  const auto any_dim = [&] { return static_cast<int>(random->Below(static_cast<uint64_t>(form.shape.dims))); };
  if (splits) form.split = any_dim();
  if (joins) form.concat = any_dim();
  shape->form = form;
}

void Scatter(Shape* shape, harness::Random* random) {
  shape->in_place = random->Next();
  shape->in_heap = random->Next();
}

std::string AnyAlgorithms(harness::Random* random, bool far) {
  std::string filter;
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<Kind>(k);
    const auto& hierarchical = algo::HierarchicalAlgorithms(kind);
    const bool in_levels = far && !hierarchical.empty() && random->OneIn(3);
    filter += (k == 0 ? "" : ";") + Only(kind, random->Pick(in_levels ? hierarchical : algo::Algorithms(kind)));
  }
  return filter;
}

Shape AnyShape(int ranks, harness::Random* random) {
  Shape shape;
  do {
    shape.contract = plan::Contract{static_cast<Kind>(random->Below(plan::kNumKinds)), ranks, 0};
  } while (shape.contract.kind == Kind::kSendRecv && ranks != 2);
  if (plan::HasRoot(shape.contract.kind))
    shape.contract.root = static_cast<int>(random->Below(static_cast<uint64_t>(ranks)));
  constexpr std::array<uint64_t, 4> kMost = {2, 13, 200, 2500};
  shape.count = shape.contract.kind == Kind::kBarrier ? 0 : random->Below(random->Pick(kMost));
  if (random->OneIn(4)) shape.combine = Combine::kMax;
  if (shape.combine == Combine::kSum && plan::Reduces(shape.contract.kind))
    shape.scaling = random->Pick(std::vector{Scaling::kNone, Scaling::kAverage, Scaling::kPreMultiply});
  Scatter(&shape, random);
  return shape;
}

}  // namespace axccl::exec
