#include "src/program/transform/stages.h"

#include <algorithm>
#include <optional>
#include <set>

#include "src/program/facts.h"
#include "src/program/simulate/work.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
namespace {

double ProductFlops(const Operation& operation, const IdTable<const TensorType*>& types) {
  std::vector<const TensorType*> operands;
  for (const Id operand : operation.operands) operands.push_back(types.Find(operand));
  const Work work = WorkOf(operation, operands);
  return work.product ? work.flops : 0;
}

bool IsOfBatch(const SpreadStep& step) {
  const auto is_of_batch = [](const Layout& layout) { return !layout.is_same(); };
  return std::any_of(step.operands.begin(), step.operands.end(), is_of_batch) ||
         std::any_of(step.results.begin(), step.results.end(), is_of_batch);
}

// The values that are the state, or are computed from it alone, with the donated argument.
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

class LayerFinder {
 public:
  LayerFinder(const Function& function, const std::vector<bool>& forward, const Spread& spread)
      : function_(function), spread_(spread), types_(TypesOf(function)), state_(FromState(function, spread)) {
    for (size_t i = 0; i < function.operations.size(); ++i) {
      if (forward[i] && IsOfBatch(spread.steps[i])) forward_.push_back(i);
    }
    for (const size_t i : forward_) {
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
      const bool uses_weights = UsesState(operation);
      if (uses_weights && until) {
        layers.push_back(*until);
        layer = Layer{i, i, 0, 0};
        layer.first = until->last + 1;
        until.reset();
        has_weights = false;
      }
      has_weights = has_weights || uses_weights;
      layer.flops += ProductFlops(operation, types_);
      layer.last = i;
      const std::optional<Id> cut = Advance(operation, i);
      if (cut && has_weights) {
        until = layer;
        until->output = *cut;
      }
    }
    layers.push_back(layer);
    return layers;
  }

 private:
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
  const IdTable<const TensorType*> types_;
  const std::unordered_map<Id, Id> state_;
  std::vector<size_t> forward_;
  std::unordered_map<Id, size_t> last_use_;  // in the forward pass
  std::set<Id> live_;
};

// Stages of about equal flops; of equal numbers of layers, if otherwise one would be empty.
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

class StageFinder {
 public:
  StageFinder(const Function& function, const Spread& spread, int stages)
      : function_(function),
        spread_(spread),
        last_(stages - 1),
        forward_(ForwardOf(function)),
        state_(FromState(function, spread)) {}

  Result<Stages> Run() {
    const std::vector<Layer> layers = LayersOf(function_, forward_, spread_);
    if (layers.size() <= static_cast<size_t>(last_)) {
      return MakeStatus(Code::kInvalidArgument, "transform pipeline: %d stages, but the program has %zu layers",
                        last_ + 1, layers.size());
    }
    FindTurns();
    out_.stages.assign(function_.operations.size(), kAnywhere);
    PlaceForward(layers, CutLayers(layers, last_ + 1));
    PlaceState();
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      if (out_.turns[i] == Turn::kBefore) out_.stages[i] = StageOfState(operation);
      if (out_.turns[i] == Turn::kBackward) out_.stages[i] = StageOfBackward(operation);
      if (out_.turns[i] == Turn::kAfter) out_.stages[i] = StageOfUpdate(operation);
      for (const Value& result : operation.results) made_on_[result.id] = out_.stages[i];
    }
    return std::move(out_);
  }

 private:
  void FindTurns() {
    std::set<Id> after;  // values that need all microbatches
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      Turn turn = Turn::kBefore;
      if (IsOfBatch(spread_.steps[i])) turn = forward_[i] ? Turn::kForward : Turn::kBackward;
      for (const Id operand : operation.operands) {
        const bool is_final = spread_.layouts.at(operand).is_terms() || after.count(operand) > 0;
        if (is_final && turn == Turn::kBefore) turn = Turn::kAfter;
      }
      out_.turns.push_back(turn);
      if (turn != Turn::kAfter) continue;
      for (const Value& result : operation.results) after.insert(result.id);
    }
  }

  void PlaceForward(const std::vector<Layer>& layers, const std::vector<int>& of_layer) {
    size_t layer = 0;
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      if (out_.turns[i] != Turn::kForward) continue;
      while (i > layers[layer].last) ++layer;
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

  // Where the gradient is, if what the forward pass left is there too; otherwise where that is.
  int StageOfBackward(const Operation& operation) const {
    int gradient = last_;
    std::vector<const std::set<int>*> places;
    for (const Id operand : operation.operands) {
      if (const auto used = used_on_.find(operand); used != used_on_.end())
        places.push_back(&used->second);
      else if (const auto made = made_on_.find(operand); made != made_on_.end() && made->second != kAnywhere)
        gradient = std::min(gradient, made->second);
    }
    for (int stage = gradient; stage >= 0; --stage) {
      const bool is_there =
          std::all_of(places.begin(), places.end(), [&](const std::set<int>* on) { return on->count(stage) > 0; });
      if (is_there) return stage;
    }
    return *places[0]->rbegin();
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
  const int last_;
  const std::vector<bool> forward_;
  const std::unordered_map<Id, Id> state_;
  std::unordered_map<Id, std::set<int>> used_on_;  // values of the forward pass, and the state: where they are at hand
  std::unordered_map<Id, int> made_on_;
  Stages out_;
};

}  // namespace

std::vector<Layer> LayersOf(const Function& function, const std::vector<bool>& forward, const Spread& spread) {
  return LayerFinder(function, forward, spread).Run();
}

Result<Stages> StagesOf(const Function& function, const Spread& spread, int stages) {
  return StageFinder(function, spread, stages).Run();
}

}  // namespace axccl::program
