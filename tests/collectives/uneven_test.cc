// Calls with parts of different sizes against their definition: random extents (0 among them), offsets, spare rows,
// shapes, strides, types, lists, memory and algorithms. Every byte of every buffer is compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/collectives/tensor.h"
#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Arena;
using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::Layout;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

enum class Op : uint8_t { kAllGatherV, kReduceScatterV, kGatherV, kScatterV, kAllToAllV, kRagged, kFrom, kTo };
constexpr int kNumOps = 8;
constexpr const char* kOpNames[kNumOps] = {"AllGatherV", "ReduceScatterV", "GatherV",       "ScatterV",
                                           "AllToAllV",  "RaggedAllToAll", "BroadcastFrom", "ReduceTo"};

using Matrix = std::vector<Sizes>;  // [source][destination]

// Rows that go from one rank to another. Of a reduction, from every rank.
struct Transfer {
  int source, destination;
  int64_t from, to, rows;
};

struct Operand {
  ncclDataType_t type = ncclFloat32;
  Sizes row;                      // sizes of a row; 1 along the dimension of rows
  Sizes input_rows, output_rows;  // by rank; -1: it has none
  std::vector<Transfer> transfers;
};

struct Case {
  Op op = Op::kAllGatherV;
  int nranks = 1, root = 0, dim = 0;
  ncclRedOp_t fold = ncclSum;
  uint64_t seed = 0;
  std::vector<Operand> operands;
  Sizes extents;                        // as the call takes them: [operand][rank]
  Matrix sent, input_offsets, targets;  // all-to-all: of all operands
  std::vector<int32_t> roots;           // by operand

  bool Reduces() const { return op == Op::kReduceScatterV || op == Op::kTo; }
  std::string Text() const {
    return std::string(kOpNames[static_cast<int>(op)]) + " of " + std::to_string(operands.size()) +
           " operands, case seed " + std::to_string(seed) + ", AXCCL_TEST_SEED=" + std::to_string(Seed());
  }
};

int64_t AnyExtent(Random* random) {
  if (random->OneIn(3)) return 0;
  return static_cast<int64_t>(random->Below(random->OneIn(10) ? 400 : 6));
}

// Where parts begin that follow each other.
Sizes Starts(const Sizes& extents) {
  Sizes starts(extents.size());
  std::exclusive_scan(extents.begin(), extents.end(), starts.begin(), int64_t{0});
  return starts;
}

// The pairs of ranks that have something to exchange in every operand.
void AnyAllToAll(Case* c, Random* random) {
  const auto n = static_cast<size_t>(c->nranks);
  c->sent.assign(n, Sizes(n));
  c->input_offsets = c->targets = c->sent;
  for (Sizes& row : c->sent) std::generate(row.begin(), row.end(), [&] { return AnyExtent(random); });
  for (size_t i = 0; i < n; ++i) {
    c->input_offsets[i] = Starts(c->sent[i]);
    int64_t at = 0;
    for (size_t s = 0; s < n; ++s) {
      // Ragged parts come in any order, with gaps; several ranks may get the same rows of an input.
      const size_t source = c->op == Op::kRagged ? (s + i) % n : s;
      if (c->op == Op::kRagged && random->OneIn(3)) at += static_cast<int64_t>(random->Below(4));
      c->targets[source][i] = at;
      at += c->sent[source][i];
    }
    if (c->op != Op::kRagged) continue;
    for (int64_t& offset : c->input_offsets[i]) offset = static_cast<int64_t>(random->Below(5));
  }
}

// The transfers of one operand whose extents by rank are given.
void AddTransfers(const Case& c, const Sizes& extents, Operand* operand) {
  const Sizes starts = Starts(extents);
  for (int i = 0; i < c.nranks; ++i) {
    const auto r = static_cast<size_t>(i);
    for (int j = 0; j < c.nranks; ++j) {
      const auto d = static_cast<size_t>(j);
      switch (c.op) {
        case Op::kAllGatherV:
          operand->transfers.push_back({i, j, 0, starts[r], extents[r]});
          break;
        case Op::kGatherV:
          if (j == c.root) operand->transfers.push_back({i, j, 0, starts[r], extents[r]});
          break;
        case Op::kScatterV:
          if (i == c.root) operand->transfers.push_back({i, j, starts[d], 0, extents[d]});
          break;
        case Op::kReduceScatterV:
          if (i == 0) operand->transfers.push_back({i, j, starts[d], 0, extents[d]});
          break;
        default:
          operand->transfers.push_back({i, j, c.input_offsets[r][d], c.targets[r][d], c.sent[r][d]});
      }
    }
  }
}

Operand AnyOperand(const Case& c, const Sizes& extents, Random* random) {
  Operand operand;
  operand.type = c.Reduces() && !c.operands.empty() ? c.operands[0].type : random->Pick(harness::kAllTypes);
  const size_t dims = static_cast<size_t>(c.dim) + 1 + random->Below(3);
  for (size_t d = 0; d < dims; ++d)
    operand.row.push_back(random->OneIn(30) ? 0 : static_cast<int64_t>(1 + random->Below(5)));
  const auto n = static_cast<size_t>(c.nranks);
  operand.input_rows.assign(n, -1);
  operand.output_rows.assign(n, -1);
  if (c.op == Op::kFrom || c.op == Op::kTo) {
    const int root = c.roots[c.operands.size()];
    const int64_t rows = operand.row[static_cast<size_t>(c.dim)];
    for (int r = 0; r < c.nranks; ++r) {
      if (c.op == Op::kFrom) operand.transfers.push_back({root, r, 0, 0, rows});
      operand.input_rows[static_cast<size_t>(r)] = operand.output_rows[static_cast<size_t>(r)] = rows;
    }
    if (c.op == Op::kTo) operand.transfers.push_back({0, root, 0, 0, rows});
  } else {
    AddTransfers(c, extents, &operand);
    for (int r = 0; r < c.nranks; ++r) {
      const auto i = static_cast<size_t>(r);
      if (c.op != Op::kScatterV || r == c.root) operand.input_rows[i] = 0;
      if (c.op != Op::kGatherV || r == c.root) operand.output_rows[i] = 0;
    }
    for (const Transfer& t : operand.transfers) {
      int64_t& in = operand.input_rows[static_cast<size_t>(t.source)];
      int64_t& out = operand.output_rows[static_cast<size_t>(t.destination)];
      in = std::max(in, t.from + t.rows);
      out = std::max(out, t.to + t.rows);
    }
    if (c.op == Op::kReduceScatterV)
      std::fill(operand.input_rows.begin(), operand.input_rows.end(), operand.input_rows[0]);
    for (Sizes* rows : {&operand.input_rows, &operand.output_rows}) {
      for (int64_t& count : *rows) {
        if (count >= 0 && random->OneIn(4)) count += static_cast<int64_t>(random->Below(3));
      }
    }
  }
  operand.row[static_cast<size_t>(c.dim)] = 1;
  return operand;
}

Case AnyCase(Random* random, int nranks) {
  Case c;
  c.seed = random->Next();
  c.nranks = nranks;
  c.op = static_cast<Op>(random->Below(kNumOps));
  c.root = static_cast<int>(random->Below(static_cast<uint64_t>(nranks)));
  c.dim = static_cast<int>(random->Below(3));
  c.fold = random->OneIn(2) ? ncclSum : ncclMax;
  if (c.op == Op::kAllToAllV || c.op == Op::kRagged) AnyAllToAll(&c, random);
  const size_t count = random->OneIn(3) ? 2 + random->Below(4) : 1;
  for (size_t k = 0; k < count; ++k)
    c.roots.push_back(static_cast<int32_t>(random->Below(static_cast<uint64_t>(nranks))));
  for (size_t k = 0; k < count; ++k) {
    Sizes extents(static_cast<size_t>(nranks));
    std::generate(extents.begin(), extents.end(), [&] { return AnyExtent(random); });
    c.operands.push_back(AnyOperand(c, extents, random));
    c.extents.insert(c.extents.end(), extents.begin(), extents.end());
  }
  return c;
}

Element InputElementOf(const Case& c, size_t k, int rank, const Sizes& index) {
  uint64_t hash = Scramble(c.seed, k * 64 + static_cast<uint64_t>(rank));
  for (const int64_t i : index) hash = Scramble(hash, static_cast<uint64_t>(i));
  const ncclDataType_t type = c.operands[k].type;
  if (c.Reduces()) return EncodeInteger(type, static_cast<int64_t>(hash % 3));
  const uint64_t words[2] = {hash, Scramble(hash, 2)};
  Element element;
  std::memcpy(element.data(), words, element.size());
  return element;
}

Element FoldedElement(const Case& c, size_t k, const Sizes& index) {
  int64_t result = 0;
  for (int rank = 0; rank < c.nranks; ++rank) {
    uint64_t hash = Scramble(c.seed, k * 64 + static_cast<uint64_t>(rank));
    for (const int64_t i : index) hash = Scramble(hash, static_cast<uint64_t>(i));
    const auto value = static_cast<int64_t>(hash % 3);
    result = c.fold == ncclSum ? result + value : std::max(result, value);
  }
  return EncodeInteger(c.operands[k].type, result);
}

// One rank's part in a case.
class Part {
 public:
  Part(const Case& c, int rank, std::vector<std::unique_ptr<Arena>>* arenas) : c_(c), rank_(rank) {
    Random random(Scramble(c.seed, 0x9a27, static_cast<uint64_t>(rank)));
    for (size_t k = 0; k < c.operands.size(); ++k) {
      const Operand& operand = c.operands[k];
      inputs_.push_back(Make(operand, operand.input_rows[static_cast<size_t>(rank)], arenas, &random));
      outputs_.push_back(Make(operand, operand.output_rows[static_cast<size_t>(rank)], arenas, &random));
      Fill(k);
      Predict(k);
    }
  }

  ncclResult_t Launch(ncclComm_t comm, cudaStream_t stream) {
    std::vector<axcclView_t> in, out;
    const axcclView_t none = AXCCL_VIEW_INITIALIZER;
    for (auto& tensor : inputs_) in.push_back(tensor ? tensor->View() : none);
    for (auto& tensor : outputs_) out.push_back(tensor ? tensor->View() : none);
    const int count = static_cast<int>(in.size());
    const axcclChannel_t channel = axcclDefaultChannel(comm);
    const auto r = static_cast<size_t>(rank_);
    if (!c_.sent.empty()) {
      for (size_t k = 0; k < in.size(); ++k) send_.insert(send_.end(), c_.sent[r].begin(), c_.sent[r].end());
      for (size_t k = 0; k < in.size(); ++k) {
        for (const Sizes& row : c_.sent) receive_.push_back(row[r]);
      }
    }
    switch (c_.op) {
      case Op::kAllGatherV:
        return axcclAllGatherV(count, in.data(), out.data(), c_.dim, c_.extents.data(), channel, nullptr, stream);
      case Op::kReduceScatterV:
        return axcclReduceScatterV(count, in.data(), out.data(), c_.dim, c_.fold, c_.extents.data(), channel, nullptr,
                                   stream);
      case Op::kGatherV:
        return axcclGatherV(count, in.data(), out.data(), c_.dim, c_.root, c_.extents.data(), channel, nullptr, stream);
      case Op::kScatterV:
        return axcclScatterV(count, in.data(), out.data(), c_.dim, c_.root, c_.extents.data(), channel, nullptr,
                             stream);
      case Op::kAllToAllV:
        return axcclAllToAllV(count, in.data(), out.data(), c_.dim, send_.data(), receive_.data(), channel, nullptr,
                              stream);
      case Op::kRagged:
        return axcclRaggedAllToAll(count, in.data(), out.data(), c_.dim, c_.input_offsets[r].data(), send_.data(),
                                   c_.targets[r].data(), receive_.data(), channel, nullptr, stream);
      case Op::kFrom:
        return axcclBroadcastFrom(count, in.data(), out.data(), c_.roots.data(), channel, nullptr, stream);
      case Op::kTo:
        return axcclReduceTo(count, in.data(), out.data(), c_.fold, c_.roots.data(), channel, nullptr, stream);
    }
    return ncclInternalError;
  }

  void Check() const {
    for (const auto* side : {&inputs_, &outputs_}) {
      for (const auto& tensor : *side) {
        if (tensor)
          EXPECT_EQ(tensor->FirstWrong(), -1)
              << "byte of rank " << rank_ << " of " << c_.nranks << (side == &inputs_ ? " input " : " output ")
              << &tensor - side->data() << ": " << c_.Text();
      }
    }
  }

 private:
  // None of -1 rows.
  std::unique_ptr<Tensor> Make(const Operand& operand, int64_t rows, std::vector<std::unique_ptr<Arena>>* arenas,
                               Random* random) {
    if (rows < 0) return nullptr;
    Sizes sizes = operand.row;
    sizes[static_cast<size_t>(c_.dim)] = rows;
    const bool mapped = c_.seed % 2 == 0 || random->OneIn(2);
    return std::make_unique<Tensor>(sizes, operand.type, (*arenas)[mapped ? 0 : 1].get(), random);
  }

  void Fill(size_t k) {
    if (!inputs_[k]) return;
    ForEachIndex(inputs_[k]->placement.sizes,
                 [&](const Sizes& index) { inputs_[k]->Write(index, InputElementOf(c_, k, rank_, index)); });
  }

  void Predict(size_t k) {
    if (!outputs_[k]) return;
    Tensor& tensor = *outputs_[k];
    const Operand& operand = c_.operands[k];
    if (c_.op == Op::kTo && c_.roots[k] != rank_)
      ForEachIndex(tensor.placement.sizes, [&](const Sizes& index) { tensor.Expect(index, Element{}); });
    for (const Transfer& t : operand.transfers) {
      if (t.destination != rank_) continue;
      Sizes sizes = operand.row;
      sizes[static_cast<size_t>(c_.dim)] = t.rows;
      ForEachIndex(sizes, [&](const Sizes& index) {
        Sizes from = index, to = index;
        from[static_cast<size_t>(c_.dim)] += t.from;
        to[static_cast<size_t>(c_.dim)] += t.to;
        tensor.Expect(to, c_.Reduces() ? FoldedElement(c_, k, from) : InputElementOf(c_, k, t.source, from));
      });
    }
  }

  const Case& c_;
  const int rank_;
  std::vector<std::unique_ptr<Tensor>> inputs_, outputs_;
  Sizes send_, receive_;
};

void RunCases(RankContext& context, uint64_t seed, int cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  std::vector<std::vector<std::unique_ptr<Arena>>> arenas(static_cast<size_t>(clique.size()));
  for (auto& own : arenas) {
    for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
      own.push_back(Arena::Create(memory, size_t{48} << 20));
  }
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    const Case c = AnyCase(&random, clique.nranks());
    ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
    std::vector<std::unique_ptr<Part>> parts;
    for (int m = 0; m < clique.size(); ++m)
      parts.push_back(std::make_unique<Part>(c, clique.rank(m), &arenas[static_cast<size_t>(m)]));
    ASSERT_OK(ncclGroupStart());
    for (int m = 0; m < clique.size(); ++m)
      EXPECT_OK(parts[static_cast<size_t>(m)]->Launch(clique.comm(m), Cuda(clique.stream(m)))) << c.Text();
    ASSERT_OK(ncclGroupEnd()) << c.Text();
    ASSERT_TRUE(clique.Synchronize()) << c.Text();
    for (const auto& part : parts) part->Check();
    for (auto& own : arenas) {
      for (auto& arena : own) {
        EXPECT_EQ(arena->CheckSentinels(), "") << c.Text();
        arena->Reset();
      }
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

class UnevenTest : public testing::TestWithParam<Layout> {};

TEST_P(UnevenTest, RandomCasesAgreeWithTheDefinition) {
  uint64_t round = static_cast<uint64_t>(GetParam().processes * 100 + GetParam().threads * 10 + GetParam().ranks);
  for (const char* algorithms : {"", "ring"}) {
    const uint64_t seed = Scramble(Seed(), ++round, 0xbe7);
    RunOptions options;
    options.environment = {{"NCCL_ALGO", algorithms}, {"AXCCL_SCRATCH_BYTES", "128K"}};
    RunRanks(
        GetParam(), [&](RankContext& context) { RunCases(context, seed, 250); }, options);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnevenTest,
                         testing::Values(harness::Processes(1), harness::Processes(2), harness::Processes(3),
                                         harness::Processes(5), harness::Threads(2), harness::Threads(4),
                                         harness::OneThread(3), Layout{2, 2, 1}, Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
