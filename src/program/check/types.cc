#include <string>
#include <unordered_map>
#include <vector>

#include "src/program/check.h"
#include "src/program/check/rules.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

class TypeChecker {
 public:
  TypeChecker(const Program& program, const Part& part) : program_(program), part_(part) {}

  // Checks the operations of a part or region, and learns the types of its values.
  Status CheckFunction(const Function& function) {
    Learn(function.arguments);
    for (const Operation& operation : function.operations) {
      AXCCL_RETURN_IF_ERROR(CheckOperation(operation));
      Learn(operation.results);
    }
    return Status();
  }

 private:
  void Learn(const std::vector<Value>& values) {
    for (const Value& value : values) types_[value.id] = &value.type;
  }

  Status CheckOperation(const Operation& operation) {
    Site site{program_, part_, operation, {}};
    for (const Id id : operation.operands) site.operands.push_back(types_.at(id));
    if (IsElementwise(operation.kind)) return CheckElementwise(site);
    switch (operation.kind) {
      case OpKind::kFree:
        return Status();
      case OpKind::kIf:
        return CheckIf(site);
      case OpKind::kWhile:
        return CheckWhile(site);
      case OpKind::kAllGather:
      case OpKind::kAllReduce:
      case OpKind::kAllToAll:
      case OpKind::kCollectiveBroadcast:
      case OpKind::kCollectiveBroadcastFrom:
      case OpKind::kCollectivePermute:
      case OpKind::kCollectiveReduce:
      case OpKind::kCollectiveReduceTo:
      case OpKind::kPartitionId:
      case OpKind::kRecv:
      case OpKind::kReduceScatter:
      case OpKind::kReplicaId:
      case OpKind::kSend:
        return CheckCollective(site);
      default:
        return CheckShape(site);
    }
  }

  // The arguments of the region, or what it returns, must have these types.
  Status ExpectTypes(const Site& site, const char* constraint, const std::string& whose,
                     const std::vector<const TensorType*>& found, const std::vector<const TensorType*>& wanted) {
    if (found.size() != wanted.size())
      return site.Fail(constraint,
                       whose + " are " + std::to_string(found.size()) + ", expected " + std::to_string(wanted.size()));
    for (size_t i = 0; i < found.size(); ++i) {
      if (*found[i] != *wanted[i])
        return site.Fail(constraint, whose + " have type " + Print(*found[i]) + " at " + std::to_string(i) +
                                         ", expected " + Print(*wanted[i]));
    }
    return Status();
  }

  Status ExpectArguments(const Site& site, size_t region, const char* constraint,
                         const std::vector<const TensorType*>& wanted) {
    const Function& function = site.operation.regions[region];
    std::vector<const TensorType*> found;
    for (const Value& argument : function.arguments) found.push_back(&argument.type);
    return ExpectTypes(site, constraint, "the arguments of " + function.name, found, wanted);
  }

  // Checks the region, too.
  Status ExpectReturned(const Site& site, size_t region, const char* constraint,
                        const std::vector<const TensorType*>& wanted) {
    const Function& function = site.operation.regions[region];
    AXCCL_RETURN_IF_ERROR(CheckFunction(function));
    std::vector<const TensorType*> found;
    for (const Id id : function.results) found.push_back(types_.at(id));
    return ExpectTypes(site, constraint, "the results of " + function.name, found, wanted);
  }

  Status CheckIf(const Site& site) {
    AXCCL_RETURN_IF_ERROR(site.ExpectOperand(0, kPredicate, "(I1)"));
    std::vector<const TensorType*> results;
    for (const Value& result : site.operation.results) results.push_back(&result.type);
    AXCCL_RETURN_IF_ERROR(ExpectArguments(site, 0, "(C1)", {}));
    AXCCL_RETURN_IF_ERROR(ExpectArguments(site, 1, "(C1)", {}));
    AXCCL_RETURN_IF_ERROR(ExpectReturned(site, 0, "(C3)", results));
    return ExpectReturned(site, 1, "(C2) (C3)", results);
  }

  Status CheckWhile(const Site& site) {
    AXCCL_RETURN_IF_ERROR(ExpectArguments(site, 0, "(C1)", site.operands));
    AXCCL_RETURN_IF_ERROR(ExpectArguments(site, 1, "(C2)", site.operands));
    for (size_t i = 0; i < site.operands.size(); ++i)
      AXCCL_RETURN_IF_ERROR(site.ExpectResult(i, site.operand(i), "(C3)"));
    AXCCL_RETURN_IF_ERROR(ExpectReturned(site, 0, "(C1)", {&kPredicate}));
    return ExpectReturned(site, 1, "(C2)", site.operands);
  }

  const TensorType kPredicate{DataType::kBool, {}};
  const Program& program_;
  const Part& part_;
  std::unordered_map<Id, const TensorType*> types_;
};

}  // namespace

Status CheckTypes(const Program& program) {
  for (const Part& part : program.parts) AXCCL_RETURN_IF_ERROR(TypeChecker(program, part).CheckFunction(part.function));
  return Status();
}

Status Check(const Program& program) {
  AXCCL_RETURN_IF_ERROR(CheckTypes(program));
  AXCCL_RETURN_IF_ERROR(CheckFrees(program));
  return CheckCommunication(program);
}

}  // namespace axccl::program
