// The transforms that add an axis of ranks: tensors, batch.
#include <string>
#include <utility>

#include "src/program/facts.h"
#include "src/program/kinds.h"
#include "src/program/text.h"
#include "src/program/transform.h"
#include "src/program/transform/axis.h"
#include "src/program/transform/structure.h"

namespace axccl::program {
namespace {

Status CheckAxis(const char* transform, const Transformed& before, int64_t ranks) {
  if (ranks < 1 || ranks > kMaxRanks / before.program.ranks) {
    return MakeStatus(Code::kInvalidArgument, "transform %s: %lld ranks, must be 1 to %d", transform,
                      static_cast<long long>(ranks), kMaxRanks / before.program.ranks);
  }
  if (before.program.parts.size() == 1) return Status();
  return MakeStatus(Code::kInvalidArgument, "transform %s: the program has stages already; make the pipeline last",
                    transform);
}

// The first dimension that can be cut; kSame if there is none.
Layout FirstCut(const TensorType& type, int64_t ranks) {
  for (size_t d = 0; d < type.dims.size(); ++d) {
    if (type.dims[d] >= ranks && type.dims[d] % ranks == 0) return Layout::Split(static_cast<int>(d));
  }
  return Layout();
}

}  // namespace

Ints StartsOf(const Origin& origin, Ints sizes, int64_t rank) {
  Ints starts(sizes.size());
  for (const Cut& cut : origin.cuts) {
    sizes[cut.dim] /= cut.count;
    starts[cut.dim] += rank / cut.period % cut.count * sizes[cut.dim];
  }
  return starts;
}

Result<Transformed> Untransformed(Program program) {
  if (program.parts.size() != 1 || program.parts[0].ranks.size() != static_cast<size_t>(program.ranks))
    return MakeStatus(Code::kInvalidArgument, "transform: the program must be one part of all its ranks");
  const Function& function = program.parts[0].function;
  for (const Operation& operation : function.operations) {
    if (operation.regions.empty() && !IsMessage(operation.kind) && operation.kind != OpKind::kFree) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "transform: %%%u %s: loops, branches, messages and free cannot be transformed", operation.id,
                      std::string(InfoOf(operation.kind).name).c_str());
  }
  const std::vector<size_t> state = StateOf(function);
  if (function.results.size() <= state.size()) {
    return MakeStatus(Code::kInvalidArgument,
                      "transform: %zu results for %zu donated arguments; the next value of each, and the loss after "
                      "them, must be returned",
                      function.results.size(), state.size());
  }
  const auto types = TypesOf(function);
  for (size_t i = 0; i < state.size(); ++i) {
    const Value& argument = function.arguments[state[i]];
    if (argument.type == *types.Find(function.results[i])) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "transform: result %zu has type %s, but is the next value of the donated argument %%%u of type "
                      "%s",
                      i, Print(*types.Find(function.results[i])).c_str(), argument.id, Print(argument.type).c_str());
  }
  Transformed first;
  first.arguments.emplace_back();
  first.results.emplace_back();
  for (size_t i = 0; i < function.arguments.size(); ++i) first.arguments[0].push_back({i, {}});
  for (size_t i = 0; i < function.results.size(); ++i) first.results[0].push_back({i, {}});
  first.tensor_ranks = program.ranks;
  first.program = std::move(program);
  return first;
}

Result<Transformed> SplitTensors(const Transformed& before, int64_t ranks) {
  AXCCL_RETURN_IF_ERROR(CheckAxis("tensor", before, ranks));
  if (ranks == 1) return before;
  const Function& function = before.program.parts[0].function;
  std::vector<Layout> arguments;
  for (const Value& argument : function.arguments)
    arguments.push_back(argument.donated && !argument.type.dims.empty() ? Layout::Open() : Layout());
  Axis axis{ranks, {}, {}, false};
  const SpreadRules rules{"tensor " + std::to_string(ranks), ranks, true, {}};
  AXCCL_ASSIGN_OR_RETURN(axis.spread, SpreadOf(function, arguments, rules));
  for (const Value& argument : function.arguments) axis.arguments.push_back(axis.spread.layouts.at(argument.id));
  Transformed after = Write(before, axis);
  after.tensor_ranks *= ranks;
  return after;
}

Result<Transformed> SplitBatch(const Transformed& before, int64_t ranks, int zero) {
  AXCCL_RETURN_IF_ERROR(CheckAxis("data", before, ranks));
  if (zero < 0 || zero > 3)
    return MakeStatus(Code::kInvalidArgument, "transform zero: stage %d, must be 0, 1, 2 or 3", zero);
  if (ranks == 1) return before;
  const Function& function = before.program.parts[0].function;
  std::vector<Layout> arguments;
  Axis axis{ranks, {}, {}, zero >= 2};
  for (const Value& argument : function.arguments) {
    const bool is_batch = IsBatch(argument);
    if (is_batch && argument.type.dims[0] % ranks != 0) {
      return MakeStatus(Code::kInvalidArgument,
                        "transform data: dimension 0 of the batch %%%u, of size %lld, cannot be "
                        "cut into %lld",
                        argument.id, static_cast<long long>(argument.type.dims[0]), static_cast<long long>(ranks));
    }
    arguments.push_back(is_batch ? Layout::Split(0) : Layout());
    axis.arguments.push_back(argument.donated && zero == 3 ? FirstCut(argument.type, ranks) : arguments.back());
  }
  SpreadRules rules{"data " + std::to_string(ranks), ranks, true, {}};
  std::unordered_map<Id, bool> is_backward;
  const std::vector<bool> forward = ForwardOf(function, before.losses);
  for (size_t i = 0; i < forward.size(); ++i) {
    for (const Value& result : function.operations[i].results) is_backward[result.id] = !forward[i];
  }
  if (zero > 0) {
    rules.resolved = [&](Id value, const TensorType& type) {
      const auto found = is_backward.find(value);
      return found != is_backward.end() && found->second ? FirstCut(type, ranks) : Layout();
    };
  }
  AXCCL_ASSIGN_OR_RETURN(axis.spread, SpreadOf(function, arguments, rules));
  return Write(before, axis);
}

}  // namespace axccl::program
