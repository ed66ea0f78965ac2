#include "src/program/transform/structure.h"

#include <algorithm>
#include <unordered_set>

#include "src/program/facts.h"

namespace axccl::program {

std::vector<size_t> StateOf(const Function& function) {
  std::vector<size_t> state;
  for (size_t i = 0; i < function.arguments.size(); ++i) {
    if (function.arguments[i].donated) state.push_back(i);
  }
  return state;
}

bool IsBatch(const Value& argument) { return !argument.donated && !argument.type.dims.empty(); }

std::vector<bool> ForwardOf(const Function& function, size_t losses) {
  std::unordered_set<Id> needed(function.results.end() - static_cast<ptrdiff_t>(losses), function.results.end());
  std::vector<bool> forward(function.operations.size());
  for (size_t i = function.operations.size(); i-- > 0;) {
    const Operation& operation = function.operations[i];
    for (const Value& result : operation.results) forward[i] = forward[i] || needed.count(result.id) > 0;
    if (forward[i]) needed.insert(operation.operands.begin(), operation.operands.end());
  }
  return forward;
}

int64_t FreeChannel(const Program& program) {
  int64_t free = 1;
  for (const Part& part : program.parts) {
    for (const Operation& operation : part.function.operations) {
      if (IsCommunication(operation.kind)) free = std::max(free, Get<int64_t>(operation, Attr::kChannel) + 1);
    }
  }
  return free;
}

bool IsEverywhereTheSame(const Operation& operation, int dim) {
  switch (operation.kind) {
    case OpKind::kConstant:
      return Get<Literal>(operation, Attr::kValue).bytes.size() == ElementSize(operation.results[0].type.data_type);
    case OpKind::kIota:
      return Get<int64_t>(operation, Attr::kDim) != dim;
    case OpKind::kBroadcastInDim: {
      const Ints& dims = Get<Ints>(operation, Attr::kDims);
      return std::find(dims.begin(), dims.end(), int64_t{dim}) == dims.end();
    }
    default:
      return false;
  }
}

void FitToResult(const Operation& operation, Operation* piece) {
  for (Attribute& attribute : piece->attributes) {
    const bool is_limit = operation.kind == OpKind::kSlice && attribute.attr == Attr::kLimits;
    if (!is_limit && (operation.kind != OpKind::kDynamicSlice || attribute.attr != Attr::kSizes)) continue;
    Ints& sizes = std::get<Ints>(attribute.value);
    for (size_t d = 0; d < sizes.size(); ++d) {
      const int64_t size = piece->results[0].type.dims[d];
      if (size != operation.results[0].type.dims[d]) sizes[d] = size;
    }
  }
}

Operation WithRanks(const Operation& operation, const std::vector<Ints>& ranks) {
  Operation renamed = operation;
  for (Attribute& attribute : renamed.attributes) {
    if (attribute.attr != Attr::kGroups && attribute.attr != Attr::kPairs) continue;
    Groups& groups = std::get<Groups>(attribute.value);
    const size_t before = groups.size();
    for (size_t copy = 1; copy < ranks.size(); ++copy) {
      for (size_t group = 0; group < before; ++group) groups.push_back(groups[group]);
    }
    for (size_t group = 0; group < groups.size(); ++group) {
      for (int64_t& member : groups[group]) member = ranks[group / before][static_cast<size_t>(member)];
    }
  }
  return renamed;
}

}  // namespace axccl::program
