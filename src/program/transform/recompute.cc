#include <map>
#include <set>
#include <utility>

#include "src/program/builder.h"
#include "src/program/transform.h"
#include "src/program/transform/stages.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
namespace {

class RecomputeWriter {
 public:
  RecomputeWriter(const Transformed& before, const Spread& spread, size_t layers)
      : before_(before),
        function_(before.program.parts[0].function),
        forward_(ForwardOf(function_, before.losses)),
        builder_(function_.name) {
    FindSegments(LayersOf(function_, before.losses, spread), spread, layers);
    FindNeeded();
  }

  Transformed Run() {
    for (const Value& argument : function_.arguments)
      ids_[argument.id] = builder_.Argument(argument.type, argument.donated);
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      if (!forward_[i]) ComputeAgain(function_.operations[i]);
      Copy(function_.operations[i], !forward_[i] ? &again_ : nullptr, &ids_);
    }
    Transformed after = before_;
    std::vector<Id> results;
    for (const Id result : function_.results) results.push_back(ids_.at(result));
    after.program.parts[0].function = builder_.Finish(std::move(results));
    return after;
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  // The last segment is not computed again, as the backward pass begins with it.
  void FindSegments(const std::vector<Layer>& layers, const Spread& spread, size_t per_segment) {
    size_t layer = 0;
    for (size_t i = 0; i < function_.operations.size(); ++i) {
      const Operation& operation = function_.operations[i];
      while (layer + 1 < layers.size() && i > layers[layer].last) ++layer;
      const size_t segment = layer / per_segment;
      const bool is_last = (segment + 1) * per_segment >= layers.size();
      if (!forward_[i] || is_last) continue;
      for (const Value& result : operation.results) {
        if (!spread.layouts.at(result.id).is_same()) segments_[result.id] = {segment, i};
      }
    }
    for (size_t l = per_segment; l < layers.size(); l += per_segment) segments_.erase(layers[l - 1].output);
  }

  // What the backward pass needs of each segment, and what that is computed from.
  void FindNeeded() {
    std::set<Id> needed;
    for (size_t i = function_.operations.size(); i-- > 0;) {
      const Operation& operation = function_.operations[i];
      bool is_needed = !forward_[i];
      for (const Value& result : operation.results) is_needed = is_needed || needed.count(result.id) > 0;
      if (!is_needed) continue;
      for (const Id operand : operation.operands) {
        const auto found = segments_.find(operand);
        if (found == segments_.end()) continue;
        needed.insert(operand);
        needed_[found->second.first].insert(found->second.second);
      }
    }
  }

  // The segments of the operation's operands, before it first needs them.
  void ComputeAgain(const Operation& operation) {
    for (const Id operand : operation.operands) {
      const auto found = segments_.find(operand);
      if (found == segments_.end() || again_.count(operand) > 0) continue;
      for (const size_t i : needed_.at(found->second.first)) Copy(function_.operations[i], &again_, &again_);
    }
  }

  void Copy(const Operation& operation, const std::map<Id, Id>* first, std::map<Id, Id>* to) {
    Operation copy = operation;
    for (Id& operand : copy.operands) {
      const bool is_there = first != nullptr && first->count(operand) > 0;
      operand = is_there ? first->at(operand) : ids_.at(operand);
    }
    const Operation& written = builder_.operations()[builder_.Append(std::move(copy))];
    for (size_t i = 0; i < operation.results.size(); ++i) (*to)[operation.results[i].id] = written.results[i].id;
  }

  const Transformed& before_;
  const Function& function_;
  const std::vector<bool> forward_;
  std::map<Id, std::pair<size_t, size_t>> segments_;  // values that are computed again: segment, operation
  std::map<size_t, std::set<size_t>> needed_;         // [segment]: operations
  std::map<Id, Id> ids_, again_;
  Builder builder_;
};

}  // namespace

Result<Transformed> Recompute(const Transformed& before, int64_t layers) {
  if (layers < 1)
    return MakeStatus(Code::kInvalidArgument, "transform recompute: every %lld layers, must be at least 1",
                      static_cast<long long>(layers));
  if (before.program.parts.size() != 1)
    return MakeStatus(Code::kInvalidArgument,
                      "transform recompute: the program has stages already; make the pipeline "
                      "last");
  const Function& function = before.program.parts[0].function;
  std::vector<Layout> arguments;
  for (const Value& argument : function.arguments) arguments.push_back(IsBatch(argument) ? Layout::Split(0) : Layout());
  SpreadRules rules;
  rules.transform = "recompute";
  rules.carries_terms = false;
  AXCCL_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(function, arguments, rules));
  return RecomputeWriter(before, spread, static_cast<size_t>(layers)).Run();
}

}  // namespace axccl::program
