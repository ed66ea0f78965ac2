// What collectives on views read and write over memory links, counted where the executor calls the movers. Each byte of
// each input is read once, each byte of each output is written once, by the ranks that the plan names. No temporary
// byte is read or written.
#include "tests/exec/counting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "src/algo/algo.h"
#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using plan::Contract;
using plan::Kind;
using Order = std::vector<int>;  // dimensions; the indices of the first are neighbours in memory

constexpr Kind kKinds[] = {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce, Kind::kAllToAll,
                           Kind::kGather,    Kind::kScatter,       Kind::kBroadcast, Kind::kReduce};

bool Splits(Kind kind) { return kind == Kind::kReduceScatter || kind == Kind::kScatter || kind == Kind::kAllToAll; }
bool Joins(Kind kind) { return kind == Kind::kAllGather || kind == Kind::kGather || kind == Kind::kAllToAll; }

// One operand of a call: the form of its blocks, where dimensions lie in memory, and the rows of uneven blocks.
struct Form {
  BlockForm blocks;
  DataType type = DataType::kInt32;
  Order input_order, output_order;
  int dim = -1;                            // uneven: the dimension of the rows
  std::vector<std::vector<int64_t>> rows;  // uneven: from rank to rank; [0][r] is of rank r except for all-to-all
};

struct Tensor {
  int rank = 0;
  size_t operand = 0;
  tensor::Shape shape;
  std::byte* data = nullptr;
  int64_t strides[tensor::kMaxDims] = {};
};

struct Counted {
  Contract contract;
  std::vector<Form> forms;

  bool ragged = false;              // all-to-all: rows and where they go are read when the call starts
  std::vector<int32_t> roots = {};  // likewise the rank that owns each operand; the other ranks give nothing

  bool uneven() const { return forms[0].dim >= 0 || !roots.empty(); }
  // Rows of the blocks of a rank's input or output, in order.
  std::vector<int64_t> Rows(const Form& form, int rank, bool input) const {
    const auto r = static_cast<size_t>(rank);
    const int blocks = input ? plan::InputBlocks(contract, rank) : plan::OutputBlocks(contract, rank);
    if (contract.kind == Kind::kAllToAll) {
      std::vector<int64_t> rows;
      for (size_t q = 0; q < form.rows.size(); ++q) rows.push_back(input ? form.rows[r][q] : form.rows[q][r]);
      return rows;
    }
    if (blocks == 0) return {};
    return blocks == 1 ? std::vector{form.rows[0][r]} : form.rows[0];
  }
};

std::vector<Piece> Follow(const std::vector<int64_t>& rows) {
  std::vector<Piece> pieces;
  int64_t at = 0;
  for (const int64_t extent : rows) {
    pieces.push_back({at, extent});
    at += extent;
  }
  return pieces;
}

// Makes the calls, drives them to their end, and checks what the counter has seen.
class Trial {
 public:
  Trial(Ensemble* ensemble, Counter* counter, const Counted& counted)
      : ensemble_(ensemble), counter_(counter), counted_(counted) {
    counter->Clear();
    for (int rank = 0; rank < ensemble->ranks(); ++rank) calls_.push_back(MakeCall(rank));
  }

  testing::AssertionResult Drive() {
    std::vector<std::optional<Operation>> operations(calls_.size());
    for (size_t i = 0; i < calls_.size(); ++i)
      operations[i].emplace(ensemble_->channel(static_cast<int>(i)), calls_[i]);
    size_t left = operations.size();
    for (int round = 0; left > 0; ++round) {
      if (round > 100000) return testing::AssertionFailure() << "no rank makes progress";
      for (size_t i = 0; i < operations.size(); ++i) {
        if (!operations[i]) continue;
        const int rank = static_cast<int>(i);
        counter_->SetRank(rank);
        if (ensemble_->Step(rank, &*operations[i]) != device::host::Poll::kDone) continue;
        if (!operations[i]->status().ok()) return testing::AssertionFailure() << operations[i]->status().message();
        operations[i].reset();
        --left;
      }
    }
    return testing::AssertionSuccess();
  }

  void Check() const {
    uint64_t read = 0, written = 0;
    for (const Tensor& tensor : inputs_) {
      // With roots, the inputs of other ranks are not read.
      if (counted_.roots.empty() || tensor.rank == counted_.roots[tensor.operand]) read += CheckOnce(tensor, false);
    }
    for (const Tensor& tensor : outputs_) written += CheckOnce(tensor, true);
    // No other bytes are read.
    EXPECT_EQ(counter_->total().read, read);
    EXPECT_EQ(counter_->total().written, written);
    EXPECT_EQ(counter_->flat_calls(), 0);
    for (int rank = 0; rank < ensemble_->ranks(); ++rank) {
      EXPECT_EQ(ensemble_->owner(rank)->bytes_read(), 0u) << "by system call";
    }
  }

  // Bytes of one block of every operand.
  uint64_t block_bytes() const { return calls_[0].count * ElementSize(calls_[0].type); }

 private:
  // Checks that each byte of a tensor has been touched once; returns their number.
  uint64_t CheckOnce(const Tensor& tensor, bool written) const {
    const auto elements = static_cast<uint64_t>(tensor::Elements(tensor.shape));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < elements; ++i) {
      int64_t at = 0;
      uint64_t rest = i;
      for (int d = tensor.shape.dims; d-- > 0; rest /= static_cast<uint64_t>(tensor.shape.sizes[d]))
        at += static_cast<int64_t>(rest % static_cast<uint64_t>(tensor.shape.sizes[d])) * tensor.strides[d];
      const std::byte* p = tensor.data + at * 4;
      for (int byte = 0; byte < 4; ++byte)
        wrong += (written ? counter_->Writes(p + byte) : counter_->Reads(p + byte)) != 1;
    }
    EXPECT_EQ(wrong, 0u) << "bytes of " << elements * 4 << " not " << (written ? "written" : "read") << " once";
    return elements * 4;
  }

  Tensor Make(int rank, size_t index, const tensor::Shape& shape, const Order& order) {
    Tensor tensor;
    tensor.rank = rank, tensor.operand = index;
    tensor.shape = shape;
    int64_t step = 1;
    for (const int d : order) {
      tensor.strides[d] = step;
      step *= shape.sizes[d];
    }
    tensor.data = ensemble_->Allocate(rank, static_cast<size_t>(step) * 4 + 4, 64, true);
    return tensor;
  }

  void AddOperand(int rank, const Form& form, ViewList* list) {
    ViewOperand operand;
    operand.form = form.blocks;
    operand.type = form.type;
    operand.dim = form.dim;
    for (const bool input : {true, false}) {
      const int blocks =
          input ? plan::InputBlocks(counted_.contract, rank) : plan::OutputBlocks(counted_.contract, rank);
      if (blocks == 0) continue;
      tensor::Shape shape = form.blocks.OperandShape(input ? form.blocks.split : form.blocks.concat, blocks);
      if (form.dim >= 0) {
        const std::vector<Piece> pieces = Follow(counted_.Rows(form, rank, input));
        (input ? operand.pieces.input : operand.pieces.output) = pieces;
        shape = form.blocks.shape;
        shape.sizes[form.dim] = pieces.back().offset + pieces.back().extent;
        (input ? operand.pieces.input_rows : operand.pieces.output_rows) = shape.sizes[form.dim];
      }
      const Tensor tensor = Make(rank, list->operands.size(), shape, input ? form.input_order : form.output_order);
      (input ? inputs_ : outputs_).push_back(tensor);
      std::copy_n(tensor.strides, tensor::kMaxDims, input ? operand.input_strides : operand.output_strides);
      if (input) operand.input = tensor.data;
      if (!input) operand.output = tensor.data;
    }
    if (counted_.ragged || !counted_.roots.empty()) ForgetPieces(rank, &operand);
    operand.block_bytes = static_cast<uint64_t>(tensor::Elements(form.blocks.shape)) * ElementSize(form.type);
    list->operands.push_back(operand);
  }

  // Fills in what the API gives to calls whose numbers are read later.
  void ForgetPieces(int rank, ViewOperand* operand) const {
    const auto n = static_cast<size_t>(counted_.contract.ranks);
    if (counted_.ragged) {
      operand->pieces.input.assign(n, {0, 0});
      operand->pieces.output.assign(n, {0, 0});
      operand->pieces.targets.resize(n);
    } else {
      operand->pieces.input.assign(1, {0, 1});
      operand->pieces.output.assign(n, {0, 1});
      operand->pieces.input_rows = operand->pieces.output_rows = 1;
    }
  }

  // Makes the numbers that the call reads when it starts.
  LatePieces MakeLate(int rank) {
    if (!counted_.roots.empty()) return {.roots = counted_.roots.data()};
    if (!counted_.ragged) return {};
    const auto& rows = counted_.forms[0].rows;
    const auto r = static_cast<size_t>(rank);
    auto& numbers = numbers_.emplace_back(std::make_unique<std::vector<int64_t>[]>(4));
    for (const Piece& piece : Follow(rows[r])) {
      numbers[0].push_back(piece.offset);
      numbers[1].push_back(piece.extent);
    }
    for (size_t q = 0; q < rows.size(); ++q) {
      int64_t before = 0;
      for (size_t s = 0; s < r; ++s) before += rows[s][q];
      numbers[2].push_back(before);
      numbers[3].push_back(rows[q][r]);
    }
    return {numbers[0].data(), numbers[1].data(), numbers[2].data(), numbers[3].data(), nullptr};
  }

  Call MakeCall(int rank) {
    Call call;
    call.kind = counted_.contract.kind;
    call.root = counted_.contract.root;
    ViewList list;
    for (const Form& form : counted_.forms) AddOperand(rank, form, &list);
    list.uneven = counted_.uneven();
    list.late = MakeLate(rank);
    call.type = list.CommonType();
    call.count = list.uneven ? 0 : list.BlockCount();
    call.input = list.operands[0].input;
    call.output = list.operands[0].output;
    call.views = std::make_shared<ViewList>(std::move(list));
    return call;
  }

  Ensemble* const ensemble_;
  Counter* const counter_;
  const Counted& counted_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<std::unique_ptr<std::vector<int64_t>[]>> numbers_;
  std::vector<Call> calls_;
};

// The minimum that a rank reads and writes, shared evenly where the contract leaves it open.
Volume LeastOf(const Contract& c, uint64_t block) {
  const auto n = static_cast<uint64_t>(c.ranks);
  switch (c.kind) {
    case Kind::kAllGather:
      return {block, n * block};
    case Kind::kReduceScatter:
      return {n * block, block};
    case Kind::kAllToAll:
      return {n * block, n * block};
    case Kind::kBroadcast:
      return {block / n, block};
    case Kind::kReduce:
      return {block, block / n};
    default:
      return {block, block};  // all-reduce, gather, scatter
  }
}

// What a rank reads and writes by the schedule.
Volume PlannedOf(const plan::Schedule& schedule, int rank, uint64_t block) {
  Volume volume;
  for (const plan::Op& op : schedule.program[static_cast<size_t>(rank)][0].ops) {
    for (const plan::Operand& o : op.src) volume.read += static_cast<uint64_t>(o.parts) * block;
    for (const plan::Operand& o : op.dst) volume.written += static_cast<uint64_t>(o.parts) * block;
  }
  volume.read /= static_cast<uint64_t>(schedule.parts);
  volume.written /= static_cast<uint64_t>(schedule.parts);
  return volume;
}

// Likewise for parts of different sizes; `row` is the size of a row in bytes.
Volume LeastOf(const Contract& c, const Form& form, int rank, uint64_t row) {
  const auto n = static_cast<uint64_t>(c.ranks);
  const auto r = static_cast<size_t>(rank);
  uint64_t received = 0;
  for (const auto& rows : form.rows) received += static_cast<uint64_t>(rows[r]) * row;
  const uint64_t own = static_cast<uint64_t>(form.rows[0][r]) * row;
  switch (c.kind) {
    case Kind::kAllGather:
      return {own, n * own};
    case Kind::kReduceScatter:
      return {n * own, own};
    case Kind::kAllToAll:
      return {received, received};
    default:
      return {own, own};  // gather, scatter
  }
}

std::vector<Order> AllOrders(int dims) {
  std::vector<Order> orders;
  Order order(static_cast<size_t>(dims));
  std::iota(order.begin(), order.end(), 0);
  do orders.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

// Every choice of dimensions that the kind has. The number of cache lines in a block is divisible by all numbers of
// ranks used here.
std::vector<BlockForm> AllForms(Kind kind, int dims) {
  BlockForm form;
  form.shape = dims == 2 ? tensor::Shape{2, {8, 24}} : tensor::Shape{3, {4, 6, 8}};
  std::vector<BlockForm> forms;
  for (form.split = Splits(kind) ? 0 : -1; form.split < (Splits(kind) ? dims : 0); ++form.split) {
    for (form.concat = Joins(kind) ? 0 : -1; form.concat < (Joins(kind) ? dims : 0); ++form.concat)
      forms.push_back(form);
  }
  return forms;
}

EnsembleOptions Options(int ranks, Layout layout, Kind kind) {
  EnsembleOptions options;
  options.ranks = ranks;
  options.layout = layout;
  options.algorithms = Only(kind, "direct");
  return options;
}

class CountingTest : public testing::TestWithParam<std::tuple<int, Layout>> {};

TEST_P(CountingTest, EveryOperationDimensionAndOrder) {
  const auto [ranks, layout] = GetParam();
  int runs = 0;
  for (const Kind kind : kKinds) {
    Ensemble ensemble(Options(ranks, layout, kind));
    Counter counter(&ensemble);
    const Contract contract{kind, ranks, plan::HasRoot(kind) ? ranks - 1 : 0};
    const plan::Schedule schedule = algo::Generate(contract, "direct", 1).value();
    EXPECT_EQ(schedule.slots, 0) << "no scratch";
    for (const int dims : {2, 3}) {
      for (const BlockForm& form : AllForms(kind, dims)) {
        for (const Order& in : AllOrders(dims)) {
          for (const Order& out : AllOrders(dims)) {
            const Counted counted{contract, {{form, DataType::kInt32, in, out, -1, {}}}};
            SCOPED_TRACE(std::string(plan::KindName(kind)) + " " + Text(form, DataType::kInt32) + ", orders " +
                         testing::PrintToString(in) + " " + testing::PrintToString(out));
            Trial trial(&ensemble, &counter, counted);
            ASSERT_TRUE(trial.Drive());
            trial.Check();
            for (int rank = 0; rank < ranks; ++rank) {
              const Volume least = LeastOf(contract, trial.block_bytes()), found = counter.of(rank),
                           planned = PlannedOf(schedule, rank, trial.block_bytes());
              EXPECT_EQ(found.read, least.read) << "rank " << rank;
              EXPECT_EQ(found.written, least.written) << "rank " << rank;
              EXPECT_EQ(found.read, planned.read) << "rank " << rank;
              EXPECT_EQ(found.written, planned.written) << "rank " << rank;
            }
            ASSERT_FALSE(HasFailure());
            ++runs;
          }
        }
      }
    }
    EXPECT_STREQ(ensemble.owner(0)->last_algorithm(), "direct");
  }
  std::printf("%d calls counted\n", runs);
}

// Blocks that lie side by side in rows: every rank reads its own input, or its part of all.
TEST_P(CountingTest, RowsThatAreSplit) {
  const auto [ranks, layout] = GetParam();
  for (const Kind kind : {Kind::kAllToAll, Kind::kReduceScatter}) {
    EnsembleOptions options = Options(ranks, layout, kind);
    options.algorithms = Only(kind, "direct,push");
    Ensemble ensemble(options);
    Counter counter(&ensemble);
    const Contract contract{kind, ranks, 0};
    const BlockForm form{{2, {6, 512}}, 1, kind == Kind::kAllToAll ? 0 : -1};
    const Counted counted{contract, {{form, DataType::kInt32, {0, 1}, {0, 1}, -1, {}}}};
    SCOPED_TRACE(plan::KindName(kind));
    Trial trial(&ensemble, &counter, counted);
    ASSERT_TRUE(trial.Drive());
    trial.Check();
    EXPECT_STREQ(ensemble.owner(0)->last_algorithm(), "push");
    for (int rank = 0; rank < ranks; ++rank) {
      const Volume least = LeastOf(contract, trial.block_bytes()), found = counter.of(rank);
      EXPECT_EQ(found.read, least.read) << "rank " << rank;
      EXPECT_EQ(found.written, least.written) << "rank " << rank;
    }
  }
}

// Operands of different forms in one call.
TEST_P(CountingTest, Lists) {
  const auto [ranks, layout] = GetParam();
  for (const Kind kind : kKinds) {
    Ensemble ensemble(Options(ranks, layout, kind));
    Counter counter(&ensemble);
    const Contract contract{kind, ranks, 0};
    const std::vector<BlockForm> flat = AllForms(kind, 2), deep = AllForms(kind, 3);
    for (size_t i = 0; i < flat.size(); ++i) {
      Counted counted{contract, {}};
      // All operands of a call have the same dimensions; the rest differs.
      for (const BlockForm& form : {flat[i], deep[i % deep.size()], flat[i]}) {
        BlockForm same = form;
        same.split = flat[i].split, same.concat = flat[i].concat;
        const int dims = same.shape.dims;
        if (counted.forms.size() == 2) same.shape.sizes[0] = 5;
        counted.forms.push_back({same, DataType::kInt32, AllOrders(dims).back(), AllOrders(dims).front(), -1, {}});
      }
      Trial trial(&ensemble, &counter, counted);
      ASSERT_TRUE(trial.Drive()) << plan::KindName(kind);
      trial.Check();
      ASSERT_FALSE(HasFailure()) << plan::KindName(kind);
    }
  }
}

// Parts of different sizes, an empty one among them.
TEST_P(CountingTest, PartsOfDifferentSizes) {
  const auto [ranks, layout] = GetParam();
  const auto n = static_cast<size_t>(ranks);
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kGather, Kind::kScatter}) {
    Ensemble ensemble(Options(ranks, layout, kind));
    Counter counter(&ensemble);
    const Contract contract{kind, ranks, 0};
    for (int dim = 0; dim < 3; ++dim) {
      for (const Order& in : AllOrders(3)) {
        for (const Order& out : AllOrders(3)) {
          Form form{{{3, {4, 6, 5}}, -1, -1}, DataType::kInt32, in, out, dim, {}};
          form.blocks.shape.sizes[dim] = 1;
          for (size_t i = 0; i < n; ++i) {
            form.rows.emplace_back(n);
            for (size_t j = 0; j < n; ++j) form.rows[i][j] = static_cast<int64_t>((3 * i + 2 * j + 1) % 5);
          }
          const Counted counted{contract, {form, form}};
          SCOPED_TRACE(std::string(plan::KindName(kind)) + " dim " + std::to_string(dim));
          Trial trial(&ensemble, &counter, counted);
          ASSERT_TRUE(trial.Drive());
          trial.Check();
          const auto row = static_cast<uint64_t>(tensor::Elements(form.blocks.shape)) * sizeof(int32_t);
          for (int rank = 0; rank < ranks; ++rank) {
            const Volume least = LeastOf(contract, form, rank, row), found = counter.of(rank);
            EXPECT_EQ(found.read, 2 * least.read) << "rank " << rank << " of two operands";
            EXPECT_EQ(found.written, 2 * least.written) << "rank " << rank << " of two operands";
          }
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
}

// Parts and roots that are read when the call starts.
TEST_P(CountingTest, RaggedPartsAndRoots) {
  const auto [ranks, layout] = GetParam();
  const auto n = static_cast<size_t>(ranks);
  for (const Order& order : AllOrders(3)) {
    SCOPED_TRACE(testing::PrintToString(order));
    Form form{{{3, {4, 6, 5}}, -1, -1}, DataType::kInt32, order, AllOrders(3).front(), 1, {}};
    form.blocks.shape.sizes[1] = 1;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) form.rows.resize(n), form.rows[i].push_back(static_cast<int64_t>((i + 2 * j) % 4));
    }
    Counted ragged{{Kind::kAllToAll, ranks, 0}, {form}};
    ragged.ragged = true;
    form.blocks.shape.sizes[1] = 6, form.dim = -1, form.rows.clear();
    Counted roots{{Kind::kAllGather, ranks, 0}, {form, form, form}};
    roots.roots = {ranks - 1, 0, ranks - 1};
    for (const Counted* counted : {&ragged, &roots}) {
      Ensemble ensemble(Options(ranks, layout, counted->contract.kind));
      Counter counter(&ensemble);
      Trial trial(&ensemble, &counter, *counted);
      ASSERT_TRUE(trial.Drive());
      trial.Check();
      ASSERT_FALSE(HasFailure());
    }
  }
}

// The counter sees data that pass through scratch.
TEST(Counting, SeesTemporaryBytes) {
  EnsembleOptions options;
  options.ranks = 3;
  options.algorithms = "all_reduce:ring";
  Ensemble ensemble(options);
  Counter counter(&ensemble);
  const BlockForm form = AllForms(Kind::kAllReduce, 2)[0];
  const Counted counted{{Kind::kAllReduce, 3, 0}, {{form, DataType::kInt32, {0, 1}, {1, 0}, -1, {}}}};
  Trial trial(&ensemble, &counter, counted);
  ASSERT_TRUE(trial.Drive());
  EXPECT_GT(counter.total().read, 3 * trial.block_bytes());
  EXPECT_GT(counter.total().written, 3 * trial.block_bytes());
}

// The algorithm that is chosen for large blocks by default. The blocks of the reduce-scatter lie side by side in rows.
TEST_P(CountingTest, DirectOrPushIsTheChoiceForLargeBlocks) {
  const auto [ranks, layout] = GetParam();
  for (const Kind kind : kKinds) {
    EnsembleOptions options = Options(ranks, layout, kind);
    options.algorithms = "";
    options.scratch_bytes = 1 << 20;
    Ensemble ensemble(options);
    Counter counter(&ensemble);
    const Contract contract{kind, ranks, 0};
    BlockForm form{{3, {32, 48, 32}}, Splits(kind) ? 1 : -1, Joins(kind) ? 2 : -1};
    const Counted counted{contract, {{form, DataType::kInt32, {1, 0, 2}, {2, 1, 0}, -1, {}}}};
    Trial trial(&ensemble, &counter, counted);
    ASSERT_TRUE(trial.Drive());
    EXPECT_STREQ(ensemble.owner(0)->last_algorithm(), kind == Kind::kReduceScatter ? "push" : "direct")
        << plan::KindName(kind);
    trial.Check();
  }
}

INSTANTIATE_TEST_SUITE_P(All, CountingTest,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(Layout::kThreads, Layout::kHeap)),
                         [](const auto& info) {
                           return std::string(LayoutName(std::get<1>(info.param))) +
                                  std::to_string(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace axccl::exec
