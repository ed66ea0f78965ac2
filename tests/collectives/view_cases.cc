#include "tests/collectives/view_cases.h"

#include <algorithm>
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

// Any order of dimensions, with gaps, backwards; inputs may repeat elements.
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

// What a rank contributes to a reduction.
int64_t SmallInteger(const ViewCase& c, uint64_t hash) {
  const bool tiny = harness::TypeBytes(c.type) == 1 && harness::IsFloatType(c.type);
  const bool is_signed = harness::IsFloatType(c.type) || harness::IsSignedInteger(c.type);
  if (c.fold == ncclProd) {
    const int64_t power = 1 << hash % 2;
    return is_signed && (hash >> 8) % 2 != 0 ? -power : power;
  }
  const int64_t most = tiny ? 1 : 3;
  const int64_t value = static_cast<int64_t>(hash % static_cast<uint64_t>(2 * most + 1)) - (is_signed ? most : 0);
  return c.fold == ncclAvg && harness::IsFloatType(c.type) ? value * c.nranks : value;
}

uint64_t Encode(ncclDataType_t type, int64_t value) {
  if (harness::IsFloatType(type)) return harness::EncodeFloat(type, static_cast<double>(value));
  const size_t bits = 8 * harness::TypeBytes(type);
  return bits == 64 ? static_cast<uint64_t>(value) : static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1);
}

// The same for all indices that share an element.
uint64_t InputHash(const ViewCase& c, int rank, const Sizes& index) {
  const uint32_t repeats = c.repeats[static_cast<size_t>(rank)];
  uint64_t hash = Scramble(c.seed, static_cast<uint64_t>(rank) + 1);
  for (size_t d = 0; d < index.size(); ++d) {
    if ((repeats >> d & 1) == 0) hash = Scramble(hash, static_cast<uint64_t>(index[d]) * 16 + d);
  }
  return hash;
}

int64_t Fold(const ViewCase& c, const Sizes& index) {
  int64_t result = SmallInteger(c, InputHash(c, 0, index));
  for (int q = 1; q < c.nranks; ++q) {
    const int64_t next = SmallInteger(c, InputHash(c, q, index));
    switch (c.fold) {
      case ncclProd:
        result *= next;
        break;
      case ncclMax:
        result = std::max(result, next);
        break;
      case ncclMin:
        result = std::min(result, next);
        break;
      default:
        result += next;
    }
  }
  return c.fold == ncclAvg ? result / c.nranks : result;
}

}  // namespace

bool ViewCase::Reduces() const {
  return op == ViewOp::kReduceScatter || op == ViewOp::kAllReduce || op == ViewOp::kReduce;
}
bool ViewCase::HasInput(int rank) const { return (op != ViewOp::kScatter && op != ViewOp::kBroadcast) || rank == root; }
bool ViewCase::HasOutput(int rank) const { return (op != ViewOp::kGather && op != ViewOp::kReduce) || rank == root; }
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

// At least `least` dimensions.
Sizes AnyBlock(Random* random, size_t least, int64_t max_elements) {
  constexpr int64_t kSizes[] = {1, 1, 2, 2, 3, 4, 5, 8, 17, 64};
  const auto dims = std::max<size_t>(random->Below(6), least);
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
  c.type = random->Pick(harness::kAllTypes);
  c.fold = static_cast<ncclRedOp_t>(random->Below(5));
  const bool rooted = static_cast<int>(c.op) >= static_cast<int>(ViewOp::kGather);
  c.root = rooted ? static_cast<int>(random->Below(static_cast<uint64_t>(nranks))) : 0;
  c.block = AnyBlock(random, Splits(c.op) || Joins(c.op) ? 1 : 0, max_elements);
  if (Splits(c.op)) c.split = static_cast<int>(random->Below(c.block.size()));
  if (Joins(c.op)) c.concat = static_cast<int>(random->Below(c.block.size()));
  FindRepeats(&c);
  return c;
}

ViewCase AnotherOperand(const ViewCase& first, Random* random, int64_t max_elements) {
  ViewCase c = first;
  c.seed = random->Next();
  if (!c.Reduces()) c.type = random->Pick(harness::kAllTypes);
  c.block = AnyBlock(random, static_cast<size_t>(std::max(c.split, c.concat) + 1), max_elements);
  FindRepeats(&c);
  return c;
}

Placement InputPlacement(const ViewCase& c, int rank) {
  const bool in_place = c.InPlace(rank);
  // The larger operand decides; the input may be a part of it.
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

uint64_t InputElement(const ViewCase& c, int rank, const Sizes& index) {
  const uint64_t hash = InputHash(c, rank, index);
  if (c.Reduces()) return Encode(c.type, SmallInteger(c, hash));
  const size_t bits = 8 * harness::TypeBytes(c.type);
  return bits == 64 ? hash : hash & ((uint64_t{1} << bits) - 1);
}

uint64_t OutputElement(const ViewCase& c, int rank, const Sizes& index) {
  Sizes source = index;
  int sender = c.root;
  if (c.concat >= 0) {
    // Parts of the size of a block, one from each rank in order.
    int64_t& x = source[static_cast<size_t>(c.concat)];
    const int64_t part = c.block[static_cast<size_t>(c.concat)];
    sender = static_cast<int>(x / part);
    x %= part;
  }
  if (c.split >= 0) source[static_cast<size_t>(c.split)] += rank * c.block[static_cast<size_t>(c.split)];
  return c.Reduces() ? Encode(c.type, Fold(c, source)) : InputElement(c, sender, source);
}

}  // namespace axccl::tests
