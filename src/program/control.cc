#include "src/program/control.h"

#include <vector>

namespace axccl::program {
namespace {

class ControlSlice {
 public:
  // Until nothing more is found: a loop carries values around.
  std::unordered_set<Id> Of(const Function& function) {
    size_t before = 0;
    do {
      before = needed_.size();
      Visit(function);
    } while (needed_.size() != before);
    return std::move(needed_);
  }

 private:
  // From the last operation to the first.
  void Visit(const Function& function) {
    for (size_t i = function.operations.size(); i-- > 0;) Visit(function.operations[i]);
  }

  void Visit(const Operation& operation) {
    if (operation.kind == OpKind::kWhile) return VisitWhile(operation);
    if (operation.kind == OpKind::kIf) return VisitIf(operation);
    bool needed = false;
    for (const Value& result : operation.results) needed |= Has(result.id);
    for (const Id id : operation.operands) {
      if (needed) Need(id);
    }
  }

  void VisitWhile(const Operation& operation) {
    const Function &cond = operation.regions[0], &body = operation.regions[1];
    Need(cond.results[0]);
    for (size_t i = 0; i < operation.operands.size(); ++i) {
      const Id carried[] = {operation.results[i].id, cond.arguments[i].id, body.arguments[i].id};
      bool needed = false;
      for (const Id id : carried) needed |= Has(id);
      if (!needed) continue;
      for (const Id id : carried) Need(id);
      Need(body.results[i]);
      Need(operation.operands[i]);
    }
    Visit(body);
    Visit(cond);
  }

  void VisitIf(const Operation& operation) {
    Need(operation.operands[0]);
    for (const Function& region : operation.regions) {
      for (size_t i = 0; i < operation.results.size(); ++i) {
        if (Has(operation.results[i].id)) Need(region.results[i]);
      }
      Visit(region);
    }
  }

  bool Has(Id id) const { return needed_.count(id) != 0; }
  void Need(Id id) { needed_.insert(id); }

  std::unordered_set<Id> needed_;
};

}  // namespace

std::unordered_set<Id> ControlValues(const Function& function) { return ControlSlice().Of(function); }

}  // namespace axccl::program
