#include "src/program/liveness.h"

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
  std::unordered_map<Id, const Operation*> last;  // null: the argument is not used
  for (const Value& argument : function.arguments) {
    if (is_part && !argument.donated) {
      at_end_[&function].push_back(argument.id);
    } else {
      last[argument.id] = nullptr;
    }
  }
  for (const Operation& operation : function.operations) {
    for (const Value& result : operation.results) last[result.id] = &operation;
    ForEachUse(operation, [&](Id id) {
      if (const auto known = last.find(id); known != last.end()) known->second = &operation;
    });
    for (const Function& region : operation.regions) Add(region, false);
  }
  for (const Id id : function.results) {
    if (last.erase(id) != 0) at_end_[&function].push_back(id);
  }
  for (const auto& [id, operation] : last) {
    if (operation == nullptr) {
      at_once_[&function].push_back(id);
    } else {
      after_[operation].push_back(id);
    }
  }
}

}  // namespace axccl::program
