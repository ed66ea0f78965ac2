#include "tests/collectives/view_cases.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace axccl::tests {
namespace {

using harness::Random;
using harness::Scramble;

constexpr const char* kOpNames[kNumViewOps] = {"AllGather", "ReduceScatter", "AllReduce", "AllToAll",
                                               "Gather",    "Scatter",       "Broadcast", "Reduce"};

bool Splits(ViewOp op) { return op == ViewOp::kReduceScatter || op == ViewOp::kScatter || op == ViewOp::kAllToAll; }
bool Joins(ViewOp op) { return op == ViewOp::kAllGather || op == ViewOp::kGather || op == ViewOp::kAllToAll; }

Sizes Times(Sizes sizes, int dim, int n) {
  if (dim >= 0) sizes[static_cast<size_t>(dim)] *= n;
  return sizes;
}

}  // namespace

Placement AnyPlacement(const Sizes& sizes, bool may_repeat, Random random) {
  Placement p;
  p.sizes = sizes;
  p.strides.resize(sizes.size());
  std::vector<size_t> order(sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);
  p.dense = random.OneIn(3);
  for (size_t i = 1; i < order.size() && !p.dense; ++i) std::swap(order[i], order[random.Below(i + 1)]);
  int64_t step = !p.dense && random.OneIn(5) ? 3 : 1;
  for (const size_t d : order) {
    const bool repeats = may_repeat && !p.dense && random.OneIn(6);
    const int64_t reach = repeats ? 0 : std::max<int64_t>(sizes[d] - 1, 0) * step;
    const bool backwards = !p.dense && random.OneIn(3);
    p.strides[d] = repeats ? 0 : backwards ? -step : step;
    (backwards ? p.before : p.after) += reach;
    if (repeats) continue;
    step += reach;
    if (!p.dense && random.OneIn(3)) step += static_cast<int64_t>(random.Below(9));
  }
  p.after += 1;
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) p.before = p.after = 0;
  return p;
}

namespace {

// The operand of a reduction: an integer, real unless the type is complex.
struct Number {
  int64_t re = 0, im = 0;
};

// A rank's contribution to a reduction.
Number SmallNumber(const ViewCase& c, uint64_t hash) {
  const bool tiny = harness::TypeBytes(c.type) == 1 && harness::IsFloatType(c.type);
  const bool is_complex = harness::IsComplexType(c.type);
  const bool is_signed = is_complex || harness::IsFloatType(c.type) || harness::IsSignedInteger(c.type);
  if (c.type == axcclBool) return {static_cast<int64_t>(hash % 3 != 0), 0};
  // No product of these has a part that is 0, because its sign would depend on the order.
  if (c.fold == ncclProd && is_complex) return hash % 2 == 0 ? Number{2, 1} : Number{-2, -1};
  if (c.fold == ncclProd) {
    const int64_t power = 1 << hash % 2;
    return {is_signed && (hash >> 8) % 2 != 0 ? -power : power, 0};
  }
  // An average may be a sum of n-ths, and a seventh of 21 is not exactly 3.
  const int64_t most = tiny ? 1 : c.fold == ncclAvg ? 2 : 3;
  const auto range = static_cast<uint64_t>(2 * most + 1);
  const int64_t times = c.fold == ncclAvg && (is_complex || harness::IsFloatType(c.type)) ? c.nranks : 1;
  const int64_t least = is_signed ? most : 0;
  return {(static_cast<int64_t>(hash % range) - least) * times,
          is_complex ? (static_cast<int64_t>((hash >> 32) % range) - least) * times : 0};
}

void Append(ncclDataType_t type, int64_t value, unsigned char* to) {
  const uint64_t bits = harness::IsFloatType(type) ? harness::EncodeFloat(type, static_cast<double>(value))
                                                   : static_cast<uint64_t>(value);
  std::memcpy(to, &bits, harness::TypeBytes(type));
}

Element Encode(ncclDataType_t type, const Number& value) {
  Element element = {};
  if (harness::IsComplexType(type)) {
    const ncclDataType_t part = type == axcclComplex64 ? ncclFloat32 : ncclFloat64;
    Append(part, value.re, element.data());
    Append(part, value.im, element.data() + harness::TypeBytes(part));
  } else {
    Append(type, value.re, element.data());
  }
  return element;
}

// All operators that the type has.
std::vector<ncclRedOp_t> OperatorsOf(ncclDataType_t type) {
  if (harness::IsComplexType(type)) return {ncclSum, ncclProd, ncclAvg};
  if (harness::IsFloatType(type)) return {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  std::vector<ncclRedOp_t> all = {ncclSum, ncclProd, ncclMax,         ncclMin,       axcclAnd,
                                  axcclOr, axcclXor, axcclLogicalAnd, axcclLogicalOr};
  if (type != axcclBool) all.push_back(ncclAvg);
  return all;
}

// Equal for all indices that share an element.
uint64_t InputHash(const ViewCase& c, int rank, const Sizes& index) {
  const uint32_t repeats = c.repeats[static_cast<size_t>(rank)];
  uint64_t hash = Scramble(c.seed, static_cast<uint64_t>(rank) + 1);
  for (size_t d = 0; d < index.size(); ++d) {
    if ((repeats >> d & 1) == 0) hash = Scramble(hash, static_cast<uint64_t>(index[d]) * 16 + d);
  }
  return hash;
}

// Combines two integers.
int64_t Combined(ncclRedOp_t fold, int64_t a, int64_t b) {
  switch (static_cast<unsigned>(fold)) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    case axcclAnd:
      return a & b;
    case axcclOr:
      return a | b;
    case axcclXor:
      return a ^ b;
    case axcclLogicalAnd:
      return a != 0 && b != 0;
    case axcclLogicalOr:
      return a != 0 || b != 0;
    default:
      return a + b;
  }
}

Number Fold(const ViewCase& c, const Sizes& index) {
  Number result = SmallNumber(c, InputHash(c, 0, index));
  for (int q = 1; q < c.nranks; ++q) {
    const Number next = SmallNumber(c, InputHash(c, q, index));
    if (harness::IsComplexType(c.type) && c.fold == ncclProd) {
      result = {result.re * next.re - result.im * next.im, result.re * next.im + result.im * next.re};
    } else {
      result = {Combined(c.fold, result.re, next.re), Combined(c.fold, result.im, next.im)};
    }
    // Sums and averages of booleans are "or", as in StableHLO; products and minima need no conversion.
    if (c.type == axcclBool && c.fold == ncclSum) result.re = result.re != 0;
  }
  return c.fold == ncclAvg ? Number{result.re / c.nranks, result.im / c.nranks} : result;
}

}  // namespace

Element EncodeInteger(ncclDataType_t type, int64_t value) { return Encode(type, {value, 0}); }

bool ViewCase::Reduces() const {
  return op == ViewOp::kReduceScatter || op == ViewOp::kAllReduce || op == ViewOp::kReduce;
}
bool ViewCase::HasInput(int rank) const { return (op != ViewOp::kScatter && op != ViewOp::kBroadcast) || rank == root; }
// Some ranks of a reduction other than the root have an output, which gets zeros.
bool ViewCase::HasOutput(int rank) const {
  if (op == ViewOp::kReduce &&
      Scramble(static_cast<uint64_t>(root * 5 + fold), 0x2e05, static_cast<uint64_t>(rank)) % 2 == 0)
    return true;
  return (op != ViewOp::kGather && op != ViewOp::kReduce) || rank == root;
}
Sizes ViewCase::InputSizes() const { return Times(block, split, nranks); }
Sizes ViewCase::OutputSizes() const { return Times(block, concat, nranks); }

bool ViewCase::InPlace(int rank) const {
  return op != ViewOp::kAllToAll && HasInput(rank) && HasOutput(rank) &&
         Scramble(seed, 0x1297ace, static_cast<uint64_t>(rank)) % 4 == 0;
}

std::string ViewCase::Text() const {
  std::string text = std::string(kOpNames[static_cast<int>(op)]) + " of blocks [";
  for (const int64_t size : block) text += std::to_string(size) + " ";
  return text + "] split " + std::to_string(split) + " concat " + std::to_string(concat) + " root " +
         std::to_string(root) + " op " + std::to_string(static_cast<int>(fold)) + " " + harness::TypeName(type) +
         " case seed " + std::to_string(seed);
}

namespace {

// A block with at least `least` dimensions.
Sizes AnyBlock(Random* random, size_t least, int64_t max_elements) {
  constexpr int64_t kSizes[] = {1, 1, 2, 2, 3, 4, 5, 8, 17, 64};
  const auto dims = std::max<size_t>(random->Below(7), least);
  Sizes block;
  int64_t elements = 1;
  for (size_t d = 0; d < dims; ++d) {
    int64_t size = random->OneIn(40) ? 0 : kSizes[random->Below(10)];
    if (random->OneIn(12)) size = static_cast<int64_t>(random->Below(static_cast<uint64_t>(max_elements)));
    block.push_back(elements * size > max_elements ? 1 : size);
    elements *= block.back();
  }
  return block;
}

void FindRepeats(ViewCase* c) {
  c->repeats.clear();
  for (int rank = 0; rank < c->nranks; ++rank) {
    const Placement p = InputPlacement(*c, rank);
    uint32_t repeats = 0;
    for (size_t d = 0; d < c->block.size(); ++d) repeats |= static_cast<uint32_t>(p.strides[d] == 0) << d;
    c->repeats.push_back(repeats);
  }
}

}  // namespace

ViewCase AnyViewCase(Random* random, int nranks, int64_t max_elements) {
  ViewCase c;
  c.seed = random->Next();
  c.nranks = nranks;
  c.op = static_cast<ViewOp>(random->Below(kNumViewOps));
  constexpr ncclDataType_t kMore[] = {axcclBool, axcclComplex64, axcclComplex128};
  c.type = random->OneIn(4) ? kMore[random->Below(3)] : random->Pick(harness::kAllTypes);
  if (!c.Reduces() && random->OneIn(3)) c.type = axcclBits(1 + random->Below(16));
  c.fold = c.Reduces() ? random->Pick(OperatorsOf(c.type)) : ncclSum;
  const bool rooted = static_cast<int>(c.op) >= static_cast<int>(ViewOp::kGather);
  c.root = rooted ? static_cast<int>(random->Below(static_cast<uint64_t>(nranks))) : 0;
  c.block = AnyBlock(random, Splits(c.op) || Joins(c.op) ? 1 : 0, max_elements);
  if (Splits(c.op)) c.split = static_cast<int>(random->Below(c.block.size()));
  if (Joins(c.op)) c.concat = static_cast<int>(random->Below(c.block.size()));
  FindRepeats(&c);
  return c;
}

ViewCase AnySplitRows(Random* random, int nranks) {
  ViewCase c;
  do c = AnyViewCase(random, nranks, 1);
  while (c.op != ViewOp::kAllToAll && c.op != ViewOp::kReduceScatter);
  c.block = {1 + static_cast<int64_t>(random->Below(6)), 1024 + static_cast<int64_t>(random->Below(1024))};
  c.split = 1;
  if (Joins(c.op)) c.concat = 0;
  FindRepeats(&c);
  return c;
}

ViewCase AnotherOperand(const ViewCase& first, Random* random, int64_t max_elements) {
  ViewCase c = first;
  c.seed = random->Next();
  if (!c.Reduces()) c.type = random->OneIn(3) ? axcclBits(1 + random->Below(16)) : random->Pick(harness::kAllTypes);
  c.block = AnyBlock(random, static_cast<size_t>(std::max(c.split, c.concat) + 1), max_elements);
  FindRepeats(&c);
  return c;
}

Placement InputPlacement(const ViewCase& c, int rank) {
  const bool in_place = c.InPlace(rank);
  // The larger operand decides the placement; the input may be a part of it.
  Placement p = AnyPlacement(in_place ? (c.concat >= 0 ? c.OutputSizes() : c.InputSizes()) : c.InputSizes(), !in_place,
                             Random(Scramble(c.seed, 0x19, static_cast<uint64_t>(rank))));
  return p;
}

Placement OutputPlacement(const ViewCase& c, int rank) {
  if (c.InPlace(rank)) return InputPlacement(c, rank);
  return AnyPlacement(c.OutputSizes(), false, Random(Scramble(c.seed, 0x07, static_cast<uint64_t>(rank))));
}

int64_t OffsetOf(const Placement& placement, const Sizes& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * placement.strides[d];
  return offset;
}

Element InputElement(const ViewCase& c, int rank, const Sizes& index) {
  const uint64_t hash = InputHash(c, rank, index);
  if (c.Reduces()) return Encode(c.type, SmallNumber(c, hash));
  const uint64_t words[2] = {hash, Scramble(hash, 2)};
  Element element;
  std::memcpy(element.data(), words, element.size());
  return element;
}

Element OutputElement(const ViewCase& c, int rank, const Sizes& index) {
  if (c.op == ViewOp::kReduce && rank != c.root) return {};
  Sizes source = index;
  int sender = c.root;
  if (c.concat >= 0) {
    // The output has a block from each rank, in order.
    int64_t& x = source[static_cast<size_t>(c.concat)];
    const int64_t part = c.block[static_cast<size_t>(c.concat)];
    sender = static_cast<int>(x / part);
    x %= part;
  }
  if (c.split >= 0) source[static_cast<size_t>(c.split)] += rank * c.block[static_cast<size_t>(c.split)];
  return c.Reduces() ? Encode(c.type, Fold(c, source)) : InputElement(c, sender, source);
}

}  // namespace axccl::tests
