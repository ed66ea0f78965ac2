#include "src/program/transform/axis.h"

#include <map>
#include <tuple>
#include <utility>

#include "src/program/builder.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
namespace {

class AxisWriter {
 public:
  AxisWriter(const Transformed& before, const Axis& axis)
      : before_(before),
        axis_(axis),
        function_(before.program.parts[0].function),
        ranks_(before.program.ranks),
        channel_(FreeChannel(before.program)),
        builder_(function_.name) {
    for (int64_t i = 0; i < axis.ranks; ++i) {
      copies_.emplace_back();
      for (int64_t r = 0; r < ranks_; ++r) copies_.back().push_back(r + i * ranks_);
    }
    for (int64_t r = 0; r < ranks_; ++r) {
      groups_.emplace_back();
      for (int64_t i = 0; i < axis.ranks; ++i) groups_.back().push_back(r + i * ranks_);
    }
  }

  Transformed Run() {
    for (size_t i = 0; i < function_.arguments.size(); ++i) {
      const Value& argument = function_.arguments[i];
      const Id id = builder_.Argument(PieceOf(argument.type, axis_.arguments[i], axis_.ranks), argument.donated);
      values_[argument.id] = {&argument.type, axis_.arguments[i], id};
    }
    const std::vector<bool> forward = ForwardOf(function_, before_.losses);
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      is_forward_ = forward[i];
      Emit(function_.operations[i], axis_.spread.steps[i]);
    }
    return Finish();
  }

 private:
  struct Piece {
    const TensorType* whole;
    Layout layout;
    Id id;
    const Operation* maker = nullptr;
  };

  void Emit(const Operation& operation, const SpreadStep& step) {
    if (IsMadeWhenNeeded(operation, step)) {
      values_[operation.id] = {&operation.results[0].type, Layout(), kNoId, &operation};
      return;
    }
    Operation piece = WithRanks(operation, copies_);
    for (size_t i = 0; i < piece.operands.size(); ++i)
      piece.operands[i] = Bring(operation.operands[i], step.operands[i]);
    for (size_t i = 0; i < piece.results.size(); ++i)
      piece.results[i].type = PieceOf(operation.results[i].type, step.results[i], axis_.ranks);
    FitToResult(operation, &piece);
    if (operation.kind == OpKind::kPartitionId && axis_.ranks > 1) {
      values_[operation.id] = {&operation.results[0].type, Layout(), Remainder(ranks_), &operation};
      return;
    }
    const Operation& written = builder_.operations()[builder_.Append(std::move(piece))];
    std::vector<Id> ids;
    for (const Value& result : written.results) ids.push_back(result.id);
    for (size_t i = 0; i < ids.size(); ++i) {
      values_[operation.results[i].id] = {&operation.results[i].type, step.results[i], ids[i], &operation};
      if (axis_.reduces_at_once && !is_forward_ && step.results[i].is_terms()) ReduceAtOnce(operation.results[i].id);
    }
  }

  // What may be needed smaller only.
  static bool IsMadeWhenNeeded(const Operation& operation, const SpreadStep& step) {
    const OpKind kind = operation.kind;
    return (kind == OpKind::kConstant || kind == OpKind::kIota || kind == OpKind::kBroadcastInDim) &&
           step.results[0].is_same();
  }

  // If terms become slices where they are used next, now.
  void ReduceAtOnce(Id value) {
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      for (size_t o = 0; o < operation.operands.size(); ++o) {
        const Layout& layout = axis_.spread.steps[i].operands[o];
        if (operation.operands[o] != value || !layout.is_split()) continue;
        Bring(value, layout);
        return;
      }
    }
  }

  // The value in that layout. What is brought there once serves all later uses; but what the forward pass gathered, the
  // backward pass gathers again.
  Id Bring(Id value, const Layout& layout) {
    Piece& piece = values_.at(value);
    if (piece.layout == layout) {
      if (piece.id == kNoId) piece.id = Make(*piece.maker, *piece.whole);
      return piece.id;
    }
    const bool is_gathered = piece.layout.is_split() && layout.is_same();
    const auto [found, added] =
        brought_.emplace(std::tuple(value, layout.is_split() ? layout.dim : -1, is_gathered && is_forward_), 0);
    if (added) found->second = Convert(piece, layout);
    return found->second;
  }

  Id Convert(const Piece& piece, const Layout& layout) {
    const TensorType type = PieceOf(*piece.whole, layout, axis_.ranks);
    if (piece.layout.is_terms() && layout.is_split()) {
      return builder_.Add(OpKind::kReduceScatter, {piece.id}, type,
                          {{Attr::kFold, piece.layout.fold},
                           {Attr::kDim, int64_t{layout.dim}},
                           {Attr::kGroups, groups_},
                           {Attr::kChannel, channel_}});
    }
    if (piece.layout.is_terms()) {
      return builder_.Add(OpKind::kAllReduce, {piece.id}, type,
                          {{Attr::kFold, piece.layout.fold}, {Attr::kGroups, groups_}, {Attr::kChannel, channel_}});
    }
    if (piece.layout.is_same()) return Slice(piece, layout.dim, type);
    if (layout.is_same()) {
      return builder_.Add(
          OpKind::kAllGather, {piece.id}, type,
          {{Attr::kDim, int64_t{piece.layout.dim}}, {Attr::kGroups, groups_}, {Attr::kChannel, channel_}});
    }
    return builder_.Add(OpKind::kAllToAll, {piece.id}, type,
                        {{Attr::kSplitDim, int64_t{layout.dim}},
                         {Attr::kConcatDim, int64_t{piece.layout.dim}},
                         {Attr::kGroups, groups_},
                         {Attr::kChannel, channel_}});
  }

  Id Slice(const Piece& piece, int dim, const TensorType& type) {
    if (piece.maker != nullptr && IsEverywhereTheSame(*piece.maker, dim)) {
      return Make(*piece.maker, type);
    }
    std::vector<Id> operands{piece.id != kNoId ? piece.id : Make(*piece.maker, *piece.whole)};
    const TensorType number{DataType::kUint32, {}};
    for (size_t d = 0; d < type.dims.size(); ++d) {
      if (d != static_cast<size_t>(dim)) {
        operands.push_back(builder_.Constant(number, 0));
      } else {
        const Id size = builder_.Constant(number, static_cast<double>(type.dims[d]));
        operands.push_back(builder_.Elementwise(OpKind::kMultiply, {Place(), size}));
      }
    }
    return builder_.Add(OpKind::kDynamicSlice, operands, type, {{Attr::kSizes, type.dims}});
  }

  // The operation, of what all ranks have, with a result of that type.
  Id Make(const Operation& operation, const TensorType& type) {
    Operation made = operation;
    for (Id& operand : made.operands) operand = Bring(operand, Layout());
    made.results[0].type = type;
    return builder_.operations()[builder_.Append(std::move(made))].id;
  }

  // Of the rank, on the axis.
  Id Place() {
    if (place_ == kNoId) {
      const TensorType number{DataType::kUint32, {}};
      place_ = builder_.Elementwise(OpKind::kDivide, {builder_.Add(OpKind::kPartitionId, {}, number),
                                                      builder_.Constant(number, static_cast<double>(ranks_))});
    }
    return place_;
  }
  Id Remainder(int64_t ranks) {
    const TensorType number{DataType::kUint32, {}};
    return builder_.Elementwise(OpKind::kRemainder, {builder_.Add(OpKind::kPartitionId, {}, number),
                                                     builder_.Constant(number, static_cast<double>(ranks))});
  }

  Transformed Finish() {
    is_forward_ = false;
    const std::vector<size_t> state = StateOf(function_);
    Transformed after;
    after.tensor_ranks = before_.tensor_ranks;
    after.losses = before_.losses;
    after.arguments = before_.arguments;
    after.results = before_.results;
    std::vector<Id> results;
    for (size_t i = 0; i < function_.results.size(); ++i) {
      Layout layout = values_.at(function_.results[i]).layout;
      if (layout.is_terms()) layout = Layout();
      if (i < state.size()) layout = axis_.arguments[state[i]];
      results.push_back(Bring(function_.results[i], layout));
      AddCut(layout, &after.results[0][i]);
    }
    for (size_t i = 0; i < axis_.arguments.size(); ++i) AddCut(axis_.arguments[i], &after.arguments[0][i]);
    Part part{{}, builder_.Finish(std::move(results))};
    for (int64_t r = 0; r < ranks_ * axis_.ranks; ++r) part.ranks.push_back(r);
    after.program.ranks = static_cast<int>(ranks_ * axis_.ranks);
    after.program.parts.push_back(std::move(part));
    return after;
  }

  void AddCut(const Layout& layout, Origin* origin) const {
    if (layout.is_split()) origin->cuts.push_back({static_cast<size_t>(layout.dim), axis_.ranks, ranks_});
  }

  static constexpr Id kNoId = ~Id{0};

  const Transformed& before_;
  const Axis& axis_;
  const Function& function_;
  const int64_t ranks_;  // of the program before
  const int64_t channel_;
  Builder builder_;
  std::vector<Ints> copies_;  // [place on the axis][rank before]
  Groups groups_;             // along the axis
  std::unordered_map<Id, Piece> values_;
  std::map<std::tuple<Id, int, bool>, Id> brought_;
  Id place_ = kNoId;
  bool is_forward_ = false;
};

}  // namespace

Transformed Write(const Transformed& before, const Axis& axis) { return AxisWriter(before, axis).Run(); }

}  // namespace axccl::program
