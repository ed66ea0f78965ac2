// The device's movers of strided operands, compared with the host's, bit for bit: random boxes of up to eight
// dimensions, memory in any order of dimensions with gaps, negative and zero strides, packed operands on either side,
// ranges that cut rows, every element size, a sample of types and combinations, in place, factors and divisors. The
// whole memory around every operand is compared.

#include "kernels/host/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/movers_on_fibers.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

uint64_t Below(uint64_t limit) { return Random()() % limit; }
bool OneIn(uint64_t n) { return Below(n) == 0; }

// An operand with separate memory for the host and for the device.
struct Operand {
  std::vector<uint64_t> memory[2];
  std::vector<int64_t> strides;
  size_t base = 0;  // byte of the first element
  bool packed = false;
  bool repeats = false;  // zero strides

  BoxOperand Get(int device) {
    return {reinterpret_cast<uint8_t*>(memory[device].data()) + base, packed ? nullptr : strides.data()};
  }
};

struct Case {
  std::vector<int64_t> sizes;
  uint64_t begin = 0, count = 0;
  size_t element = 1, alignment = 1;  // bytes
  std::vector<Operand> operands;      // destinations first
  int num_dst = 1;
  bool in_place = false;  // the first source is the first destination

  BoxRange Range() const { return {static_cast<int>(sizes.size()), sizes.data(), begin, count}; }
  std::vector<BoxOperand> Get(int device) {
    std::vector<BoxOperand> got;
    for (Operand& operand : operands) got.push_back(operand.Get(device));
    if (in_place) got[static_cast<size_t>(num_dst)] = got[0];
    return got;
  }
  std::string Text() const {
    std::string text = std::to_string(element) + " bytes, in place " + std::to_string(in_place) + ", sizes";
    for (int64_t size : sizes) text += " " + std::to_string(size);
    text += ", range " + std::to_string(begin) + " + " + std::to_string(count);
    for (const Operand& operand : operands) {
      text += operand.packed ? "; packed" : "; strides";
      for (int64_t stride : operand.strides) text += " " + std::to_string(stride);
    }
    return text;
  }
};

std::vector<int64_t> RandomSizes() {
  constexpr int64_t kSizes[] = {1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 32, 64};
  std::vector<int64_t> sizes(OneIn(8) ? 7 + Below(2) : Below(5));
  int64_t room = 600;
  for (int64_t& size : sizes) {
    size = std::min(kSizes[Below(std::size(kSizes))], room);
    room = std::max<int64_t>(room / size, 1);
  }
  std::shuffle(sizes.begin(), sizes.end(), Random());
  return sizes;
}

// In most cases in the order of the dimensions, so that some of them merge.
void ChooseStrides(const Case& c, bool is_source, Operand* operand) {
  const size_t num = c.sizes.size();
  std::vector<size_t> order(num);  // fastest first
  for (size_t i = 0; i < num; ++i) order[i] = num - 1 - i;
  if (OneIn(3)) std::shuffle(order.begin(), order.end(), Random());
  operand->strides.assign(num, 0);
  const bool gaps = OneIn(2);
  int64_t step = OneIn(6) ? 1 + static_cast<int64_t>(Below(4)) : 1;
  for (const size_t d : order) {
    if (gaps && OneIn(3)) step += static_cast<int64_t>(OneIn(2) ? 16 : Below(9));
    operand->strides[d] = OneIn(10) ? -step : step;
    step *= c.sizes[d];
    if (is_source && OneIn(12)) {
      operand->strides[d] = 0;
      operand->repeats = true;
    }
  }
}

void AddOperand(bool is_source, Case* c) {
  Operand& operand = c->operands.emplace_back();
  operand.packed = OneIn(4);
  int64_t least = 0, most = 0;
  if (operand.packed) {
    most = static_cast<int64_t>(c->count);
  } else {
    ChooseStrides(*c, is_source, &operand);
    for (size_t d = 0; d < c->sizes.size(); ++d) {
      const int64_t reach = operand.strides[d] * (c->sizes[d] - 1);
      (reach < 0 ? least : most) += reach;
    }
    ++most;
  }
  // In most cases at the beginning of a line.
  const size_t shift = OneIn(3) ? Below(64 / c->alignment) * c->alignment : 0;
  operand.base = 64 + shift + static_cast<size_t>(-least) * c->element;
  std::vector<uint64_t>& memory = operand.memory[0];
  memory.resize((static_cast<size_t>(most - least) * c->element + shift) / 8 + 32);
  for (uint64_t& word : memory) word = Random()();
  operand.memory[1] = memory;
}

Case RandomCase(size_t element, size_t alignment, int num_dst, int num_src) {
  Case c;
  c.sizes = RandomSizes();
  c.element = element;
  c.alignment = alignment;
  c.num_dst = num_dst;
  uint64_t elements = 1;
  for (const int64_t size : c.sizes) elements *= static_cast<uint64_t>(size);
  c.begin = OneIn(3) ? 0 : Below(elements);
  c.count = OneIn(3) ? elements - c.begin : 1 + Below(elements - c.begin);
  // At multiples of 16, like portions.
  if (OneIn(2)) c.begin = c.begin / 16 * 16;
  for (int i = 0; i < num_dst + num_src; ++i) AddOperand(i >= num_dst, &c);
  c.in_place = OneIn(4);
  return c;
}

void CheckMemory(const Case& c) {
  for (const Operand& operand : c.operands) ASSERT_EQ(operand.memory[0], operand.memory[1]) << c.Text();
}

void CheckCopy(int element) {
  Case c = RandomCase(static_cast<size_t>(element), 1, 1 + static_cast<int>(Below(2)), 1);
  const auto on_host = c.Get(0), on_device = c.Get(1);
  CopyBox(c.Range(), on_host.data(), c.num_dst, on_host[static_cast<size_t>(c.num_dst)], c.element, false);
  const BoxReduceRequest request{
      c.Range(), on_device.data(),    c.num_dst,    &on_device[static_cast<size_t>(c.num_dst)],
      1,         OpaqueType(element), Combine::kSum};
  ASSERT_TRUE(cuda::MoveBoxOnFibers(request, 1 + static_cast<uint32_t>(Below(6)), Random()())) << c.Text();
  ASSERT_NO_FATAL_FAILURE(CheckMemory(c));
}

TEST(CudaBoxTest, CopiesLikeTheHost) {
  for (int element = 1; element <= kMaxOpaqueBytes; ++element) {
    for (int round = 0; round < 150; ++round) ASSERT_NO_FATAL_FAILURE(CheckCopy(element));
  }
}

// ---- copies by tiles ----

// Adds an operand of a transposition: `fast` is its fastest dimension, and the others lie in any order, some with gaps,
// some backwards. `gaps`: every dimension has a gap, so no two merge.
void AddTransposed(size_t fast, bool gaps, Case* c) {
  Operand& operand = c->operands.emplace_back();
  std::vector<size_t> order(c->sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::swap(order[0], order[fast]);
  std::shuffle(order.begin() + 1, order.end(), Random());
  operand.strides.resize(order.size());
  int64_t step = 1, least = 0, most = 1;
  for (const size_t d : order) {
    operand.strides[d] = step != 1 && OneIn(3) ? -step : step;
    const int64_t reach = operand.strides[d] * (c->sizes[d] - 1);
    (reach < 0 ? least : most) += reach;
    step = step * c->sizes[d] + static_cast<int64_t>(gaps || OneIn(2) ? 1 + Below(3) : 0);
  }
  operand.base = 64 + static_cast<size_t>(-least) * c->element;
  operand.memory[0].resize(static_cast<size_t>(most - least) * c->element / 8 + 32);
  for (uint64_t& word : operand.memory[0]) word = Random()();
  operand.memory[1] = operand.memory[0];
}

struct Transposition {
  std::vector<int64_t> sizes;
  size_t from, to;  // fastest dimensions
  int num_dst;
};

Transposition RandomTransposition() {
  const size_t num_dims = 2 + Below(3);
  Transposition t{std::vector<int64_t>(num_dims), Below(num_dims), Below(num_dims - 1), 1 + static_cast<int>(Below(3))};
  if (t.to >= t.from) ++t.to;
  for (int64_t& size : t.sizes) size = 2 + static_cast<int64_t>(Below(4));
  t.sizes[t.from] = 17 + static_cast<int64_t>(Below(50));
  t.sizes[t.to] = 17 + static_cast<int64_t>(Below(50));
  return t;
}

Case CaseOf(const Transposition& t, size_t element, bool gaps = false) {
  Case c;
  c.sizes = t.sizes;
  c.element = element;
  c.num_dst = t.num_dst;
  c.count = 1;
  for (const int64_t size : c.sizes) c.count *= static_cast<uint64_t>(size);
  for (int d = 0; d < t.num_dst; ++d) AddTransposed(t.to, false, &c);
  AddTransposed(t.from, gaps, &c);
  return c;
}

// Sets `tiles` to the number of tiles used.
void CopyTransposed(Case* c, uint32_t threads, uint32_t* tiles) {
  const auto on_host = c->Get(0), on_device = c->Get(1);
  const size_t source = static_cast<size_t>(c->num_dst);
  CopyBox(c->Range(), on_host.data(), c->num_dst, on_host[source], c->element, false);
  const BoxReduceRequest request{
      c->Range(),   on_device.data(), c->num_dst, &on_device[source], 1, OpaqueType(static_cast<int>(c->element)),
      Combine::kSum};
  ASSERT_TRUE(cuda::MoveBoxOnFibers(request, threads, Random()(), tiles)) << c->Text();
  ASSERT_NO_FATAL_FAILURE(CheckMemory(*c));
}

TEST(CudaBoxTest, CopiesWholeTranspositionsByTiles) {
  for (const size_t element : {1, 2, 4, 8, 16}) {
    const int64_t side = element <= 4 ? 32 : 16;
    for (int round = 0; round < 30; ++round) {
      const Transposition t = RandomTransposition();
      Case c = CaseOf(t, element, true);
      uint32_t tiles = 0;
      ASSERT_NO_FATAL_FAILURE(CopyTransposed(&c, 1 + static_cast<uint32_t>(Below(40)), &tiles));
      int64_t expected = 1;
      for (size_t d = 0; d < t.sizes.size(); ++d)
        expected *= d == t.from || d == t.to ? (t.sizes[d] + side - 1) / side : t.sizes[d];
      const bool wasteful = static_cast<uint64_t>(expected * side * side) > 4 * c.count;
      ASSERT_EQ(tiles, wasteful ? 0 : expected) << c.Text();
    }
  }
}

TEST(CudaBoxTest, CopiesAnyRangeOfATransposition) {
  for (const size_t element : {1, 2, 4, 8, 16}) {
    int by_tiles = 0;
    for (int round = 0; round < 100; ++round) {
      Case c = CaseOf(RandomTransposition(), element);
      c.begin = Below(c.count);
      c.count = 1 + Below(c.count - c.begin);
      uint32_t tiles = 0;
      ASSERT_NO_FATAL_FAILURE(CopyTransposed(&c, 1 + static_cast<uint32_t>(Below(40)), &tiles));
      by_tiles += tiles != 0;
    }
    ASSERT_GT(by_tiles, 10) << element << " bytes";
    ASSERT_LT(by_tiles, 100) << element << " bytes";
  }
}

// Runs of the same order, odd sizes, destinations that differ, and ranges of a row are not copied by tiles.
TEST(CudaBoxTest, UsesTilesForTranspositionsOnly) {
  const auto tiles_of = [](Case c) {
    uint32_t tiles = 1;
    CopyTransposed(&c, 8, &tiles);
    return tiles;
  };
  EXPECT_NE(tiles_of(CaseOf({{40, 50}, 0, 1, 2}, 4)), 0);
  EXPECT_NE(tiles_of(CaseOf({{40, 50}, 1, 0, 2}, 4)), 0);
  EXPECT_EQ(tiles_of(CaseOf({{40, 50}, 1, 1, 2}, 4)), 0);
  EXPECT_EQ(tiles_of(CaseOf({{40, 50}, 0, 0, 2}, 4)), 0);
  EXPECT_EQ(tiles_of(CaseOf({{40, 50}, 0, 1, 1}, 3)), 0);
  EXPECT_EQ(tiles_of(CaseOf({{400, 2}, 0, 1, 1}, 4)), 0);
  Case row = CaseOf({{40, 50}, 0, 1, 1}, 4);
  row.begin = 75;
  row.count = 50;
  EXPECT_EQ(tiles_of(row), 0);
  Case other = CaseOf({{40, 50, 20}, 0, 1, 1}, 4);
  const Operand source = other.operands.back();
  other.operands.pop_back();
  AddTransposed(2, false, &other);
  other.operands.push_back(source);
  other.num_dst = 2;
  EXPECT_EQ(tiles_of(other), 0);
}

#if !defined(__SANITIZE_THREAD__)
// 32 threads load or store as many sectors of memory at a time as the words have bytes.
TEST(CudaBoxTest, TilesAreReadAndWrittenInWholeSectors) {
  constexpr uint32_t kThreads = 64;
  for (const size_t element : {1, 2, 4, 8}) {
    Case c = CaseOf({{64, 96}, 0, 1, 1}, element);
    for (Operand& operand : c.operands) {
      operand.strides = operand.strides[0] == 1 ? std::vector<int64_t>{1, 64} : std::vector<int64_t>{96, 1};
      // Accesses are whole sectors if the memory of both operands is aligned to them.
      operand.memory[1].assign(64 * 96 * element / 8 + 32, 7);
      operand.base = 32 - reinterpret_cast<uintptr_t>(operand.memory[1].data()) % 32;
    }
    // The sectors of each access, by operand and group of threads.
    std::map<std::pair<size_t, uint32_t>, std::vector<std::set<uintptr_t>>> sectors;
    std::vector<size_t> accesses[2] = {std::vector<size_t>(kThreads), std::vector<size_t>(kThreads)};
    const auto watch = [&](uint32_t thread, const void* p, bool stores) {
      const size_t operand = stores ? 0 : 1;
      const auto& memory = c.operands[operand].memory[1];
      if (p < memory.data() || p >= memory.data() + memory.size()) return;
      auto& group = sectors[{operand, thread / 32}];
      const size_t access = accesses[operand][thread]++;
      group.resize(std::max(group.size(), access + 1));
      group[access].insert(reinterpret_cast<uintptr_t>(p) / 32);
    };
    const auto on_device = c.Get(1);
    const BoxReduceRequest request{
        c.Range(), on_device.data(), 1, &on_device[1], 1, OpaqueType(static_cast<int>(element)), Combine::kSum};
    uint32_t tiles = 0;
    ASSERT_TRUE(cuda::MoveBoxOnFibers(request, kThreads, Random()(), &tiles, watch));
    ASSERT_NE(tiles, 0);
    ASSERT_EQ(sectors.size(), 4);
    for (const auto& [place, groups] : sectors) {
      ASSERT_EQ(groups.size(), c.count / kThreads);
      for (const auto& group : groups)
        ASSERT_EQ(group.size(), element) << element << " bytes, operand " << place.first << ", group " << place.second;
    }
  }
}
#endif

// A range whose position in its box exceeds 32 bits. Only the range's rows have memory.
TEST(CudaBoxTest, CopiesTilesFar) {
  for (int round = 0; round < 20; ++round) {
    const int64_t rows = int64_t{1} << (29 + Below(6));
    Case c;
    c.sizes = {3, rows, 64};
    c.element = 4;
    c.count = 1500;
    c.begin = static_cast<uint64_t>(rows) * 64 * (1 + Below(3)) - 1500 - Below(100);
    for (int i = 0; i < 2; ++i) {
      Operand& operand = c.operands.emplace_back();
      operand.memory[0].assign(2000, static_cast<uint64_t>(i));
    }
    Operand& to = c.operands[0];
    Operand& from = c.operands[1];
    for (uint64_t& word : from.memory[0]) word = Random()();
    const int64_t first_row = static_cast<int64_t>(c.begin / 64) % rows;
    to.strides = {0, 1, 50};
    from.strides = {0, 64, 1};
    to.base = 0 - static_cast<size_t>(first_row) * 4;
    from.base = 0 - static_cast<size_t>(first_row) * 256;
    for (Operand& operand : c.operands) operand.memory[1] = operand.memory[0];
    uint32_t tiles = 0;
    ASSERT_NO_FATAL_FAILURE(CopyTransposed(&c, 8, &tiles));
    ASSERT_NE(tiles, 0);
  }
}

class CudaBoxReduceTest : public testing::TestWithParam<Pair> {};

void CheckReduce(const Pair& pair) {
  const DataType type = pair.type;
  const size_t size = ElementSize(type), scalar = ElementSize(ScalarType(type));
  const int num_src = 1 + static_cast<int>(Below(4));
  Case c = RandomCase(size, scalar, 1 + static_cast<int>(Below(2)), num_src);
  for (Operand& operand : c.operands) {
    // Values of the type, both from the first element on and before it.
    auto* const bytes = reinterpret_cast<uint8_t*>(operand.memory[0].data());
    for (size_t at = operand.base % scalar; at + scalar <= operand.memory[0].size() * 8; at += scalar)
      StoreElement(bytes + at, 0, scalar, RandomElement(ScalarType(type), Random()));
    operand.memory[1] = operand.memory[0];
  }
  if (c.operands[static_cast<size_t>(c.num_dst)].repeats) c.in_place = false;
  const auto on_host = c.Get(0), on_device = c.Get(1);
  std::vector<Factor> factors(static_cast<size_t>(num_src));
  Factor post{};
  BoxReduceRequest request{c.Range(), nullptr, c.num_dst, nullptr, num_src, type, pair.combine};
  if (pair.combine == Combine::kSum && type != DataType::kBool) {
    const bool floats = IsFloat(ScalarType(type));
    const auto draw = [&](Factor* factor) {
      const double value = static_cast<double>(Below(64)) / 16 - 1;
      if (!floats) factor->i64 = static_cast<int64_t>(Below(7)) - 3;
      if (floats && scalar == 8) factor->f64 = value;
      if (floats && scalar < 8) factor->f32 = static_cast<float>(value);
    };
    for (Factor& factor : factors) draw(&factor);
    draw(&post);
    if (OneIn(2)) request.pre = factors.data();
    if (floats && OneIn(2)) request.post = &post;
    if (!floats && OneIn(2)) request.post_divisor = 2 + Below(5);
    request.round_factored = OneIn(2);
  }
  request.dst = on_host.data();
  request.src = on_host.data() + c.num_dst;
  // The device executes plain copies as copies.
  const bool copies = num_src == 1 && request.pre == nullptr && request.post == nullptr && request.post_divisor == 0;
  if (copies) {
    CopyBox(request.range, request.dst, request.num_dst, request.src[0], size, false);
  } else {
    ReduceBox(request);
  }
  request.dst = on_device.data();
  request.src = on_device.data() + c.num_dst;
  ASSERT_TRUE(cuda::MoveBoxOnFibers(request, 1 + static_cast<uint32_t>(Below(6)), Random()())) << c.Text();
  ASSERT_NO_FATAL_FAILURE(CheckMemory(c)) << num_src << " sources";
}

TEST_P(CudaBoxReduceTest, GivesTheBitsOfTheHost) {
  for (int round = 0; round < 25; ++round) ASSERT_NO_FATAL_FAILURE(CheckReduce(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, CudaBoxReduceTest, testing::ValuesIn(AllPairs()),
                         [](const auto& info) { return PairName(info.param); });

// Boxes that are larger than what is moved of them, with sizes that exceed 32 bits.
TEST(CudaBoxTest, CountsFar) {
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> sizes = {3, int64_t{1} << (29 + Below(6)), OneIn(2) ? 1 : 3, 5};
    const std::vector<int64_t> none = {0, 0, 0, 1 + static_cast<int64_t>(Below(2))};
    std::vector<uint32_t> from(16), to[2] = {std::vector<uint32_t>(400), std::vector<uint32_t>(400)};
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i) + 1;
    const uint64_t row = static_cast<uint64_t>(sizes[1] * sizes[2] * sizes[3]);
    const BoxRange range{4, sizes.data(), row * (1 + Below(2)) - 1 - Below(200), 300};
    const BoxOperand src{from.data(), none.data()}, dst[2] = {{to[0].data(), nullptr}, {to[1].data(), nullptr}};
    CopyBox(range, &dst[0], 1, src, 4, false);
    const BoxReduceRequest request{range, &dst[1], 1, &src, 1, DataType::kInt32, Combine::kSum};
    ASSERT_TRUE(cuda::MoveBoxOnFibers(request, 4, Random()()));
    ASSERT_EQ(to[0], to[1]) << "sizes " << sizes[1] << " " << sizes[2] << ", begin " << range.begin;
  }
}

}  // namespace
}  // namespace axccl::kernels
