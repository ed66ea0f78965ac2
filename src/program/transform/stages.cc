#include "src/program/transform/stages.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "src/program/facts.h"
#include "src/program/kinds.h"
#include "src/program/simulate/work.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
bool IsOfBatch(const SpreadStep& step) {
  const auto is_of_batch = [](const Layout& layout) { return !layout.is_same(); };
  return std::any_of(step.operands.begin(), step.operands.end(), is_of_batch) ||
         std::any_of(step.results.begin(), step.results.end(), is_of_batch);
}

std::unordered_map<Id, Id> FromState(const Function& function, const Spread& spread) {
  std::unordered_map<Id, Id> from;
  for (const Value& argument : function.arguments) {
    if (argument.donated) from[argument.id] = argument.id;
  }
  for (size_t i = 0; i < function.operations.size(); ++i) {
    if (IsOfBatch(spread.steps[i])) continue;
    for (const Id operand : function.operations[i].operands) {
      const auto found = from.find(operand);
      if (found == from.end()) continue;
      for (const Value& result : function.operations[i].results) from.emplace(result.id, found->second);
    }
  }
  return from;
}

namespace {

double ProductFlops(const Operation& operation, const IdTable<const TensorType*>& types) {
  std::vector<const TensorType*> operands;
  for (const Id operand : operation.operands) operands.push_back(types.Find(operand));
  const Work work = WorkOf(operation, operands);
  return work.product ? work.flops : 0;
}

class LayerFinder {
 public:
  LayerFinder(const Function& function, size_t losses, const Spread& spread)
      : function_(function),
        spread_(spread),
        leads_on_(ForwardOf(function, 1)),
        types_(TypesOf(function)),
        state_(FromState(function, spread)) {
    const std::vector<bool> forward = ForwardOf(function, losses);
    for (size_t i = 0; i < function.operations.size(); ++i) {
      if (forward[i] && IsOfBatch(spread.steps[i])) forward_.push_back(i);
    }
    for (const size_t i : forward_) {
      if (!leads_on_[i]) continue;
      for (const Id operand : function.operations[i].operands) last_use_[operand] = i;
    }
  }

  std::vector<Layer> Run() {
    std::vector<Layer> layers;
    bool has_weights = false;    // the layer that is being found
    std::optional<Layer> until;  // the layer, if it ends at the last cut
    Layer layer;
    if (!forward_.empty()) layer.first = forward_[0];
    for (const size_t i : forward_) {
      const Operation& operation = function_.operations[i];
      if (!leads_on_[i]) {  // of the loss of the layers so far
        (until ? *until : layer).last = i;
        continue;
      }
      const bool uses_weights = UsesState(operation);
      if (uses_weights && until) {
        Append(*until, &layers);
        layer = Layer{i, i};
        layer.first = until->last + 1;
        until.reset();
        has_weights = false;
      }
      has_weights = has_weights || uses_weights;
      layer.flops += ProductFlops(operation, types_);
      layer.last = i;
      const std::optional<Id> cut = Advance(operation, i);
      if (!cut || !has_weights) continue;
      until = layer;
      until->output = *cut;
      until->has_output = true;
      if (!layer.has_output) layer.output = *cut;
      layer.has_output = true;
    }
    Append(layer, &layers);
    return layers;
  }

 private:
  // What has no product, such as the sum with a bias, belongs to the product before it.
  static void Append(const Layer& layer, std::vector<Layer>* layers) {
    if (layers->empty() || layer.flops > 0 || layers->back().flops == 0) return layers->push_back(layer);
    const size_t first = layers->back().first;
    const double flops = layers->back().flops;
    layers->back() = layer;
    layers->back().first = first;
    layers->back().flops = flops;
  }

  bool UsesState(const Operation& operation) const {
    return std::any_of(operation.operands.begin(), operation.operands.end(),
                       [&](Id operand) { return state_.count(operand) > 0; });
  }

  // The value that goes on after the operation, if it is the only one. Arguments count from their first use.
  std::optional<Id> Advance(const Operation& operation, size_t at) {
    for (const Id operand : operation.operands) {
      if (!spread_.layouts.at(operand).is_split()) continue;
      if (last_use_.at(operand) > at)
        live_.insert(operand);
      else
        live_.erase(operand);
    }
    for (const Value& result : operation.results) {
      if (last_use_.count(result.id) > 0 && !spread_.layouts.at(result.id).is_same()) live_.insert(result.id);
    }
    if (live_.size() != 1 || !spread_.layouts.at(*live_.begin()).is_split()) return std::nullopt;
    return *live_.begin();
  }

  const Function& function_;
  const Spread& spread_;
  const std::vector<bool> leads_on_;  // to the last loss
  const IdTable<const TensorType*> types_;
  const std::unordered_map<Id, Id> state_;
  std::vector<size_t> forward_;
  std::unordered_map<Id, size_t> last_use_;  // in the forward pass
  std::set<Id> live_;
};

class StageFinder {
 public:
  StageFinder(const Function& function, size_t losses, const Spread& spread, int stages, int microbatches)
      : function_(function),
        spread_(spread),
        last_(stages - 1),
        microbatches_(microbatches),
        losses_(losses),
        forward_(ForwardOf(function, losses)),
        state_(FromState(function, spread)) {}

  Result<Stages> Run() {
    const std::vector<Layer> layers = LayersOf(function_, losses_, spread_);
    if (layers.size() <= static_cast<size_t>(last_)) {
      return MakeStatus(Code::kInvalidArgument, "transform pipeline: %d stages, but the program has %zu layers",
                        last_ + 1, layers.size());
    }
    AXCCL_RETURN_IF_ERROR(FindTurns());
    PullIntoPasses();
    out_.stages.assign(function_.operations.size(), kAnywhere);
    PlaceForward(layers, CutLayers(layers, last_ + 1));
    PlaceState();
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      if (out_.turns[i] == Turn::kBefore) out_.stages[i] = StageOfState(operation);
      if (out_.turns[i] == Turn::kBackward && IsLeftOpen(i)) continue;
      if (out_.turns[i] == Turn::kBackward) out_.stages[i] = StageOfBackward(operation);
      if (out_.turns[i] == Turn::kAfter) out_.stages[i] = StageOfUpdate(operation);
      for (const Value& result : operation.results) made_on_[result.id] = out_.stages[i];
      for (const Id operand : operation.operands) Settle(operand, out_.stages[i]);
    }
    for (size_t i = function_.operations.size(); i-- > 0;) {
      for (const Value& result : function_.operations[i].results) Settle(result.id, last_);
    }
    KeepOrder();
    return std::move(out_);
  }

 private:
  Status FindTurns() {
    std::unordered_map<Id, size_t> waits;  // values that need all microbatches: the operation that adds up terms
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      const auto waiting = std::find_if(operation.operands.begin(), operation.operands.end(),
                                        [&](Id operand) { return waits.count(operand) > 0; });
      const bool waits_for_all = waiting != operation.operands.end();
      Turn turn = waits_for_all ? Turn::kAfter : Turn::kBefore;
      if (IsOfBatch(spread_.steps[i])) turn = PassOf(i);
      if (waits_for_all && turn != Turn::kAfter && microbatches_ > 1)
        return NeedsAll(operation, function_.operations[waits.at(*waiting)]);
      out_.turns.push_back(turn);
      for (const Value& result : operation.results) {
        if (waits_for_all)
          waits[result.id] = waits.at(*waiting);
        else if (spread_.layouts.at(result.id).is_terms())
          waits[result.id] = i;
      }
    }
    return Status();
  }

  Turn PassOf(size_t number) const { return forward_[number] ? Turn::kForward : Turn::kBackward; }

  Status NeedsAll(const Operation& operation, const Operation& sum) const {
    return MakeStatus(Code::kInvalidArgument,
                      "transform pipeline, microbatches %d: %%%u %s needs the result of %%%u %s for the whole batch, "
                      "which is there only when all microbatches have run; give 1 microbatch",
                      microbatches_, operation.id, std::string(InfoOf(operation.kind).name).c_str(), sum.id,
                      std::string(InfoOf(sum.kind).name).c_str());
  }

  // What a pass needs runs in a pass. Nothing of Turn::kAfter is needed if there is more than one microbatch.
  void PullIntoPasses() {
    std::set<Id> needed;
    for (size_t i = function_.operations.size(); i-- > 0;) {
      const Operation& operation = function_.operations[i];
      Turn& turn = out_.turns[i];
      if (turn == Turn::kBefore) continue;
      const bool is_needed = std::any_of(operation.results.begin(), operation.results.end(),
                                         [&](const Value& result) { return needed.count(result.id) > 0; });
      if (turn == Turn::kAfter && is_needed) turn = PassOf(i);
      if (turn != Turn::kAfter) needed.insert(operation.operands.begin(), operation.operands.end());
    }
  }

  void PlaceForward(const std::vector<Layer>& layers, const std::vector<int>& of_layer) {
    size_t layer = 0;
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      if (out_.turns[i] != Turn::kForward) continue;
      while (layer + 1 < layers.size() && i > layers[layer].last) ++layer;
      out_.stages[i] = of_layer[layer];
      for (const Id operand : function_.operations[i].operands) used_on_[operand].insert(of_layer[layer]);
      for (const Value& result : function_.operations[i].results) used_on_[result.id].insert(of_layer[layer]);
    }
  }

  // State lives where the forward pass first uses it, or what is computed from it.
  void PlaceState() {
    for (const Value& argument : function_.arguments) {
      if (argument.donated) out_.arguments[argument.id] = last_;
    }
    for (size_t i = function_.operations.size(); i-- > 0;) {
      if (out_.turns[i] != Turn::kForward) continue;
      for (const Id operand : function_.operations[i].operands) {
        if (const auto found = state_.find(operand); found != state_.end())
          out_.arguments[found->second] = out_.stages[i];
      }
    }
    for (const auto& [value, argument] : state_) used_on_[value].insert(out_.arguments.at(argument));
  }

  int StageOfState(const Operation& operation) const {
    for (const Id operand : operation.operands) {
      if (const auto found = state_.find(operand); found != state_.end()) return out_.arguments.at(found->second);
    }
    return kAnywhere;
  }

  // Stages where all that the forward pass left for the operation is at hand; none if it left nothing.
  std::set<int> PlacesOf(const Operation& operation) const {
    std::set<int> places;
    bool is_first = true;
    for (const Id operand : operation.operands) {
      const auto used = used_on_.find(operand);
      if (used == used_on_.end()) continue;
      if (is_first) places = used->second;
      std::erase_if(places, [&](int stage) { return used->second.count(stage) == 0; });
      is_first = false;
    }
    return places;
  }

  // The stage of an operation that takes no gradient, but what two stages have, follows from what takes its result.
  bool IsLeftOpen(size_t number) {
    const Operation& operation = function_.operations[number];
    const bool takes_gradient = std::any_of(operation.operands.begin(), operation.operands.end(), [&](Id operand) {
      const auto made = made_on_.find(operand);
      return used_on_.count(operand) == 0 && made != made_on_.end() && made->second != kAnywhere;
    });
    if (takes_gradient) return false;
    const std::set<int> places = PlacesOf(operation);
    if (places.size() < 2) return false;
    for (const Value& result : operation.results) {
      open_[result.id] = number;
      used_on_[result.id] = places;
    }
    return true;
  }

  // The value is needed on that stage.
  void Settle(Id value, int stage) {
    const auto found = open_.find(value);
    if (found == open_.end()) return;
    const size_t number = found->second;
    const std::set<int> places = used_on_.at(value);
    out_.stages[number] = places.count(stage) > 0 ? stage : *places.rbegin();
    for (const Value& result : function_.operations[number].results) {
      open_.erase(result.id);
      used_on_.erase(result.id);
      made_on_[result.id] = out_.stages[number];
    }
    for (const Id operand : function_.operations[number].operands) Settle(operand, out_.stages[number]);
  }

  // Where the gradient is, if what the forward pass left is there too; otherwise where that is.
  int StageOfBackward(const Operation& operation) const {
    int gradient = last_;
    const std::set<int>* left = nullptr;  // where the first value is that the forward pass left
    for (const Id operand : operation.operands) {
      if (const auto used = used_on_.find(operand); used != used_on_.end())
        left = left == nullptr ? &used->second : left;
      else if (const auto made = made_on_.find(operand); made != made_on_.end() && made->second != kAnywhere)
        gradient = std::min(gradient, made->second);
    }
    if (left == nullptr) return gradient;
    const std::set<int> places = PlacesOf(operation);
    const auto after = places.upper_bound(gradient);
    return after == places.begin() ? *left->rbegin() : *std::prev(after);
  }

  // A stage's backward pass follows those of later stages: what it needs of a backward pass is made there or later.
  void KeepOrder() {
    std::unordered_map<Id, int> first;  // the stage before which the value may not be made
    for (size_t i = function_.operations.size(); i-- > 0;) {
      if (out_.turns[i] != Turn::kBackward) continue;
      int& stage = out_.stages[i];
      for (const Value& result : function_.operations[i].results) stage = std::max(stage, first[result.id]);
      for (const Id operand : function_.operations[i].operands) first[operand] = std::max(first[operand], stage);
    }
  }

  // Where the state is that it updates, otherwise where its operands are.
  int StageOfUpdate(const Operation& operation) const {
    const int state = StageOfState(operation);
    if (state != kAnywhere) return state;
    int stage = kAnywhere;
    for (const Id operand : operation.operands) {
      if (const auto made = made_on_.find(operand); made != made_on_.end()) stage = std::max(stage, made->second);
    }
    return stage == kAnywhere ? last_ : stage;
  }

  const Function& function_;
  const Spread& spread_;
  const int last_, microbatches_;
  const size_t losses_;
  const std::vector<bool> forward_;
  const std::unordered_map<Id, Id> state_;
  std::unordered_map<Id, std::set<int>> used_on_;  // values of the forward pass, and the state: where they are at hand
  std::unordered_map<Id, int> made_on_;
  std::unordered_map<Id, size_t> open_;  // values whose operation's stage is not decided
  Stages out_;
};

}  // namespace

std::vector<Layer> LayersOf(const Function& function, size_t losses, const Spread& spread) {
  return LayerFinder(function, losses, spread).Run();
}

std::vector<int> CutLayers(const std::vector<Layer>& layers, int stages) {
  double all = 0;
  for (const Layer& layer : layers) all += layer.flops;
  std::vector<int> of_layer;
  std::set<int> used;
  double before = 0;
  for (const Layer& layer : layers) {
    const int stage = all > 0 ? static_cast<int>((before + layer.flops / 2) / all * stages) : 0;
    before += layer.flops;
    of_layer.push_back(std::min(stage, stages - 1));
    used.insert(of_layer.back());
  }
  if (used.size() == static_cast<size_t>(stages)) return of_layer;
  for (size_t i = 0; i < layers.size(); ++i)
    of_layer[i] = static_cast<int>(i * static_cast<size_t>(stages) / layers.size());
  return of_layer;
}

Result<Stages> StagesOf(const Function& function, size_t losses, const Spread& spread, int stages, int microbatches) {
  return StageFinder(function, losses, spread, stages, microbatches).Run();
}

bool AreIndependent(const Function& function, const Stages& stages) {
  std::unordered_map<Id, size_t> makers;
  for (size_t i = 0; i < function.operations.size(); ++i) {
    for (const Value& result : function.operations[i].results) makers[result.id] = i;
    if (stages.turns[i] != Turn::kBackward) continue;
    for (const Id operand : function.operations[i].operands) {
      const auto maker = makers.find(operand);
      if (maker == makers.end() || stages.stages[maker->second] == kAnywhere) continue;
      const int made = stages.stages[maker->second];
      if (made > stages.stages[i] || (made < stages.stages[i] && stages.turns[maker->second] == Turn::kBackward))
        return false;
    }
  }
  return true;
}

}  // namespace axccl::program
