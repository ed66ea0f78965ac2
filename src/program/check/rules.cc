#include "src/program/check/rules.h"

#include <algorithm>
#include <unordered_set>

#include "src/program/text.h"

namespace axccl::program {
namespace {

std::string IdText(Id id) { return "%" + std::to_string(id); }

std::string ListText(const Ints& ints) {
  std::string text = "[";
  for (const int64_t number : ints) {
    if (text.size() > 1) text += ',';
    text += std::to_string(number);
  }
  return text + "]";
}

std::string ListText(const Site& site, Attr attr) {
  return std::string(InfoOf(attr).name) + "=" + ListText(site.list(attr));
}

// Of the operation whose constraints are cited.
std::string_view StablehloNameOf(OpKind kind) {
  if (kind == OpKind::kCollectiveBroadcastFrom) kind = OpKind::kCollectiveBroadcast;
  if (kind == OpKind::kCollectiveReduceTo) kind = OpKind::kCollectiveReduce;
  return InfoOf(kind).name;
}

}  // namespace

Status OperationError(const Part& part, const Operation& operation, const char* constraint, const std::string& what) {
  const std::string kind(InfoOf(operation.kind).name);
  std::string text = "part " + part.function.name + ", " + IdText(operation.id) + " " + kind + ": " + what;
  if (constraint[0] != '\0')
    text += " [StableHLO " + std::string(StablehloNameOf(operation.kind)) + " " + constraint + "]";
  return {Code::kInvalidArgument, std::move(text)};
}

Status Site::FailOperand(size_t i, const char* constraint, const std::string& wanted) const {
  return Fail(constraint,
              "operand " + IdText(operation.operands[i]) + " has type " + Print(operand(i)) + ", expected " + wanted);
}

Status Site::FailResult(size_t i, const char* constraint, const std::string& wanted) const {
  return Fail(constraint,
              "result " + IdText(operation.results[i].id) + " has type " + Print(result(i)) + ", expected " + wanted);
}

Status Site::ExpectOperand(size_t i, const TensorType& type, const char* constraint) const {
  return operand(i) == type ? Status() : FailOperand(i, constraint, Print(type));
}

Status Site::ExpectResult(size_t i, const TensorType& type, const char* constraint) const {
  return result(i) == type ? Status() : FailResult(i, constraint, Print(type));
}

Status Site::ExpectDataType(size_t i, const char* constraint) const {
  const DataType wanted = operand(0).data_type;
  return operand(i).data_type == wanted ? Status()
                                        : FailOperand(i, constraint, "elements of type " + std::string(NameOf(wanted)));
}

Status Site::ExpectResultDataType(const char* constraint) const {
  const DataType wanted = operand(0).data_type;
  return result().data_type == wanted ? Status()
                                      : FailResult(0, constraint, "elements of type " + std::string(NameOf(wanted)));
}

int64_t Times(int64_t a, int64_t b) {
  int64_t product = 0;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

int64_t Plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

Status CheckList(const Site& site, const ListRule& rule) {
  const Ints& list = site.list(rule.attr);
  for (const int64_t dim : list) {
    if (rule.range != nullptr && (dim < 0 || dim >= rule.bound))
      return site.Fail(rule.range, ListText(site, rule.attr) + ": there is no dimension " + std::to_string(dim) +
                                       " of " + std::to_string(rule.bound));
  }
  const bool is_unique = std::unordered_set<int64_t>(list.begin(), list.end()).size() == list.size();
  if (rule.unique != nullptr && !is_unique)
    return site.Fail(rule.unique, ListText(site, rule.attr) + " has a dimension twice");
  if (rule.sorted != nullptr && !std::is_sorted(list.begin(), list.end()))
    return site.Fail(rule.sorted, ListText(site, rule.attr) + " does not ascend");
  return Status();
}

Status CheckLength(const Site& site, Attr attr, int64_t size, const char* constraint) {
  if (static_cast<int64_t>(site.list(attr).size()) == size) return Status();
  return site.Fail(constraint, ListText(site, attr) + ": expected " + std::to_string(size) + " numbers");
}

Status CheckDim(const Site& site, Attr attr, int64_t bound, const char* constraint) {
  const int64_t dim = site.number(attr);
  if (dim >= 0 && dim < bound) return Status();
  return site.Fail(constraint, std::string(InfoOf(attr).name) + "=" + std::to_string(dim) +
                                   ": there is no such dimension of " + std::to_string(bound));
}

Status CheckDisjoint(const Site& site, Attr a, Attr b, const char* constraint) {
  Ints both = site.list(a);
  both.insert(both.end(), site.list(b).begin(), site.list(b).end());
  if (std::unordered_set<int64_t>(both.begin(), both.end()).size() == both.size()) return Status();
  return site.Fail(constraint, ListText(site, a) + " and " + ListText(site, b) + " have a dimension twice");
}

Status CheckFold(const Site& site, DataType type, const char* constraint) {
  const Combine fold = Get<Combine>(site.operation, Attr::kFold);
  if (!NameOf(fold).empty() && Combines(type, fold)) return Status();
  return site.Fail(constraint,
                   "elements of type " + std::string(NameOf(type)) + " have no fold=" + std::string(NameOf(fold)));
}

}  // namespace axccl::program
