#include "tests/pipelines/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/harness/element.h"
#include "tests/harness/run_ranks.h"

namespace axccl::tests {

using harness::Random;
using harness::Scramble;

namespace {

constexpr axcclChunkOrder_t kDefault = axcclDefaultOrder, kFirst = axcclOwnFirst, kLast = axcclOwnLast,
                            kByRank = axcclByRank;
constexpr axcclPipelineKind_t kGather = axcclPipelineAllGather, kReduce = axcclPipelineAllReduce,
                              kScatter = axcclPipelineReduceScatter;
// Integers of at most this magnitude are bfloat16.
constexpr int64_t kExact = 256;

bool Has(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

Span Intersect(const Span& x, const Span& y) { return {std::max(x.begin, y.begin), std::min(x.end, y.end)}; }

// Slice `slice` of `slices`, whose sizes differ by one at most.
Span SliceOf(const Span& span, int64_t slice, int64_t slices) {
  return {span.begin + span.size() * slice / slices, span.begin + span.size() * (slice + 1) / slices};
}

bool IsSharded(const Shape& shape, char label) {
  for (const Operand* operand : {&shape.a, &shape.b, &shape.c}) {
    if (Has(operand->sharded, label)) return true;
  }
  return shape.HasBlocks() && label == shape.dim;
}

}  // namespace

// Labels of the first eleven: s slices' rows, d and f ranks, m and n rows and columns of the product, k the sum, e and
// l columns. Of linear layers: t the sequence, h and o the features that come in and go out; a, b and c are X, the
// weights and Y, or two of them and the gradient of one.
const std::vector<Shape>& AllShapes() {
  constexpr Flow kCollect = Flow::kCollectFirst, kMultiply = Flow::kMultiplyFirst;
  static const std::vector<Shape> shapes = {
      {"1 all_gather", kCollect, kGather, {"sd", "d"}, {}, {"sd"}, 'd', "s", {kDefault}, false},
      {"2 all_reduce", kMultiply, kReduce, {"sde", "d"}, {}, {"se"}, 0, "s", {kDefault}, false},
      {"3 reduce_scatter", kMultiply, kScatter, {"sdfe", "d"}, {}, {"sfe"}, 'f', "s", {kDefault, kFirst}, false},
      {"4 gather before matmul", kCollect, kGather, {"sdmk", "d"}, {"kn"}, {"sdmn"}, 'd', "s", {kDefault}, false},
      {"4 gather after matmul", kMultiply, kGather, {"sdmk", "d"}, {"kn"}, {"sdmn", "d"}, 'd', "s", {kDefault}, true},
      {"5 matmul, all_reduce", kMultiply, kReduce, {"smk", "k"}, {"kn", "k"}, {"smn"}, 0, "s", {kDefault}, true},
      {"6 matmul, reduce_scatter",
       kMultiply,
       kScatter,
       {"sdmk", "k"},
       {"kn", "k"},
       {"sdmn"},
       'd',
       "s",
       {kDefault},
       true},
      {"7 large all_gather", kCollect, kGather, {"dl", "d"}, {}, {"dl"}, 'd', "l", {kFirst, kLast, kByRank}, false},
      {"8 all_gather, matmul",
       kCollect,
       kGather,
       {"dmk", "d"},
       {"kn"},
       {"dmn"},
       'd',
       "m",
       {kFirst, kLast, kByRank},
       false},
      {"9 chunk after chunk", kCollect, kGather, {"dmk", "d"}, {"kn"}, {"dmn"}, 'd', "m", {kByRank}, true, true},
      {"10 reduce_scatter p2p", kMultiply, kScatter, {"dmk", "k"}, {"kn", "k"}, {"dmn"}, 'd', "m", {kLast}, true},
      {"11 rooted reduces", kMultiply, kScatter, {"dmk", "k"}, {"kn", "k"}, {"dmn"}, 'd', "m", {kByRank}, true},
      {"12 column forward", kCollect, kGather, {"th", "t"}, {"oh", "o"}, {"to", "o"}, 't', "th", {kDefault}, false},
      {"13 column weights", kCollect, kGather, {"th", "t"}, {"to", "o"}, {"oh", "o"}, 't', "th", {kDefault}, false},
      {"14 column inputs", kMultiply, kScatter, {"to", "o"}, {"oh", "o"}, {"th"}, 't', "th", {kDefault}, true},
      {"15 row forward", kMultiply, kScatter, {"th", "h"}, {"oh", "h"}, {"to"}, 't', "to", {kDefault}, true},
      {"16 row weights", kCollect, kGather, {"to", "t"}, {"th", "h"}, {"oh", "h"}, 't', "to", {kDefault}, false},
      {"17 row inputs", kCollect, kGather, {"to", "t"}, {"oh", "h"}, {"th", "h"}, 't', "to", {kDefault}, false},
  };
  return shapes;
}

ShapeCase MakeCase(const Shape& shape, int ranks, int64_t slices, ncclDataType_t type, axcclChunkOrder_t order,
                   uint64_t seed) {
  Random random(seed);
  ShapeCase c;
  c.shape = &shape, c.ranks = ranks, c.slices = slices, c.type = type, c.order = order, c.seed = seed;
  c.slice_label = shape.slice_labels[random.Below(std::strlen(shape.slice_labels))];
  c.a = shape.a.labels, c.b = shape.b.labels, c.c = shape.c.labels;
  // Two dimensions may be transposed, so that blocks follow each other along dimension 1.
  for (std::string* labels : {&c.a, &c.b, &c.c}) {
    if (labels->size() == 2 && random.OneIn(2)) std::swap((*labels)[0], (*labels)[1]);
  }
  for (char label = 'a'; label <= 'z'; ++label) {
    int64_t& extent = c.extents[label] = 1 + static_cast<int64_t>(random.Below(3));
    if (label == c.slice_label) extent = slices + static_cast<int64_t>(random.Below(static_cast<uint64_t>(slices) + 1));
    if (label == 'e') extent = 8;
    if (label == 'l') extent += harness::FullTests() ? 5000 : 2000;
    if (label == 'd' || label == 'f') {
      extent = ranks;
    } else if (IsSharded(shape, label)) {
      extent *= ranks;
    }
  }
  int64_t terms = 1;
  for (const char label : c.SummedLabels()) terms *= c.extents[label];
  c.largest = terms * 4 <= kExact ? 2 : 1;
  c.follows = random.OneIn(2) && !(shape.kind == kScatter && order == kFirst);
  c.memory = random.OneIn(3) ? harness::Memory::kMalloc : harness::Memory::kMemAlloc;
  return c;
}

std::string ShapeCase::Text() const {
  constexpr const char* kOrders[] = {"default order", "own first", "own last", "by rank"};
  std::string text = std::string(shape->name) + " " + a + " x " + b + " -> " + c + " ranks " + std::to_string(ranks);
  for (char label = 'a'; label <= 'z'; ++label) {
    if (Has(AllLabels(), label)) text += std::string(" ") + label + "=" + std::to_string(extents[label]);
  }
  return text + ", " + std::to_string(slices) + " slices along " + slice_label + ", " + kOrders[order] + ", " +
         harness::TypeName(type) + ", " + harness::MemoryName(memory) + ", seed " + std::to_string(seed);
}

std::string ShapeCase::SummedLabels() const {
  std::string summed;
  for (const char label : a + b) {
    if (!Has(c + summed, label)) summed += label;
  }
  return summed;
}

Box ShapeCase::Whole() const {
  Box box;
  for (char label = 'a'; label <= 'z'; ++label) box[label] = {0, extents[label]};
  return box;
}

Box ShapeCase::Part(const char* sharded, int rank) const {
  Box box = Whole();
  for (const char* label = sharded; *label != 0; ++label) box[*label] = SliceOf(box[*label], rank, ranks);
  return box;
}

Box ShapeCase::CollectedBox(axcclSide_t side, int rank) const {
  const bool part = shape->kind == (side == axcclIn ? kGather : kScatter);
  const char dim[2] = {shape->dim, 0};
  return Part(part ? dim : "", rank);
}

Box ShapeCase::ChunkBox(axcclSide_t side, int rank, int64_t chunk) const {
  Box box = CollectedBox(side, rank);
  if (shape->kind == (side == axcclIn ? kScatter : kGather))
    box[shape->dim] = SliceOf(box[shape->dim], chunk / slices, ranks);
  box[slice_label] = SliceOf(box[slice_label], chunk % slices, slices);
  return box;
}

// ---- the truth ----

Truth::Truth(const ShapeCase& c, int start) : c_(c), summed_(c.SummedLabels()) {
  const uint64_t salt = Scramble(c.seed, static_cast<uint64_t>(start));
  a_ = Draw(c.a, Scramble(salt, 1));
  if (!c.b.empty()) b_ = Draw(c.b, Scramble(salt, 2));
  const Box whole = c.Whole();
  Point point;
  ForEachPoint(c.c, whole, &point, [&] { product_.push_back(Sum(point, whole)); });
}

int64_t Truth::Sum(Point point, const Box& box) const {
  int64_t sum = 0;
  ForEachPoint(summed_, box, &point, [&] { sum += a(point) * b(point); });
  return sum;
}

std::vector<int64_t> Truth::Draw(const std::string& labels, uint64_t salt) const {
  std::vector<int64_t> values;
  Point point;
  ForEachPoint(labels, c_.Whole(), &point, [&] {
    const auto choices = static_cast<uint64_t>(2 * c_.largest + 1);
    values.push_back(static_cast<int64_t>(Scramble(salt, values.size()) % choices) - c_.largest);
  });
  return values;
}

size_t Truth::IndexOf(const std::string& labels, const Point& point) const {
  int64_t index = 0;
  for (const char label : labels) index = index * c_.extents[label] + point[label];
  return static_cast<size_t>(index);
}

// ---- memory ----

Held::Held(const std::string& labels, const Box& box, ncclDataType_t type, harness::Memory memory, Random* random)
    : labels_(labels), box_(box), type_(type) {
  Sizes sizes;
  for (const char label : labels) sizes.push_back(box[label].size());
  const Placement placement = AnyPlacement(sizes, false, Random(random->Next()));
  const auto bytes = static_cast<size_t>(placement.before + placement.after) * harness::TypeBytes(type);
  arena_ = harness::GuardedArena::Create(memory, harness::GuardedArena::Need(bytes) + 4096);
  tensor_ = std::make_unique<Tensor>(placement, type, arena_.get(), random);
}

char* Held::AddressOf(const Point& point) const {
  int64_t at = 0;
  for (size_t d = 0; d < labels_.size(); ++d)
    at += (point[labels_[d]] - box_[labels_[d]].begin) * tensor_->placement.strides[d];
  return tensor_->data + at * static_cast<int64_t>(tensor_->size);
}

int64_t Held::Get(const Point& point) const {
  const char* const p = AddressOf(point);
  if (type_ == ncclBfloat16) {
    uint16_t bits = 0;
    std::memcpy(&bits, p, sizeof(bits));
    return static_cast<int64_t>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  }
  uint32_t bits = 0;
  std::memcpy(&bits, p, sizeof(bits));
  return type_ == ncclInt32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(std::bit_cast<float>(bits));
}

void Held::Set(const Point& point, int64_t value) {
  const Element element = EncodeInteger(type_, value);
  std::memcpy(AddressOf(point), element.data(), tensor_->size);
  EXPECT_LE(std::abs(value), kExact) << "bfloat16 does not hold it";
}

bool Held::Has(const Point& point, int64_t value) const {
  return std::memcmp(AddressOf(point), EncodeInteger(type_, value).data(), tensor_->size) == 0;
}

void Held::Poison() {
  Point point;
  ForEachPoint(labels_, box_, &point, [&] { std::memset(AddressOf(point), 0xd1, tensor_->size); });
}

std::string Held::WrongText(const Point& point, int64_t expected) const {
  std::string text = "element";
  for (const char label : labels_) text += std::string(" ") + label + "=" + std::to_string(point[label]);
  return text + " is " + harness::ElementText(type_, harness::LoadElement(AddressOf(point), type_, 0)) + ", expected " +
         std::to_string(expected);
}

std::string Held::CheckOthers() const {
  std::vector<char> bytes = tensor_->expected;
  Point point;
  ForEachPoint(labels_, box_, &point, [&] {
    const char* const p = AddressOf(point);
    std::memcpy(bytes.data() + (p - tensor_->begin), p, tensor_->size);
  });
  if (std::memcmp(bytes.data(), tensor_->begin, bytes.size()) != 0) return "bytes between elements have changed";
  return arena_->CheckSentinels();
}

void MultiplyAdd(const ShapeCase& shape, const Held& a, const Held* b, const Box& box, Held* c) {
  Box region = box;
  for (const Held* held : {&a, b, static_cast<const Held*>(c)}) {
    if (held == nullptr) continue;
    for (const char label : held->labels()) region[label] = Intersect(region[label], held->box()[label]);
  }
  const std::string summed = shape.SummedLabels();
  Point point;
  ForEachPoint(c->labels(), region, &point, [&] {
    int64_t sum = c->Get(point);
    ForEachPoint(summed, region, &point, [&] { sum += a.Get(point) * (b == nullptr ? 1 : b->Get(point)); });
    c->Set(point, sum);
  });
}

}  // namespace axccl::tests
