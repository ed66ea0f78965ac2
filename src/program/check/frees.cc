#include <string>
#include <unordered_map>

#include "src/program/check.h"
#include "src/program/check/rules.h"

namespace axccl::program {
namespace {

// Of a value, what `free` must know.
struct Life {
  const Function* owner;             // the function that may free it; null: none may
  const Operation* freed = nullptr;  // the operation that has
};

class FreeChecker {
 public:
  explicit FreeChecker(const Part& part) : part_(part) {}

  Status Run() {
    for (const Value& argument : part_.function.arguments)
      lives_[argument.id] = {argument.donated ? &part_.function : nullptr};
    return CheckFunction(part_.function, nullptr);
  }

 private:
  static std::string Name(Id id) { return "%" + std::to_string(id); }

  Status CheckUse(const Operation& user, Id id, const char* what) {
    const Operation* const freed = lives_.at(id).freed;
    if (freed == nullptr) return Status();
    return OperationError(part_, user, "", what + Name(id) + ", which %" + std::to_string(freed->id) + " has freed");
  }

  Status CheckFree(const Operation& operation, const Function& function) {
    for (const Id id : operation.operands) {
      AXCCL_RETURN_IF_ERROR(CheckUse(operation, id, "frees "));
      Life& life = lives_.at(id);
      if (life.owner == nullptr)
        return OperationError(part_, operation, "", "frees " + Name(id) + ", an argument that is not donated");
      if (life.owner != &function)
        return OperationError(part_, operation, "", "frees " + Name(id) + ", which is from outside of the region");
      life.freed = &operation;
    }
    return Status();
  }

  // `outer` is the operation whose region the function is; null: the part itself.
  Status CheckFunction(const Function& function, const Operation* outer) {
    for (const Operation& operation : function.operations) {
      if (operation.kind == OpKind::kFree) {
        AXCCL_RETURN_IF_ERROR(CheckFree(operation, function));
        continue;
      }
      for (const Id id : operation.operands) AXCCL_RETURN_IF_ERROR(CheckUse(operation, id, "uses "));
      for (const Function& region : operation.regions) {
        for (const Value& argument : region.arguments) lives_[argument.id] = {nullptr};
        AXCCL_RETURN_IF_ERROR(CheckFunction(region, &operation));
      }
      for (const Value& result : operation.results) lives_[result.id] = {&function};
    }
    for (const Id id : function.results) {
      const Operation* const freed = lives_.at(id).freed;
      if (freed == nullptr) continue;
      if (outer != nullptr) return CheckUse(*outer, id, (function.name + " returns ").c_str());
      return OperationError(part_, *freed, "", "frees " + Name(id) + ", which the part returns");
    }
    return Status();
  }

  const Part& part_;
  std::unordered_map<Id, Life> lives_;
};

}  // namespace

Status CheckFrees(const Program& program) {
  for (const Part& part : program.parts) AXCCL_RETURN_IF_ERROR(FreeChecker(part).Run());
  return Status();
}

}  // namespace axccl::program
