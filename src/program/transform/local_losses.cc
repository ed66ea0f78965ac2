#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/program/facts.h"
#include "src/program/id_table.h"
#include "src/program/text.h"
#include "src/program/transform.h"
#include "src/program/transform/stages.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
namespace {

// Where a gradient stops: what comes after the block's output is not needed for it any more.
struct Boundary {
  int block = 0;
  size_t end = 0;  // the last operation of the block's forward pass
  Id output = 0, gradient = 0;
  std::set<size_t> users;  // operations of earlier blocks, and on the way there, that take the gradient
};

class LocalLossWriter {
 public:
  LocalLossWriter(const Transformed& before, const Spread& spread)
      : before_(before),
        function_(before.program.parts[0].function),
        spread_(spread),
        forward_(ForwardOf(function_, before.losses)),
        is_used_(ForwardOf(function_, function_.results.size())),
        types_(TypesOf(function_)),
        state_(FromState(function_, spread)) {
    for (const Value& argument : function_.arguments) next_ = std::max(next_, argument.id + 1);
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      next_ = std::max(next_, operation.id + 1);
      for (const Value& result : operation.results) {
        makers_[result.id] = i;
        next_ = std::max(next_, result.id + 1);
      }
    }
  }

  Result<Transformed> Run(int64_t blocks) {
    const std::vector<Layer> layers = LayersOf(function_, before_.losses, spread_);
    if (blocks == 0) blocks = static_cast<int64_t>(layers.size());
    if (blocks > static_cast<int64_t>(layers.size())) {
      return MakeStatus(Code::kInvalidArgument, "transform local-layer: %lld stages, but the program has %zu layers",
                        static_cast<long long>(blocks), layers.size());
    }
    if (!layers.back().has_output) {
      return MakeStatus(Code::kInvalidArgument,
                        "transform local-layer: after the last use of weights, no single tensor of the batch goes on "
                        "to the loss");
    }
    FindBoundaries(layers, CutLayers(layers, static_cast<int>(blocks)));
    FindNeeds();
    for (Boundary& boundary : boundaries_) {
      AXCCL_RETURN_IF_ERROR(CheckOutput(boundary));
      AXCCL_RETURN_IF_ERROR(FindGradient(&boundary));
    }
    AXCCL_RETURN_IF_ERROR(FindHead());
    return Write();
  }

 private:
  // The last one is that of the model: its output is the prediction.
  void FindBoundaries(const std::vector<Layer>& layers, const std::vector<int>& of_layer) {
    for (size_t l = 0; l < layers.size(); ++l) {
      const bool is_last = l + 1 == layers.size();
      if (is_last || of_layer[l] != of_layer[l + 1])
        boundaries_.push_back({of_layer[l], layers[l].last, layers[l].output, 0, {}});
    }
    boundaries_.back().end = makers_.at(boundaries_.back().output);
    size_t b = 0;
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      while (b < boundaries_.size() && i > boundaries_[b].end) ++b;
      const Operation& operation = function_.operations[i];
      if (!forward_[i]) continue;
      for (const Value& result : operation.results) {
        if (!spread_.layouts.at(result.id).is_same()) places_[result.id] = 2 * static_cast<int>(b);
      }
      if (!IsOfBatch(spread_.steps[i])) continue;
      for (const Id operand : operation.operands) {
        const auto state = state_.find(operand);
        const Id argument = state == state_.end() ? operand : state->second;
        if (makers_.count(argument) == 0) places_.try_emplace(argument, 2 * static_cast<int>(b));
      }
    }
    for (const Boundary& boundary : boundaries_) places_[boundary.output] = 2 * boundary.block + 1;
  }

  Status CheckOutput(const Boundary& boundary) const {
    const TensorType& type = *types_.Find(boundary.output);
    const Id prediction = boundaries_.back().output;
    if (type == *types_.Find(prediction)) return Status();
    return MakeStatus(Code::kInvalidArgument,
                      "transform local-layer: a stage ends with %%%u of type %s, but the loss is that of %%%u of type "
                      "%s; they must be equal",
                      boundary.output, Print(type).c_str(), prediction, Print(*types_.Find(prediction)).c_str());
  }

  // What an operation of the backward pass needs, by itself and through others: the first and the last place in the
  // forward pass. Values and state of block k have the place 2k, its output 2k + 1.
  struct Needs {
    int first = std::numeric_limits<int>::max(), last = -1;
  };

  Needs NeedsOf(Id value) const {
    const auto maker = makers_.find(value);
    const auto state = state_.find(value);
    if (maker != makers_.end() && !forward_[maker->second] && state == state_.end()) return needs_[maker->second];
    const auto place = places_.find(state == state_.end() ? value : state->second);
    return place == places_.end() ? Needs() : Needs{place->second, place->second};
  }

  void FindNeeds() {
    needs_.resize(function_.operations.size());
    for (size_t i = 0; i < needs_.size(); ++i) {
      for (const Id operand : function_.operations[i].operands) {
        if (forward_[i]) continue;
        const Needs needs = NeedsOf(operand);
        needs_[i] = {std::min(needs_[i].first, needs.first), std::max(needs_[i].last, needs.last)};
      }
    }
  }

  bool NeedsLater(size_t i, const Boundary& boundary) const { return needs_[i].last > 2 * boundary.block + 1; }
  bool NeedsEarlier(size_t i, const Boundary& boundary) const { return needs_[i].first < 2 * boundary.block + 1; }

  // The first value after which nothing of later blocks is needed: it goes on alone.
  Status FindGradient(Boundary* boundary) const {
    const std::vector<Operation>& operations = function_.operations;
    const Way way = WayOf(*boundary);
    std::unordered_set<Id> live;  // of what later blocks have
    for (const auto& [value, use] : way.last_use) {
      const auto maker = makers_.find(value);
      const bool is_made = maker != makers_.end() && NeedsLater(maker->second, *boundary);
      if (!is_made && NeedsOf(value).last > 2 * boundary->block + 1) live.insert(value);
    }
    // The loss itself may leave its gradient, as half a sum of squares does.
    const std::unordered_set<Id> left = live.size() == 1 ? live : std::unordered_set<Id>();
    for (size_t i = 0; i < operations.size(); ++i) {
      if (!way.leads[i] || NeedsEarlier(i, *boundary)) continue;
      for (const Value& result : operations[i].results) {
        if (way.last_use.count(result.id) > 0) live.insert(result.id);
      }
      for (const Id operand : operations[i].operands) {
        if (way.last_use.at(operand) == i) live.erase(operand);
      }
      const auto alone = live.size() == 1 ? makers_.find(*live.begin()) : makers_.end();
      if (alone != makers_.end() && alone->second == i && i > boundary->end) return Accept(alone->first, way, boundary);
    }
    if (!left.empty() && makers_.count(*left.begin()) > 0) return Accept(*left.begin(), way, boundary);
    return MakeStatus(
        Code::kInvalidArgument,
        "transform local-layer: more than one tensor of the backward pass goes from later stages to those "
        "that end with %%%u, or none",
        boundary->output);
  }

  // Operations that need later blocks and lead to what earlier blocks compute.
  struct Way {
    std::vector<bool> leads;
    std::unordered_map<Id, size_t> last_use;  // by these; what earlier blocks take is used to the end
  };

  Way WayOf(const Boundary& boundary) const {
    const size_t end = function_.operations.size();
    Way way{std::vector<bool>(end), {}};
    for (size_t i = end; i-- > 0;) {
      const Operation& operation = function_.operations[i];
      const bool is_taken = std::any_of(operation.results.begin(), operation.results.end(),
                                        [&](const Value& result) { return way.last_use.count(result.id) > 0; });
      way.leads[i] = is_used_[i] && NeedsLater(i, boundary) && (NeedsEarlier(i, boundary) || is_taken);
      if (!way.leads[i]) continue;
      for (const Id operand : operation.operands) {
        size_t& last = way.last_use.try_emplace(operand, 0).first->second;
        last = std::max(last, NeedsEarlier(i, boundary) ? end : i);
      }
    }
    return way;
  }

  Status Accept(Id gradient, const Way& way, Boundary* boundary) const {
    if (*types_.Find(gradient) != *types_.Find(boundary->output)) {
      return MakeStatus(Code::kInvalidArgument,
                        "transform local-layer: what later stages give to those that end with %%%u is %%%u of type %s, "
                        "and no gradient of type %s",
                        boundary->output, gradient, Print(*types_.Find(gradient)).c_str(),
                        Print(*types_.Find(boundary->output)).c_str());
    }
    boundary->gradient = gradient;
    for (size_t i = 0; i < way.leads.size(); ++i) {
      const std::vector<Id>& operands = function_.operations[i].operands;
      if (way.leads[i] && std::find(operands.begin(), operands.end(), gradient) != operands.end())
        boundary->users.insert(i);
    }
    return Status();
  }

  // What makes the loss of the prediction, then what else makes its gradient.
  Status FindHead() {
    const Boundary& model = boundaries_.back();
    std::unordered_set<Id> needed{function_.results.back()};
    for (std::vector<size_t>* found : {&of_loss_, &of_gradient_}) {
      for (size_t i = function_.operations.size(); i-- > 0;) {
        const Operation& operation = function_.operations[i];
        const bool is_needed =
            std::any_of(operation.results.begin(), operation.results.end(),
                        [&](const Value& result) { return result.id != model.output && needed.count(result.id) > 0; });
        if (!is_needed) continue;
        for (const Id operand : operation.operands) {
          if (state_.count(operand) == 0) continue;
          return MakeStatus(Code::kInvalidArgument,
                            "transform local-layer: the loss takes %%%u, which follows from weights, in %%%u; it must "
                            "be one of %%%u and the batch alone",
                            operand, operation.id, model.output);
        }
        found->push_back(i);
        needed.insert(operation.operands.begin(), operation.operands.end());
      }
      std::reverse(found->begin(), found->end());
      needed.insert(model.gradient);
    }
    return Status();
  }

  // Appends the operations for the block's output in the place of the prediction. `names`: of what is there already.
  void Copy(const std::vector<size_t>& operations, std::map<Id, Id>* names, std::vector<Operation>* to) {
    for (const size_t i : operations) {
      Operation copy = function_.operations[i];
      if (names->count(copy.id) > 0) continue;
      for (Id& operand : copy.operands) {
        if (const auto name = names->find(operand); name != names->end()) operand = name->second;
      }
      for (Value& result : copy.results) result.id = (*names)[result.id] = next_++;
      copy.id = copy.results[0].id;
      to->push_back(std::move(copy));
    }
  }

  Transformed Write() {
    Transformed after = before_;
    Function& function = after.program.parts[0].function;
    function.operations.clear();
    const size_t locals = boundaries_.size() - 1;
    std::vector<std::map<Id, Id>> names(locals);  // [boundary]: of copies
    for (size_t b = 0; b < locals; ++b) names[b][boundaries_.back().output] = boundaries_[b].output;
    std::map<size_t, std::vector<size_t>> takes, follow;  // [operation]: boundaries
    for (size_t b = 0; b < locals; ++b) {
      for (const size_t user : boundaries_[b].users) takes[user].push_back(b);
      follow[boundaries_[b].end].push_back(b);
      follow[makers_.at(boundaries_[b].gradient)].push_back(b);
    }
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      Operation operation = function_.operations[i];
      for (const size_t b : takes[i]) {
        std::replace(operation.operands.begin(), operation.operands.end(), boundaries_[b].gradient,
                     names[b].at(boundaries_.back().gradient));
      }
      function.operations.push_back(std::move(operation));
      for (const size_t b : follow[i])
        Copy(boundaries_[b].end == i ? of_loss_ : of_gradient_, &names[b], &function.operations);
    }
    std::vector<Id> losses;
    for (size_t b = 0; b < locals; ++b) losses.push_back(names[b].at(function_.results.back()));
    function.results.insert(function.results.end() - 1, losses.begin(), losses.end());
    DropUnused(&function);
    after.losses = before_.losses + locals;
    after.results[0].clear();
    for (size_t i = 0; i < function.results.size(); ++i) after.results[0].push_back({i, {}});
    return after;
  }

  static void DropUnused(Function* function) {
    std::unordered_set<Id> used(function->results.begin(), function->results.end());
    std::vector<Operation> kept;
    for (size_t i = function->operations.size(); i-- > 0;) {
      Operation& operation = function->operations[i];
      const bool is_used = std::any_of(operation.results.begin(), operation.results.end(),
                                       [&](const Value& result) { return used.count(result.id) > 0; });
      if (!is_used) continue;
      used.insert(operation.operands.begin(), operation.operands.end());
      kept.push_back(std::move(operation));
    }
    std::reverse(kept.begin(), kept.end());
    function->operations = std::move(kept);
  }

  const Transformed& before_;
  const Function& function_;
  const Spread& spread_;
  const std::vector<bool> forward_, is_used_;  // [operation]
  const IdTable<const TensorType*> types_;
  const std::unordered_map<Id, Id> state_;
  std::unordered_map<Id, size_t> makers_;
  std::unordered_map<Id, int> places_;  // of values of the forward pass, and arguments; the loss is a block of its own
  std::vector<Needs> needs_;            // [operation]
  std::vector<Boundary> boundaries_;
  std::vector<size_t> of_loss_, of_gradient_;
  Id next_ = 0;
};

}  // namespace

Result<Transformed> LocalLosses(const Transformed& before, int64_t blocks) {
  if (before.program.parts.size() != 1 || before.losses != 1) {
    return MakeStatus(Code::kInvalidArgument,
                      "transform local-layer: the program has stages or several losses already; make it the first "
                      "transform");
  }
  const Function& function = before.program.parts[0].function;
  std::vector<Layout> arguments;
  for (const Value& argument : function.arguments) arguments.push_back(IsBatch(argument) ? Layout::Split(0) : Layout());
  SpreadRules rules;
  rules.transform = "local-layer";
  rules.carries_terms = false;
  AXCCL_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(function, arguments, rules));
  return LocalLossWriter(before, spread).Run(blocks);
}

}  // namespace axccl::program
