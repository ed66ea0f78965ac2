#include "src/program/stablehlo/parser.h"

#include <limits>
#include <utility>

#include "src/program/kinds.h"
#include "src/program/stablehlo/attribute.h"
#include "src/program/stablehlo/names.h"
#include "src/program/stablehlo/type.h"
#include "src/program/text.h"

namespace axccl::program::stablehlo {
namespace {

constexpr std::string_view kManual = "sdy.manual_computation";

bool IsReturn(std::string_view name) {
  return name == "func.return" || name == "stablehlo.return" || name == "sdy.return";
}

size_t RegionsOf(OpKind kind) {
  const KindInfo& info = InfoOf(kind);
  const bool folds = !info.attributes().empty() && info.attributes()[0] == Attr::kFold;
  return folds ? 1 : info.regions().size();
}

std::string Count(size_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

}  // namespace

// ---- values ----

bool Parser::Define(size_t at, std::string_view name, ValueId first, size_t count) {
  Binding& binding = names_[name];
  if (binding.count != 0) return in_.Fail(at, "expected a name that is not defined yet, found " + Quote(name));
  binding = {first, count};
  defined_.push_back(name);
  return true;
}

void Parser::CloseScope(size_t mark) {
  for (; defined_.size() > mark; defined_.pop_back()) names_[defined_.back()].count = 0;
}

ValueId Parser::AddValues(const std::vector<TensorType>& types) {
  const ValueId first = static_cast<ValueId>(func_->types.size());
  func_->types.insert(func_->types.end(), types.begin(), types.end());
  return first;
}

bool Parser::ReadValue(ValueId* value) {
  const size_t mark = in_.Mark();
  std::string_view name;
  if (!in_.Name('%', &name)) return false;
  int64_t index = 0;
  if (in_.Try("#") && !in_.Integer(&index)) return false;
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.count == 0)
    return in_.Fail(mark, "expected a value that is defined above, found " + Quote("%" + std::string(name)));
  if (index < 0 || static_cast<size_t>(index) >= found->second.count)
    return in_.Fail(mark, Quote("%" + std::string(name)) + " has only " + Count(found->second.count, "value"));
  *value = found->second.first + static_cast<ValueId>(index);
  return true;
}

bool Parser::ReadValues(std::vector<ValueId>* values) {
  do {
    if (!ReadValue(&values->emplace_back())) return false;
  } while (in_.Try(","));
  return true;
}

bool Parser::CheckTypes(const Op& op, size_t at, const std::vector<TensorType>& types) {
  if (types.size() != op.operands.size())
    return in_.Fail(at, "expected " + Count(op.operands.size(), "type") + " for the operands, found " +
                            std::to_string(types.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorType& type = func_->types[op.operands[i]];
    if (type != types[i])
      return in_.Fail(at, "operand " + std::to_string(i) + " is " + Print(type) + " where it is defined, but " +
                              Print(types[i]) + " here");
  }
  return true;
}

bool Parser::SetTypes(Op* op, size_t at, const std::vector<TensorType>& operands,
                      const std::vector<TensorType>& results) {
  op->first_result = AddValues(results);
  op->results = results.size();
  return CheckTypes(*op, at, operands);
}

// ---- regions ----

bool Parser::ReadArguments(Region* region) {
  std::vector<TensorType> types;
  const ValueId first = static_cast<ValueId>(func_->types.size());
  if (!in_.Try(")")) {
    do {
      const size_t mark = in_.Mark();
      std::string_view name;
      if (!in_.Name('%', &name) || !in_.Expect(":") || !ReadType(&in_, &types.emplace_back())) return false;
      if (!Define(mark, name, first + static_cast<ValueId>(types.size()) - 1, 1)) return false;
    } while (in_.Try(","));
    if (!in_.Expect(")")) return false;
  }
  region->first_argument = AddValues(types);
  region->arguments = types.size();
  return true;
}

bool Parser::ReadRegion(int depth, Region* region) {
  const size_t scope = defined_.size();
  if (!in_.Expect("{")) return false;
  if (in_.Peek() == '^') {
    std::string_view label;
    if (!in_.Name('^', &label)) return false;
    if (in_.Try("(") && !ReadArguments(region)) return false;
    if (!in_.Expect(":")) return false;
  }
  return ReadBody(depth, scope, region);
}

bool Parser::ReadBody(int depth, size_t scope, Region* region) {
  region->at = in_.Mark();
  if (depth > kMaxNesting) return in_.Fail(region->at, "expected at most 16 regions within each other");
  for (;;) {
    Op op;
    if (!ReadOp(depth, &op)) return false;
    if (IsReturn(op.name)) {
      region->results = std::move(op.operands);
      break;
    }
    region->ops.push_back(std::move(op));
  }
  CloseScope(scope);
  return in_.Expect("}");
}

// Reads the region of an sdy.manual_computation, which sees nothing around it.
bool Parser::ReadManualRegion(bool has_arguments, Op* op) {
  auto names = std::exchange(names_, {});
  auto defined = std::exchange(defined_, {});
  Region& region = op->regions.emplace_back();
  is_manual_ = true;
  const bool good = has_arguments
                        ? in_.Expect("(") && ReadArguments(&region) && in_.Expect("{") && ReadBody(0, 0, &region)
                        : ReadRegion(0, &region);
  is_manual_ = false;
  names_ = std::move(names);
  defined_ = std::move(defined);
  return good;
}

// ---- operations ----

bool Parser::ReadOp(int depth, Op* op) {
  struct Result {
    size_t at;
    std::string_view name;
    int64_t count;
  };
  std::vector<Result> results;
  if (in_.Peek() == '%') {
    do {
      Result& result = results.emplace_back(Result{in_.Mark(), {}, 1});
      if (!in_.Name('%', &result.name) || (in_.Try(":") && !in_.Integer(&result.count))) return false;
      if (result.count < 1 || result.count > std::numeric_limits<int32_t>::max())
        return in_.Fail(result.at, "expected at least one value and less than 2^31");
    } while (in_.Try(","));
  }
  if (!results.empty() && !in_.Expect("=")) return false;
  op->at = in_.Mark();
  const bool is_generic = in_.Peek() == '"';
  if (!(is_generic ? in_.String(&op->name) : in_.Word(&op->name))) return false;
  if (!CheckPlace(depth, is_generic, op)) return false;
  if (!(is_generic ? ReadGeneric(depth, op) : ReadPretty(depth, op)) || !CheckOp(*op)) return false;
  size_t sum = 0, next = op->first_result;
  for (const Result& result : results) sum += static_cast<size_t>(result.count);
  if (sum != op->results && !results.empty())
    return in_.Fail(results[0].at, "expected names for " + Count(op->results, "result") + " of " + Quote(op->name) +
                                       ", found " + std::to_string(sum));
  for (const Result& result : results) {
    if (!Define(result.at, result.name, static_cast<ValueId>(next), static_cast<size_t>(result.count))) return false;
    next += static_cast<size_t>(result.count);
  }
  return true;
}

// Whether an operation of this name may be here.
bool Parser::CheckPlace(int depth, bool is_generic, Op* op) {
  const bool in_func = depth == 0 && !is_manual_;
  if (!is_generic && in_func && op->name == "call") op->name = "func.call";
  if (!is_generic && in_func && op->name == "return") op->name = "func.return";
  if (op->name == kManual)
    return in_func || in_.Fail(op->at, "expected sdy.manual_computation only in a function itself");
  const std::string_view end = in_func ? "func.return" : depth == 0 ? "sdy.return" : "stablehlo.return";
  if (IsReturn(op->name) && op->name != end)
    return in_.Fail(op->at, "expected " + Quote(end) + " at the end of this region, found " + Quote(op->name));
  return CheckName(op);
}

// `"name"(operands) <{attributes}> ({region}, {region}) {attributes} : type`, behind the name
bool Parser::ReadGeneric(int depth, Op* op) {
  if (!in_.Expect("(")) return false;
  if (!in_.Try(")") && (!ReadValues(&op->operands) || !in_.Expect(")"))) return false;
  if (in_.Try("<")) {
    if (!in_.Expect("{") || !ReadEntries(&in_, 0, "}", &op->attributes) || !in_.Expect(">")) return false;
  }
  if (op->name == kManual) {
    if (!in_.Expect("(") || !ReadManualRegion(false, op) || !in_.Expect(")")) return false;
  } else if (in_.Try("(")) {
    do {
      if (!ReadRegion(depth + 1, &op->regions.emplace_back())) return false;
    } while (in_.Try(","));
    if (!in_.Expect(")")) return false;
  }
  if (in_.Try("{") && !ReadEntries(&in_, 0, "}", &op->attributes)) return false;
  if (!in_.Expect(":")) return false;
  const size_t mark = in_.Mark();
  std::vector<TensorType> operands, results;
  return ReadFunctionType(&in_, &operands, &results) && SetTypes(op, mark, operands, results);
}

bool Parser::CheckName(Op* op) {
  OpKind kind{};
  return op->name == "func.call" || IsReturn(op->name) || FindKind(op->name, &kind) ||
         in_.Fail(op->at, RefusedOp(op->name));
}

bool Parser::CheckOp(const Op& op) {
  OpKind kind{};
  const bool has_kind = FindKind(op, &kind), is_call = op.name == "func.call", is_manual = op.name == kManual;
  const std::string_view keys = is_call ? "callee" : is_manual ? "in_shardings, out_shardings, manual_axes" : "";
  for (const NamedAttr& attribute : op.attributes) {
    const std::string_view key = attribute.key;
    const bool is_own = (is_call && key == "callee") ||
                        (is_manual && (key == "in_shardings" || key == "out_shardings" || key == "manual_axes"));
    const bool may = has_kind ? MayHave(kind, key) : is_own || IsIgnored(key);
    if (!may) return in_.Fail(attribute.at, RefusedAttribute(op.name, key, has_kind ? KeysOf(kind) : keys));
  }
  const auto check = [&](size_t number, size_t least, size_t most, const char* noun) {
    if (number >= least && number <= most) return true;
    const char* const bound = least == most ? "" : number < least ? "at least " : "at most ";
    return in_.Fail(op.at, "expected " + std::string(bound) + Count(number < least ? least : most, noun) + " of " +
                               std::string(op.name) + ", found " + std::to_string(number));
  };
  constexpr size_t kAny = std::numeric_limits<size_t>::max();
  if (!has_kind) {
    const size_t regions = is_manual ? 1 : 0, results = is_call || is_manual ? kAny : 0;
    return check(op.regions.size(), regions, regions, "region") && check(op.results, 0, results, "result");
  }
  const KindInfo& info = InfoOf(kind);
  const size_t operands = op.operands.size(), regions = RegionsOf(kind);
  return check(operands, static_cast<size_t>(info.least_operands), static_cast<size_t>(info.most_operands),
               "operand") &&
         check(op.results, info.ResultsOf(operands).value_or(0), info.ResultsOf(operands).value_or(kAny), "result") &&
         check(op.regions.size(), regions, regions, "region");
}

}  // namespace axccl::program::stablehlo
