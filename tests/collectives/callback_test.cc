// Reductions by callback: flat and strided, in place and not, of any size, between threads and processes, with every
// algorithm; which operands the callback gets, and ranks whose callbacks do not match.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::GuardedArena;
using harness::LastErrorHas;
using harness::Layout;
using harness::Memory;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

// Counts what the callbacks of a test get. They run on any thread.
struct Seen {
  std::atomic<uint64_t> elements{0}, misaligned{0}, overlaps{0};

  template <class T>
  void Look(const void* accumulator, const void* operand, size_t count) {
    const auto a = reinterpret_cast<uintptr_t>(accumulator), b = reinterpret_cast<uintptr_t>(operand);
    const size_t bytes = count * sizeof(T);
    elements += count;
    misaligned += a % alignof(T) != 0 || b % alignof(T) != 0;
    overlaps += a < b + bytes && b < a + bytes;
  }
};

// The larger by absolute value; of two that are equal, the positive one.
void MaxAbs(void* accumulator, const void* operand, size_t count, void* context) {
  static_cast<Seen*>(context)->Look<float>(accumulator, operand, count);
  auto* a = static_cast<float*>(accumulator);
  const auto* b = static_cast<const float*>(operand);
  for (size_t i = 0; i < count; ++i)
    a[i] = std::fabs(b[i]) == std::fabs(a[i]) ? std::max(a[i], b[i]) : std::fabs(b[i]) > std::fabs(a[i]) ? b[i] : a[i];
}

// For numbers that are not negative: with both signs, a sum could saturate on the way and come back.
void SaturatingAdd(void* accumulator, const void* operand, size_t count, void* context) {
  static_cast<Seen*>(context)->Look<uint16_t>(accumulator, operand, count);
  auto* a = static_cast<uint16_t*>(accumulator);
  const auto* b = static_cast<const uint16_t*>(operand);
  for (size_t i = 0; i < count; ++i) a[i] = static_cast<uint16_t>(std::min(a[i] + b[i], 0xffff));
}

// The largest value and its position: an element of 12 bytes that is opaque to the library.
struct Best {
  float value;
  uint32_t rank, index;
};
void ArgMax(void* accumulator, const void* operand, size_t count, void* context) {
  static_cast<Seen*>(context)->Look<Best>(accumulator, operand, count);
  auto* a = static_cast<Best*>(accumulator);
  const auto* b = static_cast<const Best*>(operand);
  for (size_t i = 0; i < count; ++i) {
    if (b[i].value > a[i].value || (b[i].value == a[i].value && b[i].rank < a[i].rank)) a[i] = b[i];
  }
}

// One operator and its operands: element `i` of a rank's input, and the result over all ranks.
struct MaxAbsCase {
  using Element = float;
  static constexpr axcclReduceFn_t kFunction = MaxAbs;
  static constexpr ncclDataType_t kType = ncclFloat32;
  static float Input(int rank, size_t i) {
    return static_cast<float>(Scramble(Seed(), i, static_cast<uint64_t>(rank)) % 201) - 100;
  }
  static float Result(int nranks, size_t i) {
    float low = Input(0, i), high = low;
    for (int r = 1; r < nranks; ++r) low = std::min(low, Input(r, i)), high = std::max(high, Input(r, i));
    return -low > high ? low : high;
  }
};

struct SaturatingCase {
  using Element = uint16_t;
  static constexpr axcclReduceFn_t kFunction = SaturatingAdd;
  static constexpr ncclDataType_t kType = axcclUint16;
  static uint16_t Input(int rank, size_t i) { return Scramble(Seed(), i, static_cast<uint64_t>(rank)) % 40000; }
  static uint16_t Result(int nranks, size_t i) {
    uint64_t sum = 0;
    for (int r = 0; r < nranks; ++r) sum += Input(r, i);
    return static_cast<uint16_t>(std::min<uint64_t>(sum, 0xffff));
  }
};

bool operator==(const Best& a, const Best& b) { return a.value == b.value && a.rank == b.rank && a.index == b.index; }

struct ArgMaxCase {
  using Element = Best;
  static constexpr axcclReduceFn_t kFunction = ArgMax;
  static constexpr ncclDataType_t kType = axcclBits(sizeof(Best));
  static Best Input(int rank, size_t i) {
    const auto value = static_cast<float>(Scramble(Seed(), i, static_cast<uint64_t>(rank)) % 50);
    return {value, static_cast<uint32_t>(rank), static_cast<uint32_t>(i)};
  }
  static Best Result(int nranks, size_t i) {
    Best best = Input(0, i);
    for (int r = 1; r < nranks; ++r) {
      if (Input(r, i).value > best.value) best = Input(r, i);
    }
    return best;
  }
};

// One call on all ranks of a thread. Each rank has `elements` inputs from `data` on, where the result goes, too, if the
// call is in place.
template <class Case>
class Runner {
 public:
  using Element = typename Case::Element;

  Runner(RankContext& context, Clique& clique) : context_(context), clique_(clique), n_(clique.nranks()) {
    for (int i = 0; i < clique.size(); ++i) {
      for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
        arenas_.push_back(GuardedArena::Create(memory, size_t{4} << 20));
      seen_.push_back(std::make_unique<Seen>());
    }
  }

  void Flat(size_t count, bool in_place, bool mem_alloc) {
    for (const char* call : {"AllReduce", "Reduce", "ReduceScatter"}) {
      ASSERT_TRUE(context_.Step("%s of %zu, in place %d, MemAlloc %d", call, count, in_place, mem_alloc));
      const bool scatter = std::strcmp(call, "ReduceScatter") == 0, rooted = std::strcmp(call, "Reduce") == 0;
      const size_t inputs = scatter ? count * static_cast<size_t>(n_) : count;
      std::vector<std::pair<Element*, Element*>> buffers;
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique_.size(); ++i) {
        Element* in = Input(i, inputs, mem_alloc);
        const size_t part = scatter ? count * static_cast<size_t>(clique_.rank(i)) : 0;
        Element* out = in_place ? in + part : Take(i, count, mem_alloc);
        buffers.emplace_back(in, out);
        const ncclComm_t comm = clique_.comm(i);
        const cudaStream_t stream = Cuda(clique_.stream(i));
        ncclRedOp_t op;
        ASSERT_OK(
            axcclRedOpCreateCallback(&op, Case::kFunction, seen_[static_cast<size_t>(i)].get(), Case::kType, comm));
        ASSERT_OK(scatter  ? ncclReduceScatter(in, out, count, Case::kType, op, comm, stream)
                  : rooted ? ncclReduce(in, out, count, Case::kType, op, n_ - 1, comm, stream)
                           : ncclAllReduce(in, out, count, Case::kType, op, comm, stream));
        ASSERT_OK(ncclRedOpDestroy(op, comm));
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique_.Synchronize());
      for (int i = 0; i < clique_.size(); ++i) {
        if (rooted && clique_.rank(i) != n_ - 1) continue;
        const size_t first = scatter ? count * static_cast<size_t>(clique_.rank(i)) : 0;
        Check(buffers[static_cast<size_t>(i)].second, count, 1, first);
      }
      Reset();
    }
  }

  // Inputs have gaps; outputs run backwards.
  void Strided(int64_t rows, int64_t cols, bool mem_alloc) {
    ASSERT_TRUE(context_.Step("views of %lld x %lld, MemAlloc %d", static_cast<long long>(rows),
                              static_cast<long long>(cols), mem_alloc));
    const auto elements = static_cast<size_t>(rows * cols * n_);
    std::vector<std::pair<Element*, Element*>> outputs;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique_.size(); ++i) {
      // [rows, n * cols], the second dimension slower.
      Element* in = Take(i, 2 * elements, mem_alloc);
      for (size_t e = 0; e < elements; ++e) in[2 * e] = Case::Input(clique_.rank(i), e);
      const View input(in, {rows, n_ * cols}, {2, 2 * rows}, Case::kType);
      Element* all = Take(i, elements, mem_alloc);
      Element* part = Take(i, elements, mem_alloc);
      outputs.emplace_back(all + elements - 1, part + elements - 1);
      const axcclChannel_t channel = axcclDefaultChannel(clique_.comm(i));
      const cudaStream_t stream = Cuda(clique_.stream(i));
      ncclRedOp_t op;
      ASSERT_OK(axcclRedOpCreateCallback(&op, Case::kFunction, seen_[static_cast<size_t>(i)].get(), Case::kType,
                                         clique_.comm(i)));
      ASSERT_OK(axcclAllReduce(1, input, View(all + elements - 1, {rows, n_ * cols}, {-1, -rows}, Case::kType), op,
                               channel, nullptr, stream));
      ASSERT_OK(axcclReduceScatter(1, input, View(part + elements - 1, {rows, cols}, {-1, -rows}, Case::kType), 1, op,
                                   channel, nullptr, stream));
      ASSERT_OK(ncclRedOpDestroy(op, clique_.comm(i)));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique_.Synchronize());
    for (int i = 0; i < clique_.size(); ++i) {
      const auto [all, part] = outputs[static_cast<size_t>(i)];
      const size_t own = static_cast<size_t>(rows * cols);
      Check(all, elements, -1, 0);
      Check(part, own, -1, own * static_cast<size_t>(clique_.rank(i)));
    }
    Reset();
  }

  // Some rank computed every result, except for a communicator of one rank.
  void CheckSeen() {
    size_t elements = 0;
    for (const auto& seen : seen_) {
      EXPECT_EQ(seen->misaligned, 0u);
      EXPECT_EQ(seen->overlaps, 0u);
      elements += seen->elements;
    }
    // Not every rank computes: with an odd number of ranks, "rhd" leaves one out.
    if (clique_.size() == n_ && n_ > 1) {
      EXPECT_GT(elements, 0u);
    }
  }

 private:
  Element* Take(int member, size_t elements, bool mem_alloc) {
    GuardedArena& arena = *arenas_[static_cast<size_t>(2 * member + !mem_alloc)];
    return static_cast<Element*>(arena.Take(elements * sizeof(Element), 0));
  }
  Element* Input(int member, size_t elements, bool mem_alloc) {
    Element* in = Take(member, elements, mem_alloc);
    for (size_t e = 0; e < elements; ++e) in[e] = Case::Input(clique_.rank(member), e);
    return in;
  }
  void Check(const Element* out, size_t count, int64_t stride, size_t first) {
    for (size_t e = 0; e < count; ++e) {
      ASSERT_TRUE(out[static_cast<int64_t>(e) * stride] == Case::Result(n_, first + e))
          << "element " << e << " of " << count << ", AXCCL_TEST_SEED=" << Seed();
    }
  }
  void Reset() {
    for (const auto& arena : arenas_) {
      EXPECT_EQ(arena->CheckSentinels(), "");
      arena->Reset();
    }
  }

  RankContext& context_;
  Clique& clique_;
  const int n_;
  std::vector<std::unique_ptr<GuardedArena>> arenas_;  // two for each rank
  std::vector<std::unique_ptr<Seen>> seen_;
};

template <class Case>
void RunCases(RankContext& context, Clique& clique) {
  Runner<Case> runner(context, clique);
  for (const bool mem_alloc : {true, false}) {
    for (const size_t count : {1, 13, 5000, 20001}) {
      for (const bool in_place : {false, true}) runner.Flat(count, in_place, mem_alloc);
    }
    for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 5}, {101, 97}}) runner.Strided(rows, cols, mem_alloc);
    if (testing::Test::HasFailure()) return;
  }
  runner.CheckSeen();
}

class CallbackTest : public testing::TestWithParam<Layout> {};

TEST_P(CallbackTest, ReducesByItsOwnRule) {
  const uint64_t layout =
      static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
  const char* const algorithms[] = {"", "direct", "oneshot", "twoshot", "ring", "tree", "rhd"};
  for (size_t k = 0; k < std::size(algorithms); ++k) {
    if (k > 0 && !harness::IsSampled(k, layout)) continue;
    const char* const algorithm = algorithms[k];
    SCOPED_TRACE(std::string("NCCL_ALGO=") + algorithm);
    RunOptions options;
    options.environment = {{"NCCL_ALGO", algorithm}, {"AXCCL_SCRATCH_BYTES", "128K"}};
    RunRanks(
        GetParam(),
        [](RankContext& context) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          RunCases<MaxAbsCase>(context, clique);
          RunCases<SaturatingCase>(context, clique);
          RunCases<ArgMaxCase>(context, clique);
        },
        options);
    if (HasFailure()) return;
  }
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts = {harness::Processes(1), harness::Processes(3), harness::Threads(4),
                                 harness::OneThread(3)};
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see order that another process makes between two threads
  layouts.push_back({2, 2, 1});
#endif
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, CallbackTest, testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.Text(); });

TEST(Callback, DifferentCallbacksAreReported) {
  for (const Layout& layout : {harness::Processes(2), harness::Threads(2)}) {
    RunRanks(layout, [](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      Seen seen;
      ncclRedOp_t ops[2];
      for (ncclRedOp_t& op : ops) ASSERT_OK(axcclRedOpCreateCallback(&op, MaxAbs, &seen, ncclFloat32, clique.comm()));
      float data[64] = {};
      ASSERT_OK(ncclAllReduce(data, data, 64, ncclFloat32, ops[0], clique.comm(), Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      (void)ncclAllReduce(data, data, 64, ncclFloat32, ops[clique.rank(0)], clique.comm(), Cuda(clique.stream()));
      clique.ExpectMismatch({"float callback 1", "float callback 2"});
    });
  }
}

TEST(Callback, WrongUseIsRefused) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const ncclComm_t comm = clique.comm();
    ncclRedOp_t op;
    EXPECT_EQ(axcclRedOpCreateCallback(nullptr, MaxAbs, nullptr, ncclFloat32, comm), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("axcclRedOpCreateCallback: argument op is NULL")) << ncclGetLastError(nullptr);
    EXPECT_EQ(axcclRedOpCreateCallback(&op, nullptr, nullptr, ncclFloat32, comm), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("argument fn is NULL; pass a function")) << ncclGetLastError(nullptr);
    EXPECT_EQ(axcclRedOpCreateCallback(&op, MaxAbs, nullptr, static_cast<ncclDataType_t>(50), comm),
              ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("argument datatype is 50; pass one of ncclDataType_t")) << ncclGetLastError(nullptr);
    EXPECT_EQ(axcclRedOpCreateCallback(&op, MaxAbs, nullptr, ncclFloat32, nullptr), ncclInvalidArgument);

    ASSERT_OK(axcclRedOpCreateCallback(&op, MaxAbs, nullptr, ncclFloat32, comm));
    double data = 0;
    EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclFloat64, op, comm, Cuda(clique.stream())), ncclInvalidArgument);
    EXPECT_TRUE(LastErrorHas("argument op was made for datatype float, the call has double"))
        << ncclGetLastError(nullptr);
    EXPECT_OK(ncclRedOpDestroy(op, comm));
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclFloat32, op, comm, Cuda(clique.stream())), ncclInvalidArgument);
  });
}

}  // namespace
}  // namespace axccl::tests
