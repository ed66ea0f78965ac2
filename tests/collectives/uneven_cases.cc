#include "tests/collectives/uneven_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace axccl::tests {
namespace {

using harness::GuardedArena;
using harness::Random;
using harness::Scramble;
using harness::Seed;

constexpr int kNumOps = 8;
constexpr const char* kOpNames[kNumOps] = {"AllGatherV", "ReduceScatterV", "GatherV",       "ScatterV",
                                           "AllToAllV",  "RaggedAllToAll", "BroadcastFrom", "ReduceTo"};

int64_t AnyExtent(Random* random, int64_t most) {
  if (random->OneIn(3)) return 0;
  return static_cast<int64_t>(random->Below(random->OneIn(10) ? static_cast<uint64_t>(most) : 6));
}

// The starts of consecutive parts.
Sizes Starts(const Sizes& extents) {
  Sizes starts(extents.size());
  std::exclusive_scan(extents.begin(), extents.end(), starts.begin(), int64_t{0});
  return starts;
}

// The rows that pairs of ranks exchange in every operand.
void AnyAllToAll(UnevenCase* c, int64_t most_rows, Random* random) {
  const auto n = static_cast<size_t>(c->nranks);
  c->sent.assign(n, Sizes(n));
  c->input_offsets = c->targets = c->sent;
  for (Sizes& row : c->sent) std::generate(row.begin(), row.end(), [&] { return AnyExtent(random, most_rows); });
  for (size_t i = 0; i < n; ++i) {
    c->input_offsets[i] = Starts(c->sent[i]);
    int64_t at = 0;
    for (size_t s = 0; s < n; ++s) {
      // Ragged parts are in any order, with gaps; several ranks may get the same rows of an input.
      const size_t source = c->op == UnevenOp::kRagged ? (s + i) % n : s;
      if (c->op == UnevenOp::kRagged && random->OneIn(3)) at += static_cast<int64_t>(random->Below(4));
      c->targets[source][i] = at;
      at += c->sent[source][i];
    }
    if (c->op != UnevenOp::kRagged) continue;
    for (int64_t& offset : c->input_offsets[i]) offset = static_cast<int64_t>(random->Below(5));
  }
}

// Adds the transfers of one operand, given the extents by rank.
void AddTransfers(const UnevenCase& c, const Sizes& extents, UnevenOperand* operand) {
  const Sizes starts = Starts(extents);
  for (int i = 0; i < c.nranks; ++i) {
    const auto r = static_cast<size_t>(i);
    for (int j = 0; j < c.nranks; ++j) {
      const auto d = static_cast<size_t>(j);
      switch (c.op) {
        case UnevenOp::kAllGatherV:
          operand->transfers.push_back({i, j, 0, starts[r], extents[r]});
          break;
        case UnevenOp::kGatherV:
          if (j == c.root) operand->transfers.push_back({i, j, 0, starts[r], extents[r]});
          break;
        case UnevenOp::kScatterV:
          if (i == c.root) operand->transfers.push_back({i, j, starts[d], 0, extents[d]});
          break;
        case UnevenOp::kReduceScatterV:
          if (i == 0) operand->transfers.push_back({i, j, starts[d], 0, extents[d]});
          break;
        default:
          operand->transfers.push_back({i, j, c.input_offsets[r][d], c.targets[r][d], c.sent[r][d]});
      }
    }
  }
}

UnevenOperand AnyOperand(const UnevenCase& c, const Sizes& extents, Random* random) {
  UnevenOperand operand;
  operand.type = c.Reduces() && !c.operands.empty() ? c.operands[0].type : random->Pick(harness::kAllTypes);
  const size_t dims = static_cast<size_t>(c.dim) + 1 + random->Below(3);
  for (size_t d = 0; d < dims; ++d)
    operand.row.push_back(random->OneIn(30) ? 0 : static_cast<int64_t>(1 + random->Below(5)));
  const auto n = static_cast<size_t>(c.nranks);
  operand.input_rows.assign(n, -1);
  operand.output_rows.assign(n, -1);
  if (c.op == UnevenOp::kFrom || c.op == UnevenOp::kTo) {
    const int root = c.roots[c.operands.size()];
    const int64_t rows = operand.row[static_cast<size_t>(c.dim)];
    for (int r = 0; r < c.nranks; ++r) {
      if (c.op == UnevenOp::kFrom) operand.transfers.push_back({root, r, 0, 0, rows});
      operand.input_rows[static_cast<size_t>(r)] = operand.output_rows[static_cast<size_t>(r)] = rows;
    }
    if (c.op == UnevenOp::kTo) operand.transfers.push_back({0, root, 0, 0, rows});
  } else {
    AddTransfers(c, extents, &operand);
    for (int r = 0; r < c.nranks; ++r) {
      const auto i = static_cast<size_t>(r);
      if (c.op != UnevenOp::kScatterV || r == c.root) operand.input_rows[i] = 0;
      if (c.op != UnevenOp::kGatherV || r == c.root) operand.output_rows[i] = 0;
    }
    for (const UnevenTransfer& t : operand.transfers) {
      int64_t& in = operand.input_rows[static_cast<size_t>(t.source)];
      int64_t& out = operand.output_rows[static_cast<size_t>(t.destination)];
      in = std::max(in, t.from + t.rows);
      out = std::max(out, t.to + t.rows);
    }
    if (c.op == UnevenOp::kReduceScatterV)
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

}  // namespace

UnevenCase AnyUnevenCase(Random* random, int nranks, int64_t most_rows) {
  UnevenCase c;
  c.seed = random->Next();
  c.nranks = nranks;
  c.op = static_cast<UnevenOp>(random->Below(kNumOps));
  c.root = static_cast<int>(random->Below(static_cast<uint64_t>(nranks)));
  c.dim = static_cast<int>(random->Below(3));
  c.fold = random->OneIn(2) ? ncclSum : ncclMax;
  if (c.op == UnevenOp::kAllToAllV || c.op == UnevenOp::kRagged) AnyAllToAll(&c, most_rows, random);
  const size_t count = random->OneIn(3) ? 2 + random->Below(4) : 1;
  for (size_t k = 0; k < count; ++k)
    c.roots.push_back(static_cast<int32_t>(random->Below(static_cast<uint64_t>(nranks))));
  for (size_t k = 0; k < count; ++k) {
    Sizes extents(static_cast<size_t>(nranks));
    std::generate(extents.begin(), extents.end(), [&] { return AnyExtent(random, most_rows); });
    c.operands.push_back(AnyOperand(c, extents, random));
    c.extents.insert(c.extents.end(), extents.begin(), extents.end());
  }
  return c;
}

namespace {

Element InputElementOf(const UnevenCase& c, size_t k, int rank, const Sizes& index) {
  uint64_t hash = Scramble(c.seed, k * 64 + static_cast<uint64_t>(rank));
  for (const int64_t i : index) hash = Scramble(hash, static_cast<uint64_t>(i));
  const ncclDataType_t type = c.operands[k].type;
  if (c.Reduces()) return EncodeInteger(type, static_cast<int64_t>(hash % 3));
  const uint64_t words[2] = {hash, Scramble(hash, 2)};
  Element element;
  std::memcpy(element.data(), words, element.size());
  return element;
}

Element FoldedElement(const UnevenCase& c, size_t k, const Sizes& index) {
  int64_t result = 0;
  for (int rank = 0; rank < c.nranks; ++rank) {
    uint64_t hash = Scramble(c.seed, k * 64 + static_cast<uint64_t>(rank));
    for (const int64_t i : index) hash = Scramble(hash, static_cast<uint64_t>(i));
    const auto value = static_cast<int64_t>(hash % 3);
    result = c.fold == ncclSum ? result + value : std::max(result, value);
  }
  return EncodeInteger(c.operands[k].type, result);
}

}  // namespace

std::string UnevenCase::Text() const {
  return std::string(kOpNames[static_cast<int>(op)]) + " of " + std::to_string(operands.size()) +
         " operands, case seed " + std::to_string(seed) + ", AXCCL_TEST_SEED=" + std::to_string(Seed());
}

UnevenPart::UnevenPart(const UnevenCase& c, int rank, std::vector<std::unique_ptr<GuardedArena>>* arenas)
    : c_(c), rank_(rank) {
  Random random(Scramble(c.seed, 0x9a27, static_cast<uint64_t>(rank)));
  for (size_t k = 0; k < c.operands.size(); ++k) {
    const UnevenOperand& operand = c.operands[k];
    inputs_.push_back(Make(operand, operand.input_rows[static_cast<size_t>(rank)], arenas, &random));
    outputs_.push_back(Make(operand, operand.output_rows[static_cast<size_t>(rank)], arenas, &random));
    Fill(k);
    Predict(k);
  }
}

ncclResult_t UnevenPart::Launch(axcclChannel_t channel, cudaStream_t stream) {
  std::vector<axcclView_t> in, out;
  const axcclView_t none = AXCCL_VIEW_INITIALIZER;
  for (auto& tensor : inputs_) in.push_back(tensor ? tensor->View() : none);
  for (auto& tensor : outputs_) out.push_back(tensor ? tensor->View() : none);
  const int count = static_cast<int>(in.size());
  const auto r = static_cast<size_t>(rank_);
  if (!c_.sent.empty()) {
    for (size_t k = 0; k < in.size(); ++k) send_.insert(send_.end(), c_.sent[r].begin(), c_.sent[r].end());
    for (size_t k = 0; k < in.size(); ++k) {
      for (const Sizes& row : c_.sent) receive_.push_back(row[r]);
    }
  }
  switch (c_.op) {
    case UnevenOp::kAllGatherV:
      return axcclAllGatherV(count, in.data(), out.data(), c_.dim, c_.extents.data(), channel, nullptr, stream);
    case UnevenOp::kReduceScatterV:
      return axcclReduceScatterV(count, in.data(), out.data(), c_.dim, c_.fold, c_.extents.data(), channel, nullptr,
                                 stream);
    case UnevenOp::kGatherV:
      return axcclGatherV(count, in.data(), out.data(), c_.dim, c_.root, c_.extents.data(), channel, nullptr, stream);
    case UnevenOp::kScatterV:
      return axcclScatterV(count, in.data(), out.data(), c_.dim, c_.root, c_.extents.data(), channel, nullptr, stream);
    case UnevenOp::kAllToAllV:
      return axcclAllToAllV(count, in.data(), out.data(), c_.dim, send_.data(), receive_.data(), channel, nullptr,
                            stream);
    case UnevenOp::kRagged:
      return axcclRaggedAllToAll(count, in.data(), out.data(), c_.dim, c_.input_offsets[r].data(), send_.data(),
                                 c_.targets[r].data(), receive_.data(), channel, nullptr, stream);
    case UnevenOp::kFrom:
      return axcclBroadcastFrom(count, in.data(), out.data(), c_.roots.data(), channel, nullptr, stream);
    case UnevenOp::kTo:
      return axcclReduceTo(count, in.data(), out.data(), c_.fold, c_.roots.data(), channel, nullptr, stream);
  }
  return ncclInternalError;
}

void UnevenPart::Check() const {
  for (const auto* side : {&inputs_, &outputs_}) {
    for (const auto& tensor : *side) {
      if (!tensor) continue;
      EXPECT_EQ(tensor->FirstWrong(), -1)
          << "byte of rank " << rank_ << " of " << c_.nranks << (side == &inputs_ ? " input " : " output ")
          << &tensor - side->data() << ": " << c_.Text();
    }
  }
}

// Null for -1 rows.
std::unique_ptr<Tensor> UnevenPart::Make(const UnevenOperand& operand, int64_t rows,
                                         std::vector<std::unique_ptr<GuardedArena>>* arenas, Random* random) {
  if (rows < 0) return nullptr;
  Sizes sizes = operand.row;
  sizes[static_cast<size_t>(c_.dim)] = rows;
  const bool mapped = c_.seed % 2 == 0 || random->OneIn(2);
  return std::make_unique<Tensor>(sizes, operand.type, (*arenas)[mapped ? 0 : 1].get(), random);
}

void UnevenPart::Fill(size_t k) {
  if (!inputs_[k]) return;
  ForEachIndex(inputs_[k]->placement.sizes,
               [&](const Sizes& index) { inputs_[k]->Write(index, InputElementOf(c_, k, rank_, index)); });
}

void UnevenPart::Predict(size_t k) {
  if (!outputs_[k]) return;
  Tensor& tensor = *outputs_[k];
  const UnevenOperand& operand = c_.operands[k];
  if (c_.op == UnevenOp::kTo && c_.roots[k] != rank_)
    ForEachIndex(tensor.placement.sizes, [&](const Sizes& index) { tensor.Expect(index, Element{}); });
  for (const UnevenTransfer& t : operand.transfers) {
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

}  // namespace axccl::tests
