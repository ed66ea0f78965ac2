#include "src/program/liveness.h"

#include <numeric>
#include <utility>

#include "src/program/id_table.h"

namespace axccl::program {
namespace {

// Calls visit(id) for each use by the operation, its regions included.
template <class Visit>
void ForEachUse(const Operation& operation, const Visit& visit) {
  for (const Id id : operation.operands) visit(id);
  for (const Function& region : operation.regions) {
    for (const Operation& inner : region.operations) ForEachUse(inner, visit);
    for (const Id id : region.results) visit(id);
  }
}

}  // namespace

Liveness::Liveness(const Program& program) {
  for (const Part& part : program.parts) Add(part.function, true);
}

void Liveness::Add(const Function& function, bool is_part) {
  constexpr size_t kUnused = 1, kFirst = 2;  // what is used last by operation i has kFirst + i; 0: not of the function
  IdTable<size_t> last;
  Drops drops;
  for (const Value& argument : function.arguments) {
    if (is_part && !argument.donated) {
      drops.at_end.push_back(argument.id);
    } else {
      last[argument.id] = kUnused;
    }
  }
  for (size_t i = 0; i < function.operations.size(); ++i) {
    const Operation& operation = function.operations[i];
    for (const Value& result : operation.results) last[result.id] = kFirst + i;
    ForEachUse(operation, [&](Id id) {
      if (last.Find(id) != 0) last[id] = kFirst + i;
    });
    for (const Function& region : operation.regions) Add(region, false);
  }
  for (const Id id : function.results) {
    if (last.Find(id) == 0) continue;
    last[id] = 0;
    drops.at_end.push_back(id);
  }
  drops.begin.resize(function.operations.size() + 1);
  const auto each_value = [&](const auto& visit) {
    for (const Value& argument : function.arguments) visit(argument.id);
    for (const Operation& operation : function.operations) {
      for (const Value& result : operation.results) visit(result.id);
    }
  };
  each_value([&](Id id) {
    const size_t at = last.Find(id);
    if (at == kUnused) drops.at_once.push_back(id);
    if (at >= kFirst) ++drops.begin[at - kFirst + 1];
  });
  std::partial_sum(drops.begin.begin(), drops.begin.end(), drops.begin.begin());
  drops.after.resize(drops.begin.back());
  std::vector<size_t> next = drops.begin;
  each_value([&](Id id) {
    if (const size_t at = last.Find(id); at >= kFirst) drops.after[next[at - kFirst]++] = id;
  });
  of_functions_.emplace(&function, std::move(drops));
}

}  // namespace axccl::program
