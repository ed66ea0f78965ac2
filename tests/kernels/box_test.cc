// Box copies and reductions on every instruction set, compared with moving one element after the other. Boxes are
// random, of up to six dimensions (some shaped to reach the transposing code), with sizes 0 and 1 among them, memory in
// any order of dimensions with gaps, negative and zero strides, packed operands on either side, any range, any element
// size and alignment, several destinations, in place, cached and streamed. The whole memory around every operand is
// compared, so a byte written into a hole between elements is found, as well as one beside the operand.

#include "kernels/host/box.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

constexpr uint64_t kMaxElements = 20000;
constexpr size_t kMargin = 128;
constexpr size_t kLine = 64;

uint64_t Below(uint64_t limit) { return Random()() % limit; }
bool OneIn(uint64_t n) { return Below(n) == 0; }

struct Box {
  std::vector<int64_t> sizes;
  uint64_t begin = 0;
  uint64_t count = 0;

  BoxRange Range() const { return {static_cast<int>(sizes.size()), sizes.data(), begin, count}; }
};

uint64_t Product(const std::vector<int64_t>& sizes) {
  uint64_t product = 1;
  for (int64_t size : sizes) product *= static_cast<uint64_t>(size);
  return product;
}

void FillRandom(std::vector<uint8_t>* bytes) {
  for (size_t at = 0; at < bytes->size(); at += sizeof(uint64_t)) {
    const uint64_t word = Random()();
    std::memcpy(bytes->data() + at, &word, std::min(sizeof(word), bytes->size() - at));
  }
}

std::vector<int64_t> RandomSizes() {
  if (OneIn(3)) {
    // Long runs, two dimensions of several tiles each, or many runs of a critical size.
    if (OneIn(4)) return {1 + static_cast<int64_t>(Below(4)), 1 + static_cast<int64_t>(Below(5000))};
    if (OneIn(2)) return {1 + static_cast<int64_t>(Below(300)), 1 + static_cast<int64_t>(Below(150))};
    return {1 + static_cast<int64_t>(Below(20)), 1 + static_cast<int64_t>(Below(30)),
            1 + static_cast<int64_t>(Below(40))};
  }
  std::vector<int64_t> sizes(Below(7));
  static constexpr int64_t kUsual[] = {1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 64, 65, 130};
  uint64_t room = kMaxElements;
  for (int64_t& size : sizes) {
    size = OneIn(40) ? 0 : std::min<int64_t>(kUsual[Below(std::size(kUsual))], static_cast<int64_t>(room));
    if (size > 0) room /= static_cast<uint64_t>(size);
  }
  std::shuffle(sizes.begin(), sizes.end(), Random());
  return sizes;
}

Box RandomBox() {
  Box box;
  box.sizes = RandomSizes();
  const uint64_t elements = Product(box.sizes);
  if (OneIn(3)) {
    box.count = elements;
  } else {
    box.begin = Below(elements + 1);
    box.count = Below(elements - box.begin + 1);
  }
  return box;
}

// An operand with memory of its own.
struct Operand {
  std::vector<uint8_t> initial;
  std::vector<uint8_t> memory;
  std::vector<uint8_t> wanted;
  size_t base = 0;  // the position of element 0 in the memory
  bool packed = false;
  bool repeats = false;  // has zero strides
  std::vector<int64_t> strides;

  BoxOperand Get() { return {memory.data() + base, packed ? nullptr : strides.data()}; }

  // The position of element `index` of the box in the memory.
  size_t Place(const Box& box, uint64_t index, size_t element) const {
    if (packed) return base + (index - box.begin) * element;
    int64_t offset = 0;
    for (size_t d = box.sizes.size(); d-- > 0;) {
      offset += static_cast<int64_t>(index % box.sizes[d]) * strides[d];
      index /= box.sizes[d];
    }
    return base + static_cast<size_t>(offset * static_cast<int64_t>(element));
  }
};

void ChooseStrides(const Box& box, bool is_source, Operand* operand) {
  const size_t num = box.sizes.size();
  std::vector<size_t> order(num);  // fastest first
  for (size_t i = 0; i < num; ++i) order[i] = num - 1 - i;
  if (OneIn(2)) std::shuffle(order.begin(), order.end(), Random());
  operand->strides.resize(num);
  const bool gaps = OneIn(2);
  int64_t step = OneIn(4) ? 1 + static_cast<int64_t>(Below(4)) : 1;
  for (size_t d : order) {
    if (gaps && OneIn(2)) step += static_cast<int64_t>(OneIn(3) ? Below(70) : Below(4));
    operand->strides[d] = OneIn(8) ? -step : step;
    step *= std::max<int64_t>(1, box.sizes[d]);
    if (is_source && OneIn(12)) {
      operand->strides[d] = 0;
      operand->repeats = true;
    }
  }
}

Operand RandomOperand(const Box& box, size_t element, size_t alignment, bool is_source) {
  Operand operand;
  operand.packed = OneIn(4);
  int64_t least = 0;
  int64_t most = 0;
  if (operand.packed) {
    most = static_cast<int64_t>(box.count);
  } else {
    ChooseStrides(box, is_source, &operand);
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      const int64_t reach = operand.strides[d] * std::max<int64_t>(0, box.sizes[d] - 1);
      (reach < 0 ? least : most) += reach;
    }
    most += 1;
  }
  const size_t bytes = static_cast<size_t>(most - least) * element;
  // Half of the sources end with their memory, so that the address sanitizer finds reads beyond the end.
  const bool exact = is_source && OneIn(2);
  const size_t before = Below(kLine / alignment) * alignment + (exact ? 0 : kMargin);
  operand.initial.resize(exact ? before + bytes : before + bytes + kMargin + kLine);
  FillRandom(&operand.initial);
  operand.memory = operand.initial;
  const size_t aligned = exact ? 0 : -reinterpret_cast<uintptr_t>(operand.memory.data()) % kLine;
  operand.base = aligned + before + static_cast<size_t>(-least) * element;
  return operand;
}

std::string Describe(const Box& box, const std::vector<Operand>& operands) {
  std::string text = "sizes";
  for (int64_t size : box.sizes) text += " " + std::to_string(size);
  text += ", range " + std::to_string(box.begin) + " + " + std::to_string(box.count);
  for (const Operand& operand : operands) {
    text += operand.packed ? "; packed" : "; strides";
    for (int64_t stride : operand.strides) text += " " + std::to_string(stride);
  }
  return text;
}

void CheckMemory(std::vector<Operand>& operands, int num_dst) {
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& operand = operands[i];
    if (operand.memory == operand.wanted) continue;
    const auto at = std::mismatch(operand.memory.begin(), operand.memory.end(), operand.wanted.begin()).first;
    const int64_t byte = at - operand.memory.begin() - static_cast<int64_t>(operand.base);
    FAIL() << "operand " << i << " of " << num_dst << " destinations and the sources differs at byte " << byte;
  }
}

// Destinations first, then sources. In place, destination 0 is source `in_place`.
struct Case {
  Box box;
  std::vector<Operand> operands;
  int num_dst = 1;
  int in_place = -1;

  Operand& Dst(int d) { return d == 0 && in_place >= 0 ? Src(in_place) : operands[d]; }
  Operand& Src(int k) { return operands[num_dst + k]; }

  void Reset() {
    for (Operand& operand : operands) std::memcpy(operand.memory.data(), operand.initial.data(), operand.memory.size());
  }
  std::vector<BoxOperand> Get(int first, int num) {
    std::vector<BoxOperand> got;
    for (int i = first; i < first + num; ++i) got.push_back((i < num_dst ? Dst(i) : operands[i]).Get());
    return got;
  }
};

Case RandomCase(size_t element, size_t alignment, int num_dst, int num_src) {
  Case c;
  c.box = RandomBox();
  c.num_dst = num_dst;
  for (int i = 0; i < num_dst + num_src; ++i) {
    c.operands.push_back(RandomOperand(c.box, element, alignment, i >= num_dst));
  }
  if (OneIn(4)) {
    const int k = static_cast<int>(Below(num_src));
    if (!c.Src(k).repeats) c.in_place = k;
  }
  return c;
}

// Gives all operands the same memory order, which makes large flat runs.
void MakeAlike(Case* c) {
  for (Operand& operand : c->operands) {
    if (operand.packed || c->operands[0].packed || operand.repeats) continue;
    operand = c->operands[0];
    FillRandom(&operand.initial);
    operand.memory = operand.initial;
  }
}

void CheckCopy(size_t element) {
  const int num_dst = 1 + (OneIn(3) ? static_cast<int>(Below(3)) : 0);
  Case c = RandomCase(element, 1, num_dst, 1);
  if (OneIn(6)) MakeAlike(&c);
  for (Operand& operand : c.operands) operand.wanted = operand.initial;
  for (int d = 0; d < num_dst; ++d) {
    for (uint64_t i = c.box.begin; i < c.box.begin + c.box.count; ++i) {
      std::memcpy(c.Dst(d).wanted.data() + c.Dst(d).Place(c.box, i, element),
                  c.Src(0).initial.data() + c.Src(0).Place(c.box, i, element), element);
    }
  }
  for (int isa = 0; isa < NumIsas(); ++isa) {
    for (bool non_temporal : {false, true}) {
      c.Reset();
      const std::vector<BoxOperand> dst = c.Get(0, num_dst);
      CopyBoxWithIsa(isa, c.box.Range(), dst.data(), num_dst, c.Src(0).Get(), element, non_temporal);
      SCOPED_TRACE(testing::Message() << IsaName(isa) << ", " << element << " byte elements, in place " << c.in_place
                                      << ", streamed " << non_temporal << ": " << Describe(c.box, c.operands));
      ASSERT_NO_FATAL_FAILURE(CheckMemory(c.operands, num_dst));
    }
  }
}

class BoxCopyTest : public testing::TestWithParam<int> {};

TEST_P(BoxCopyTest, Random) {
  for (int round = 0; round < Rounds(300) && !HasFatalFailure(); ++round) CheckCopy(static_cast<size_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Movers, BoxCopyTest, testing::Range(1, 17));

// Copies to the blocks of one destination, side by side in any order; some blocks are omitted. Sources have any memory
// order or, in most cases, are dense.
struct Gathering {
  Box block;
  int num_blocks;
  std::vector<int> places;  // of the copies, in blocks
  Operand destination;      // its strides are those of the whole tensor
  std::vector<Operand> sources;
  std::vector<BoxOperand> dst, src;
};

void MakeGathering(size_t element, Gathering* g) {
  static constexpr int64_t kRows[] = {1, 2, 5, 33, 200, 1000};
  static constexpr int64_t kCols[] = {1, 1, 2, 3, 4, 7, 16, 40};
  g->block.sizes = {kRows[Below(std::size(kRows))], kCols[Below(std::size(kCols))]};
  if (OneIn(8)) g->block.sizes = {1 + static_cast<int64_t>(Below(12)), 600};
  if (OneIn(4)) g->block.sizes.insert(g->block.sizes.begin() + static_cast<int>(Below(2)), 1 + Below(3));
  const size_t concat = OneIn(4) ? Below(g->block.sizes.size()) : g->block.sizes.size() - 1;
  const uint64_t elements = Product(g->block.sizes);
  g->block.begin = OneIn(2) ? 0 : Below(elements);
  g->block.count = OneIn(2) ? elements - g->block.begin : Below(elements - g->block.begin + 1);
  g->num_blocks = OneIn(2) ? 2 : 1 + static_cast<int>(Below(6));
  for (int i = 0; i < g->num_blocks; ++i) g->places.push_back(i);
  std::shuffle(g->places.begin(), g->places.end(), Random());
  if (g->num_blocks > 1 && OneIn(5)) g->places.pop_back();
  Box whole = g->block;
  whole.sizes[concat] *= g->num_blocks;
  Operand& to = g->destination;
  to.strides.assign(whole.sizes.size(), 1);
  for (size_t d = whole.sizes.size() - 1; d > 0; --d) to.strides[d - 1] = to.strides[d] * whole.sizes[d];
  to.initial.resize(Product(whole.sizes) * element + 2 * kMargin + kLine);
  FillRandom(&to.initial);
  to.memory = to.wanted = to.initial;
  to.base = kMargin + -reinterpret_cast<uintptr_t>(to.memory.data()) % kLine + (OneIn(3) ? Below(kLine) : 0);
  const size_t base = to.base;
  for (int place : g->places) {
    const int64_t first = place * g->block.sizes[concat] * to.strides[concat];
    g->dst.push_back({to.memory.data() + base + static_cast<size_t>(first) * element, to.strides.data()});
    do {
      g->sources.push_back(RandomOperand(g->block, element, 1, true));
      if (!g->sources.back().packed) break;
      g->sources.pop_back();
    } while (true);
    Operand& from = g->sources.back();
    if (from.strides.size() > 0 && !OneIn(3)) {
      from.strides.back() = 1;
      for (size_t d = from.strides.size() - 1; d > 0; --d) from.strides[d - 1] = from.strides[d] * g->block.sizes[d];
      from.initial.resize(elements * element + 2 * kMargin);
      FillRandom(&from.initial);
      from.memory = from.initial;
      from.base = Below(kMargin);
    }
    for (uint64_t i = g->block.begin; i < g->block.begin + g->block.count; ++i) {
      to.base = base + static_cast<size_t>(first) * element;
      const uint8_t* const value = from.initial.data() + from.Place(g->block, i, element);
      std::memcpy(to.wanted.data() + to.Place(g->block, i, element), value, element);
    }
    to.base = base;
  }
  for (Operand& from : g->sources) g->src.push_back(from.Get());
}

TEST_P(BoxCopyTest, SideBySide) {
  const auto element = static_cast<size_t>(GetParam());
  for (int round = 0; round < Rounds(200); ++round) {
    Gathering g;
    MakeGathering(element, &g);
    for (int isa = 0; isa < NumIsas(); ++isa) {
      for (bool non_temporal : {false, true}) {
        std::memcpy(g.destination.memory.data(), g.destination.initial.data(), g.destination.memory.size());
        CopyBoxesWithIsa(isa, g.block.Range(), g.dst.data(), g.src.data(), static_cast<int>(g.dst.size()), element,
                         non_temporal);
        ASSERT_EQ(g.destination.memory, g.destination.wanted)
            << IsaName(isa) << ", " << element << " byte elements, " << g.dst.size() << " of " << g.num_blocks
            << " blocks, streamed " << non_temporal << ": " << Describe(g.block, g.sources);
      }
    }
  }
}

struct Reduction {
  DataType type;
  Combine combine;
  std::vector<Factor> pre;
  uint64_t post_divisor = 0;
  bool round_factored = false;
  std::vector<Factor> post = {};  // one or none
};

// Reduces with the flat mover.
void ReduceFlat(const Reduction& reduction, const std::vector<const void*>& src, uint64_t count, void* dst) {
  ReduceRequest request = {&dst, 1, src.data(), static_cast<int>(src.size()), count, reduction.type, reduction.combine};
  request.pre = reduction.pre.empty() ? nullptr : reduction.pre.data();
  request.round_factored = reduction.round_factored;
  request.post_divisor = reduction.post_divisor;
  request.post = reduction.post.empty() ? nullptr : reduction.post.data();
  Reduce(request);
}

// Copies the elements one by one into flat arrays, reduces them with the flat mover, and copies the results back.
void ExpectReduced(const Reduction& reduction, Case* c, int num_src) {
  const size_t element = ElementSize(reduction.type);
  std::vector<std::vector<uint8_t>> flat(num_src, std::vector<uint8_t>(c->box.count * element));
  std::vector<const void*> src;
  for (int k = 0; k < num_src; ++k) {
    for (uint64_t i = 0; i < c->box.count; ++i) {
      std::memcpy(flat[k].data() + i * element,
                  c->Src(k).initial.data() + c->Src(k).Place(c->box, c->box.begin + i, element), element);
    }
    src.push_back(flat[k].data());
  }
  std::vector<uint8_t> result(c->box.count * element);
  ReduceFlat(reduction, src, c->box.count, result.data());
  for (Operand& operand : c->operands) operand.wanted = operand.initial;
  for (int d = 0; d < c->num_dst; ++d) {
    Operand& to = c->Dst(d);
    for (uint64_t i = 0; i < c->box.count; ++i) {
      std::memcpy(to.wanted.data() + to.Place(c->box, c->box.begin + i, element), result.data() + i * element, element);
    }
  }
}

void CheckReduce(const Reduction& reduction, int num_dst, int num_src) {
  const size_t element = ElementSize(reduction.type);
  Case c = RandomCase(element, element, num_dst, num_src);
  if (OneIn(4)) MakeAlike(&c);
  for (int k = 0; k < num_src; ++k) {
    Operand& operand = c.Src(k);
    const DataType scalar = ScalarType(reduction.type);
    const size_t first = operand.base % element;
    for (size_t i = 0; i < (operand.initial.size() - first) / ElementSize(scalar); ++i) {
      StoreElement(operand.initial.data() + first, i, ElementSize(scalar), RandomElement(scalar, Random()));
    }
  }
  ExpectReduced(reduction, &c, num_src);
  for (int isa = 0; isa < NumIsas(); ++isa) {
    for (bool non_temporal : {false, true}) {
      c.Reset();
      const std::vector<BoxOperand> dst = c.Get(0, num_dst);
      const std::vector<BoxOperand> src = c.Get(num_dst, num_src);
      BoxReduceRequest request = {c.box.Range(), dst.data(),     num_dst,          src.data(),
                                  num_src,       reduction.type, reduction.combine};
      request.pre = reduction.pre.empty() ? nullptr : reduction.pre.data();
      request.post_divisor = reduction.post_divisor;
      request.round_factored = reduction.round_factored;
      request.post = reduction.post.empty() ? nullptr : reduction.post.data();
      request.non_temporal = non_temporal;
      ReduceBoxWithIsa(isa, request);
      SCOPED_TRACE(testing::Message() << IsaName(isa) << ", " << DataTypeName(reduction.type) << ", in place "
                                      << c.in_place << ", streamed " << non_temporal << ": "
                                      << Describe(c.box, c.operands));
      ASSERT_NO_FATAL_FAILURE(CheckMemory(c.operands, num_dst));
    }
  }
}

Reduction RandomReduction(DataType type, Combine combine, int num_src) {
  Reduction reduction = {type, combine, {}};
  if (type == DataType::kBool || combine != Combine::kSum) return reduction;
  const auto factor_of = [type](int k) {
    Factor factor;
    if (ScalarType(type) == DataType::kFloat64) {
      factor.f64 = 0.75 + k;
    } else if (IsFloat(ScalarType(type))) {
      factor.f32 = 0.75f + static_cast<float>(k);
    } else {
      factor.i64 = 3 - k;
    }
    return factor;
  };
  if (OneIn(4)) {
    for (int k = 0; k < num_src; ++k) reduction.pre.push_back(factor_of(k));
    reduction.round_factored = OneIn(2);
  }
  if (OneIn(4) && IsFloat(ScalarType(type))) {
    reduction.post.push_back(factor_of(4));
  } else if (OneIn(4) && !IsFloat(ScalarType(type))) {
    reduction.post_divisor = 1 + Below(5);
  }
  return reduction;
}

class BoxReduceTest : public testing::TestWithParam<Pair> {};

TEST_P(BoxReduceTest, Random) {
  for (int round = 0; round < Rounds(60) && !HasFatalFailure(); ++round) {
    const int num_src = 1 + static_cast<int>(Below(4));
    const int num_dst = 1 + (OneIn(3) ? static_cast<int>(Below(3)) : 0);
    CheckReduce(RandomReduction(GetParam().type, GetParam().combine, num_src), num_dst, num_src);
  }
}

INSTANTIATE_TEST_SUITE_P(Movers, BoxReduceTest, testing::ValuesIn(AllPairs()),
                         [](const auto& info) { return PairName(info.param); });

// Reductions of the blocks of several tensors, side by side in any order, each to its own operand or, in place, to one
// of its sources.
struct BlockReductions {
  Box block;
  int num_src = 0;
  std::vector<Operand> tensors;  // the sources' memory; strides are those of the whole tensor
  std::vector<Operand> outputs;
  std::vector<BoxOperand> dst, src;
};

void MakeBlockReductions(const Reduction& reduction, int num, int num_src, BlockReductions* b) {
  const size_t element = ElementSize(reduction.type);
  b->block.sizes = {1 + static_cast<int64_t>(Below(9)),
                    1 + static_cast<int64_t>(OneIn(3) ? Below(400) : 1024 / element + Below(5000 / element))};
  if (OneIn(3)) b->block.sizes.insert(b->block.sizes.begin(), 1 + Below(3));
  const uint64_t elements = Product(b->block.sizes);
  b->block.begin = OneIn(2) ? 0 : Below(elements);
  b->block.count = OneIn(2) ? elements - b->block.begin : Below(elements - b->block.begin + 1);
  b->num_src = num_src;
  Box whole = b->block;
  const size_t split = OneIn(4) ? Below(whole.sizes.size()) : whole.sizes.size() - 1;
  whole.sizes[split] *= num;
  for (int k = 0; k < num_src; ++k) {
    Operand& tensor = b->tensors.emplace_back();
    tensor.strides.assign(whole.sizes.size(), 1);
    for (size_t d = whole.sizes.size() - 1; d > 0; --d)
      tensor.strides[d - 1] = tensor.strides[d] * whole.sizes[d] + (OneIn(4) ? 3 : 0);
    const size_t bytes = static_cast<size_t>(tensor.strides[0] * whole.sizes[0]) * element;
    tensor.base = kMargin;
    tensor.initial.resize(bytes + 2 * kMargin);
    for (size_t i = 0; i < bytes / ElementSize(ScalarType(reduction.type)); ++i) {
      const DataType scalar = ScalarType(reduction.type);
      StoreElement(tensor.initial.data() + kMargin, i, ElementSize(scalar), RandomElement(scalar, Random()));
    }
    tensor.memory = tensor.wanted = tensor.initial;
  }
  std::vector<int> places(static_cast<size_t>(num));
  for (int i = 0; i < num; ++i) places[i] = i;
  std::shuffle(places.begin(), places.end(), Random());
  for (int i = 0; i < num; ++i) {
    do b->outputs.push_back(RandomOperand(b->block, element, element, false));
    while (b->outputs.back().packed && (b->outputs.pop_back(), true));
    Operand& output = b->outputs.back();
    if (!OneIn(3)) {
      output.strides.back() = 1;
      for (size_t d = output.strides.size() - 1; d > 0; --d)
        output.strides[d - 1] = output.strides[d] * b->block.sizes[d];
      output.initial.resize(elements * element + 2 * kMargin + kLine);
      FillRandom(&output.initial);
      output.memory = output.initial;
      output.base = kMargin + -reinterpret_cast<uintptr_t>(output.memory.data()) % kLine + (OneIn(3) ? element : 0);
    }
    output.wanted = output.initial;
  }
  for (int i = 0; i < num; ++i) {
    const int in_place = OneIn(4) ? static_cast<int>(Below(num_src)) : -1;
    std::vector<size_t> first;  // the position of the block's first element
    for (Operand& tensor : b->tensors) {
      const int64_t offset = places[i] * b->block.sizes[split] * tensor.strides[split];
      first.push_back(kMargin + static_cast<size_t>(offset) * element);
      b->src.push_back({tensor.memory.data() + first.back(), tensor.strides.data()});
    }
    b->dst.push_back(in_place < 0 ? b->outputs[i].Get() : b->src[b->src.size() - num_src + in_place]);
    // Reduces the elements of the block one by one with the flat mover.
    for (uint64_t e = b->block.begin; e < b->block.begin + b->block.count; ++e) {
      std::vector<const void*> src;
      for (int k = 0; k < num_src; ++k) {
        Operand& tensor = b->tensors[k];
        tensor.base = first[k];
        src.push_back(tensor.initial.data() + tensor.Place(b->block, e, element));
      }
      Operand& to = in_place < 0 ? b->outputs[i] : b->tensors[in_place];
      ReduceFlat(reduction, src, 1, to.wanted.data() + to.Place(b->block, e, element));
    }
  }
}

TEST_P(BoxReduceTest, SideBySide) {
  for (int round = 0; round < Rounds(8); ++round) {
    const int num = 1 + static_cast<int>(Below(4)), num_src = 1 + static_cast<int>(Below(4));
    const Reduction reduction = RandomReduction(GetParam().type, GetParam().combine, num_src);
    BlockReductions b;
    MakeBlockReductions(reduction, num, num_src, &b);
    for (int isa = 0; isa < NumIsas(); ++isa) {
      for (bool non_temporal : {false, true}) {
        for (auto* operands : {&b.tensors, &b.outputs}) {
          for (Operand& o : *operands) std::memcpy(o.memory.data(), o.initial.data(), o.memory.size());
        }
        BoxReduceRequest requests = {b.block.Range(), b.dst.data(),     num, b.src.data(), num_src,
                                     reduction.type,  reduction.combine};
        requests.pre = reduction.pre.empty() ? nullptr : reduction.pre.data();
        requests.round_factored = reduction.round_factored;
        requests.post_divisor = reduction.post_divisor;
        requests.post = reduction.post.empty() ? nullptr : reduction.post.data();
        requests.non_temporal = non_temporal;
        ReduceBoxesWithIsa(isa, requests);
        SCOPED_TRACE(testing::Message() << IsaName(isa) << ", " << num << " blocks of " << num_src
                                        << " sources, streamed " << non_temporal << ": "
                                        << Describe(b.block, b.outputs));
        ASSERT_NO_FATAL_FAILURE(CheckMemory(b.tensors, 0));
        ASSERT_NO_FATAL_FAILURE(CheckMemory(b.outputs, num));
      }
    }
  }
}

TEST(BoxTest, ManySources) {
  for (int num_src : {9, 40, 300, 500}) {
    CheckReduce({DataType::kBfloat16, Combine::kSum, {}, 0}, 2, num_src);
    CheckReduce({DataType::kInt64, Combine::kSum, {}, 0}, 1, num_src);
  }
}

// A thread of the application with little stack is enough for any number of operands.
TEST(BoxTest, ManySourcesTakeNoMoreStack) {
  constexpr int64_t kSources = 4096, kSize = 3;
  const int64_t sizes[] = {kSize, kSize}, across[] = {1, kSize}, along[] = {kSize, 1};
  std::vector<int64_t> matrix(kSize * kSize, 2), sum(matrix.size(), 0);
  std::vector<BoxOperand> sources(kSources, BoxOperand{matrix.data(), across});
  const BoxOperand to{sum.data(), along};
  BoxReduceRequest request{
      {2, sizes, 0, kSize * kSize}, &to, 1, sources.data(), kSources, DataType::kInt64, Combine::kSum};
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{160} << 10), 0);
  pthread_t thread;
  const auto reduce = [](void* what) -> void* { return ReduceBox(*static_cast<BoxReduceRequest*>(what)), nullptr; };
  ASSERT_EQ(pthread_create(&thread, &attributes, reduce, &request), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
  for (const int64_t value : sum) EXPECT_EQ(value, 2 * kSources);
}

// A box has more elements than 64 bits can count, of which a few are moved: an application may broadcast so far.
TEST(BoxTest, SizesThatOverflow) {
  const int64_t sizes[] = {int64_t{1} << 40, int64_t{1} << 40, 3};
  const int64_t strides[] = {0, 0, 1};
  uint8_t value[] = {1, 2, 3};
  const BoxOperand src = {value, strides};
  for (uint64_t begin : {uint64_t{2}, (uint64_t{1} << 41) * 3 - 5, ~uint64_t{0} / 3 * 3 - 300}) {
    uint8_t out[300];
    const BoxOperand dst = {out, nullptr};
    CopyBox({3, sizes, begin, sizeof(out)}, &dst, 1, src, 1, false);
    for (size_t i = 0; i < sizeof(out); ++i) ASSERT_EQ(out[i], value[(begin + i) % 3]) << "element " << begin + i;
  }
}

TEST(BoxTest, NothingToMove) {
  const int64_t sizes[] = {3, 0};
  const BoxOperand none = {nullptr, nullptr};
  CopyBox({2, sizes, 0, 0}, &none, 1, none, 4, true);
  ReduceBox({{2, sizes, 0, 0}, &none, 1, &none, 1, DataType::kFloat32, Combine::kSum});
}

}  // namespace
}  // namespace axccl::kernels
