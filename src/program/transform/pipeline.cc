#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "src/base/hash.h"
#include "src/program/builder.h"
#include "src/program/facts.h"
#include "src/program/transform.h"
#include "src/program/transform/stages.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
namespace {

constexpr int kOnce = -1;  // in the place of a microbatch

OpKind FoldedBy(Combine fold) {
  switch (fold) {
    case Combine::kProd:
      return OpKind::kMultiply;
    case Combine::kMax:
      return OpKind::kMaximum;
    case Combine::kMin:
      return OpKind::kMinimum;
    case Combine::kAnd:
      return OpKind::kAnd;
    case Combine::kOr:
      return OpKind::kOr;
    case Combine::kXor:
      return OpKind::kXor;
    default:
      return OpKind::kAdd;
  }
}

class PipelineWriter {
 public:
  PipelineWriter(const Transformed& before, const Spread& spread, const Stages& stages, int num_stages,
                 int microbatches)
      : before_(before),
        function_(before.program.parts[0].function),
        spread_(spread),
        stages_(stages),
        types_(TypesOf(function_)),
        num_stages_(num_stages),
        microbatches_(microbatches),
        channel_(FreeChannel(before.program)) {
    for (int s = 0; s < num_stages; ++s) {
      sites_.emplace_back("stage" + std::to_string(s));
      for (int64_t r = 0; r < before.program.ranks; ++r) sites_.back().names.push_back(NameOf(r, s));
    }
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      for (const Value& result : function_.operations[i].results) makers_[result.id] = i + 1;
      if (stages.stages[i] == kAnywhere) continue;
      if (stages.turns[i] == Turn::kForward) At(stages.stages[i]).forward.push_back(i);
      if (stages.turns[i] == Turn::kBackward) At(stages.stages[i]).backward.push_back(i);
    }
    FindNeeds();
  }

  Transformed Run(const std::vector<std::vector<Pass>>& steps) {
    PlaceArguments();
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      if (stages_.turns[i] != Turn::kBefore || stages_.stages[i] == kAnywhere) continue;
      Emit(i, stages_.stages[i], kOnce);
      Deliver();
    }
    for (const std::vector<Pass>& step : steps) {
      for (int s = 0; s < num_stages_; ++s) {
        const Pass& pass = step[static_cast<size_t>(s)];
        if (pass.microbatch < 0) continue;
        for (const size_t i : (pass.is_forward ? At(s).forward : At(s).backward)) Emit(i, s, pass.microbatch);
      }
      Deliver();
    }
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      if (stages_.turns[i] != Turn::kAfter) continue;
      Emit(i, stages_.stages[i], kOnce);
      Deliver();
    }
    return Finish();
  }

 private:
  using Key = std::pair<Id, int>;  // value, microbatch
  struct HashOfKey {
    size_t operator()(const Key& key) const { return Mix(key.first, static_cast<uint64_t>(key.second)); }
  };

  struct Site {
    explicit Site(std::string name) : builder(std::move(name)) {}
    Builder builder;
    Ints names;                                     // [rank before]
    std::unordered_map<Key, Id, HashOfKey> values;  // what is here
    std::map<std::tuple<Id, int, int>, Id> slices;  // of what all microbatches have: value, microbatch, dimension
    std::vector<Origin> arguments;
    std::vector<size_t> forward, backward;  // operations of a pass
  };

  // A rank of the program before, on a stage. Those that work on the same tensors stay together.
  int64_t NameOf(int64_t rank, int stage) const {
    const int64_t together = before_.tensor_ranks;
    return (rank / together * num_stages_ + stage) * together + rank % together;
  }

  Site& At(int stage) { return sites_[static_cast<size_t>(stage)]; }
  const Layout& LayoutOf(Id value) const { return spread_.layouts.at(value); }

  // On which stages each value is needed. What stands anywhere is made where it is needed, and so are slices that can
  // be made by themselves: their operands are needed there.
  void FindNeeds() {
    for (const Id result : function_.results) {
      if (makers_.Find(result) != 0) needs_[result].insert(StageOfResult(result));
    }
    for (size_t i = function_.operations.size(); i-- > 0;) {
      const Operation& operation = function_.operations[i];
      std::set<int> stages;
      if (stages_.stages[i] != kAnywhere) stages.insert(stages_.stages[i]);
      for (const Value& result : operation.results) {
        if (stages_.stages[i] == kAnywhere) stages.insert(needs_[result.id].begin(), needs_[result.id].end());
      }
      for (size_t k = 0; k < operation.operands.size(); ++k) {
        const Operation* const of_slices = MakerOfSlices(operation.operands[k], spread_.steps[i].operands[k]);
        for (const Id needed : of_slices != nullptr ? of_slices->operands : std::vector<Id>{operation.operands[k]})
          needs_[needed].insert(stages.begin(), stages.end());
      }
    }
  }

  // The operation of which slices of the value, alike for all microbatches, can be made by themselves, if there is one.
  const Operation* MakerOfSlices(Id value, const Layout& layout) const {
    const size_t maker = makers_.Find(value);
    if (maker == 0 || !layout.is_split() || LayoutOf(value).is_split()) return nullptr;
    const Operation& operation = function_.operations[maker - 1];
    const TensorType& whole = *types_.Find(value);
    return PieceOf(whole, layout, microbatches_) != whole && IsEverywhereTheSame(operation, layout.dim) ? &operation
                                                                                                        : nullptr;
  }

  // Arguments are on every stage that uses them; donated ones are given away where the state lives.
  void PlaceArguments() {
    for (const Value& argument : function_.arguments) {
      if (argument.donated) needs_[argument.id].insert(stages_.arguments.at(argument.id));
    }
    for (const Id result : function_.results) {
      if (makers_.Find(result) == 0 && needs_[result].empty()) needs_[result].insert(num_stages_ - 1);
    }
    for (size_t a = 0; a < function_.arguments.size(); ++a) {
      const Value& argument = function_.arguments[a];
      for (const int stage : needs_[argument.id]) {
        const bool is_home = argument.donated && stage == stages_.arguments.at(argument.id);
        At(stage).values[{argument.id, kOnce}] = At(stage).builder.Argument(argument.type, is_home);
        At(stage).arguments.push_back(Moved(before_.arguments[0][a]));
      }
    }
  }

  void Emit(size_t number, int stage, int microbatch) {
    const Operation& operation = function_.operations[number];
    const SpreadStep& step = spread_.steps[number];
    Site& site = At(stage);
    if (operation.kind == OpKind::kPartitionId) {
      site.values[{operation.id, kOnce}] = RankBefore(&site.builder);
      return;
    }
    Operation piece = WithRanks(operation, {site.names});
    for (size_t i = 0; i < piece.operands.size(); ++i)
      piece.operands[i] = Operand(operation.operands[i], step.operands[i], stage, microbatch);
    for (size_t i = 0; i < piece.results.size(); ++i)
      piece.results[i].type = PieceOf(operation.results[i].type, step.results[i], microbatches_);
    FitToResult(operation, &piece);
    const size_t place = site.builder.Append(std::move(piece));
    for (size_t i = 0; i < operation.results.size(); ++i) {
      const Id written = site.builder.operations()[place].results[i].id;  // Keep appends, too
      Keep(operation.results[i].id, step.results[i], stage, microbatch, written);
    }
  }

  // Terms are added to those of the microbatches before.
  void Keep(Id value, const Layout& layout, int stage, int microbatch, Id made) {
    Site& site = At(stage);
    if (!layout.is_terms()) {
      const Key key{value, layout.is_split() ? microbatch : kOnce};
      site.values[key] = made;
      ship_.push_back(key);
      return;
    }
    const auto [sum, first] = site.values.try_emplace({value, kOnce}, made);
    if (!first) sum->second = site.builder.Elementwise(FoldedBy(layout.fold), {sum->second, made});
    if (++terms_[value] == microbatches_) ship_.push_back({value, kOnce});
  }

  Id Operand(Id value, const Layout& layout, int stage, int microbatch) {
    Site& site = At(stage);
    const bool is_split = LayoutOf(value).is_split();
    if (makers_.Find(value) == 0 || !is_split) {
      if (layout.is_split()) return SliceOf(value, layout.dim, stage, microbatch);
      return Whole(value, stage);
    }
    return site.values.at({value, microbatch});
  }

  // What does not depend on the microbatch. Constants, and what is made of them, every stage makes for itself.
  Id Whole(Id value, int stage) {
    Site& site = At(stage);
    const auto found = site.values.find({value, kOnce});
    if (found != site.values.end()) return found->second;
    const size_t maker = makers_.Find(value);
    if (maker != 0 && stages_.stages[maker - 1] == kAnywhere) Emit(maker - 1, stage, kOnce);
    return site.values.at({value, kOnce});
  }

  Id SliceOf(Id value, int dim, int stage, int microbatch) {
    Site& site = At(stage);
    const Layout layout = Layout::Split(dim);
    const TensorType& whole = *types_.Find(value);
    const TensorType type = PieceOf(whole, layout, microbatches_);
    if (type == whole) return Whole(value, stage);
    const auto [found, added] = site.slices.try_emplace({value, microbatch, dim}, 0);
    if (!added) return found->second;
    if (const Operation* const maker = MakerOfSlices(value, layout); maker != nullptr) {
      const auto [shared, is_first] = site.slices.try_emplace({value, kOnce, dim}, 0);
      if (is_first) {
        Operation smaller = *maker;
        for (Id& operand : smaller.operands) operand = Whole(operand, stage);
        smaller.results[0].type = type;
        shared->second = site.builder.operations()[site.builder.Append(std::move(smaller))].id;
      }
      return site.slices[{value, microbatch, dim}] = shared->second;
    }
    Ints starts(type.dims.size()), limits = type.dims;
    const auto d = static_cast<size_t>(dim);
    starts[d] = microbatch * type.dims[d];
    limits[d] = starts[d] + type.dims[d];
    const Id slice =
        site.builder.Add(OpKind::kSlice, {Whole(value, stage)}, type,
                         {{Attr::kStarts, starts}, {Attr::kLimits, limits}, {Attr::kStrides, Ints(limits.size(), 1)}});
    return site.slices[{value, microbatch, dim}] = slice;
  }

  // Sends what has been made since to the stages that need it, in the order of the stages that made it.
  void Deliver() {
    const auto made_on = [&](const Key& key) { return stages_.stages[makers_.Find(key.first) - 1]; };
    std::stable_sort(ship_.begin(), ship_.end(), [&](const Key& a, const Key& b) { return made_on(a) < made_on(b); });
    for (const Key& key : ship_) {
      const int from = made_on(key);
      if (from == kAnywhere) continue;
      for (const int to : needs_[key.first]) {
        if (to != from) Send(key, from, to);
      }
    }
    ship_.clear();
  }

  void Send(const Key& key, int from, int to) {
    Groups pairs;
    for (int64_t r = 0; r < before_.program.ranks; ++r) pairs.push_back({NameOf(r, from), NameOf(r, to)});
    const Id value = At(from).values.at(key);
    Operation send;
    send.kind = OpKind::kSend;
    send.operands = {value};
    send.attributes = {{Attr::kPairs, pairs}, {Attr::kChannel, channel_}};
    const TensorType type = At(from).builder.TypeOf(value);
    At(from).builder.Append(std::move(send));
    At(to).values[key] =
        At(to).builder.Add(OpKind::kRecv, {}, type, {{Attr::kPairs, pairs}, {Attr::kChannel, channel_}});
  }

  // The number that the rank has in the program before.
  Id RankBefore(Builder* builder) {
    const TensorType number{DataType::kUint32, {}};
    const auto constant = [&](int64_t value) { return builder->Constant(number, static_cast<double>(value)); };
    const int64_t together = before_.tensor_ranks;
    const Id rank = builder->Add(OpKind::kPartitionId, {}, number);
    const Id within = builder->Elementwise(OpKind::kRemainder, {rank, constant(together)});
    if (together == before_.program.ranks) return within;
    const Id block = builder->Elementwise(OpKind::kDivide, {rank, constant(together * num_stages_)});
    return builder->Elementwise(OpKind::kAdd,
                                {builder->Elementwise(OpKind::kMultiply, {block, constant(together)}), within});
  }

  Origin Moved(Origin origin) const {
    for (Cut& cut : origin.cuts) {
      if (cut.period >= before_.tensor_ranks) cut.period *= num_stages_;
    }
    return origin;
  }

  Transformed Finish() {
    Transformed after;
    after.tensor_ranks = before_.tensor_ranks;
    after.losses = before_.losses;
    after.program.ranks = before_.program.ranks * num_stages_;
    std::vector<std::vector<Id>> results(sites_.size());
    after.results.resize(sites_.size());
    for (size_t i = 0; i < function_.results.size(); ++i) {
      const Id value = function_.results[i];
      const int stage = StageOfResult(value);
      results[static_cast<size_t>(stage)].push_back(Joined(value, stage));
      after.results[static_cast<size_t>(stage)].push_back(Moved(before_.results[0][i]));
    }
    for (size_t s = 0; s < sites_.size(); ++s) {
      after.arguments.push_back(std::move(sites_[s].arguments));
      after.program.parts.push_back({sites_[s].names, sites_[s].builder.Finish(std::move(results[s]))});
    }
    return after;
  }

  int StageOfResult(Id value) {
    if (const size_t maker = makers_.Find(value); maker != 0) return std::max(stages_.stages[maker - 1], 0);
    int stage = 0;
    while (At(stage).values.count({value, kOnce}) == 0) ++stage;
    return stage;
  }

  Id Joined(Id value, int stage) {
    const Layout& layout = LayoutOf(value);
    Site& site = At(stage);
    if (!layout.is_split() || makers_.Find(value) == 0) return Whole(value, stage);
    std::vector<Id> pieces;
    for (int m = 0; m < microbatches_; ++m) pieces.push_back(site.values.at({value, m}));
    if (pieces.size() == 1) return pieces[0];
    return site.builder.Add(OpKind::kConcatenate, pieces, *types_.Find(value), {{Attr::kDim, int64_t{layout.dim}}});
  }

  const Transformed& before_;
  const Function& function_;
  const Spread& spread_;
  const Stages& stages_;
  const IdTable<const TensorType*> types_;
  const int num_stages_, microbatches_;
  const int64_t channel_;
  std::vector<Site> sites_;
  IdTable<size_t> makers_;             // operations, from 1
  std::map<Id, std::set<int>> needs_;  // the stages
  std::map<Id, int> terms_;
  std::vector<Key> ship_;  // made since the last delivery
};

}  // namespace

Result<Transformed> Pipeline(const Transformed& before, int64_t stages, int64_t microbatches, PipelineOrder order) {
  constexpr int64_t kMost = 4096;
  if (stages < 1 || microbatches < 1 || stages > kMost || microbatches > kMost ||
      stages > kMaxRanks / before.program.ranks) {
    return MakeStatus(Code::kInvalidArgument,
                      "transform pipeline: %lld stages and %lld microbatches, must be 1 to %lld, and at most %d ranks",
                      static_cast<long long>(stages), static_cast<long long>(microbatches),
                      static_cast<long long>(kMost), kMaxRanks);
  }
  if (before.program.parts.size() != 1)
    return MakeStatus(Code::kInvalidArgument, "transform pipeline: the program has stages already");
  if (stages == 1 && microbatches == 1) return before;
  const Function& function = before.program.parts[0].function;
  std::vector<Layout> arguments;
  for (const Value& argument : function.arguments) {
    arguments.push_back(IsBatch(argument) ? Layout::Split(0) : Layout());
    if (!IsBatch(argument) || argument.type.dims[0] % microbatches == 0) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "transform pipeline: dimension 0 of the batch %%%u, of size %lld, cannot be cut into %lld "
                      "microbatches",
                      argument.id, static_cast<long long>(argument.type.dims[0]), static_cast<long long>(microbatches));
  }
  const SpreadRules rules{"pipeline, microbatches " + std::to_string(microbatches), microbatches, false, {}};
  AXCCL_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(function, arguments, rules));
  const int num_stages = static_cast<int>(stages), num_microbatches = static_cast<int>(microbatches);
  AXCCL_ASSIGN_OR_RETURN(const Stages placed, StagesOf(function, before.losses, spread, num_stages, num_microbatches));
  // A value that is not where it is needed is an error rather than a wrong program.
  return CatchAll("transform pipeline", [&]() -> Result<Transformed> {
    PipelineWriter writer(before, spread, placed, num_stages, num_microbatches);
    return writer.Run(ScheduleOf(num_stages, num_microbatches, order, AreIndependent(function, placed)));
  });
}

}  // namespace axccl::program
