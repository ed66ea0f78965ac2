// The pretty forms of operations, each read into what its generic form has.
#include <array>

#include "src/program/kinds.h"
#include "src/program/stablehlo/attribute.h"
#include "src/program/stablehlo/names.h"
#include "src/program/stablehlo/parser.h"
#include "src/program/stablehlo/sharding.h"
#include "src/program/stablehlo/type.h"

namespace axccl::program::stablehlo {

using Form = AttrNode::Form;

// ---- operations of the table ----

bool Parser::ReadDict(Op* op) { return !in_.Try("{") || ReadEntries(&in_, 0, "}", &op->attributes); }

bool Parser::ReadPretty(int depth, Op* op) {
  OpKind kind{};
  if (op->name == "func.call") return ReadCall(op);
  if (op->name == "sdy.manual_computation") return ReadManual(op);
  if (!FindKind(op->name, &kind)) return ReadReturn(op);
  if (kind == OpKind::kConstant) return ReadConstant(op);
  if (kind == OpKind::kReduce) return ReadReduce(depth, op);
  if (kind == OpKind::kWhile) return ReadWhile(depth, op);
  const Syntax* const syntax = FindSyntax(kind);
  if (syntax != nullptr) return ReadSyntax(*syntax, op);
  return in_.Fail(op->at, "expected the generic form, \"" + std::string(op->name) + "\", because there is no other");
}

bool Parser::ReadSyntax(const Syntax& syntax, Op* op) {
  if (!ReadClauses(syntax, op)) return false;
  if (syntax.has_ranges && !ReadRanges(op)) return false;
  return ReadDict(op) && in_.Expect(":") && ReadTypes(syntax.types, op);
}

// Reads operands, then clauses in their order.
bool Parser::ReadClauses(const Syntax& syntax, Op* op) {
  const Clause *clause = syntax.clauses, *const end = std::end(syntax.clauses);
  bool more = true;
  if (syntax.word_first) {
    if (!ReadClause(*clause++, op)) return false;
    more = in_.Try(",");
  }
  while (more && in_.Peek() == '%') {
    if (!ReadValue(&op->operands.emplace_back())) return false;
    more = in_.Try(",");
  }
  const bool first = op->operands.empty() && !syntax.word_first;
  if (first && clause->form == Clause::Form::kNone) return true;
  for (; clause != end && clause->form != Clause::Form::kNone; ++clause) {
    const bool is_here = more && (clause->form == Clause::Form::kWord || in_.TryWord(clause->keyword));
    if (!is_here && clause->is_optional) continue;
    if (!is_here) return in_.Expected(more ? Quote(clause->keyword) : "', " + std::string(clause->keyword) + "'");
    if (!ReadClause(*clause, op)) return false;
    more = in_.Try(",");
  }
  if (!more) return true;
  return in_.Expected("an operand, or an attribute of " + std::string(op->name) + " that is supported");
}

bool Parser::ReadClause(const Clause& clause, Op* op) {
  NamedAttr attribute{.at = in_.Mark(), .key = clause.key, .value = {}};
  AttrNode& value = attribute.value;
  value.at = attribute.at;
  if (clause.form == Clause::Form::kWord) {
    value.form = Form::kWord;
    value.name = clause.key == "compare_type" ? "comparison_type" : clause.key;
    if (!in_.Word(&value.word)) return false;
  } else if (!in_.Expect("=")) {
    return false;
  }
  if (clause.form == Clause::Form::kInts && !ReadInts(&in_, &value)) return false;
  if (clause.form == Clause::Form::kNumber) {
    value.form = Form::kNumber;
    if (!in_.Integer(&value.number)) return false;
  }
  if (clause.form == Clause::Form::kPair) {
    static constexpr std::array<std::array<std::string_view, 2>, 2> kFields = {
        {{"lhs_batching_dimensions", "rhs_batching_dimensions"},
         {"lhs_contracting_dimensions", "rhs_contracting_dimensions"}}};
    const auto& fields = kFields[clause.key == "batching" ? 0 : 1];
    if (op->attributes.empty()) {
      op->attributes.push_back({.at = attribute.at, .key = "dot_dimension_numbers", .value = {}});
      op->attributes[0].value.form = Form::kFields;
      op->attributes[0].value.name = "dot";
    }
    NamedAttr left{.at = in_.Mark(), .key = fields[0], .value = {}};
    if (!ReadInts(&in_, &left.value) || !in_.ExpectWord("x")) return false;
    NamedAttr right{.at = in_.Mark(), .key = fields[1], .value = {}};
    if (!ReadInts(&in_, &right.value)) return false;
    op->attributes[0].value.fields.push_back(std::move(left));
    op->attributes[0].value.fields.push_back(std::move(right));
    return true;
  }
  if (clause.form == Clause::Form::kPrecision) {
    value.form = Form::kList;
    if (!in_.Expect("[")) return false;
    do {
      AttrNode& item = value.items.emplace_back();
      item.form = Form::kWord;
      item.name = "precision";
      item.at = in_.Mark();
      if (!in_.Word(&item.word)) return false;
    } while (in_.Try(","));
    if (!in_.Expect("]")) return false;
  }
  op->attributes.push_back(std::move(attribute));
  return true;
}

// `[0:8:2, 1:3]`
bool Parser::ReadRanges(Op* op) {
  constexpr std::string_view kKeys[] = {"start_indices", "limit_indices", "strides"};
  NamedAttr lists[3];
  for (size_t i = 0; i < 3; ++i) {
    lists[i].at = lists[i].value.at = in_.Mark();
    lists[i].key = kKeys[i];
    lists[i].value.form = Form::kInts;
  }
  if (!in_.Expect("[")) return false;
  bool more = in_.Peek() != ']';
  while (more) {
    int64_t start = 0, limit = 0, stride = 1;
    if (!in_.Integer(&start) || !in_.Expect(":") || !in_.Integer(&limit)) return false;
    if (in_.Try(":") && !in_.Integer(&stride)) return false;
    lists[0].value.ints.push_back(start);
    lists[1].value.ints.push_back(limit);
    lists[2].value.ints.push_back(stride);
    more = in_.Try(",");
  }
  for (NamedAttr& list : lists) op->attributes.push_back(std::move(list));
  return in_.Expect("]");
}

// Reads the types behind ':'.
bool Parser::ReadTypes(Types types, Op* op) {
  const size_t mark = in_.Mark();
  std::vector<TensorType> operands, results;
  const bool is_function =
      types == Types::kFunction || (in_.Peek() == '(' && (types == Types::kSame || types == Types::kSelect));
  if (is_function) return ReadFunctionType(&in_, &operands, &results) && SetTypes(op, mark, operands, results);
  if (types == Types::kEach) return ReadTypeList(&in_, &operands) && SetTypes(op, mark, operands, operands);
  if (!ReadType(&in_, &results.emplace_back())) return false;
  if (types == Types::kSelect) {
    operands = results;
    if (!in_.Expect(",") || !ReadType(&in_, &results[0])) return false;
    operands.resize(3, results[0]);
  } else {
    operands.assign(op->operands.size(), results[0]);
  }
  return SetTypes(op, mark, operands, results);
}

// ---- operations with a syntax of their own ----

// `return %a, %b : tensor<f32>, tensor<i1>`, `return`
bool Parser::ReadReturn(Op* op) {
  if (in_.Peek() != '%') return true;
  if (!ReadValues(&op->operands) || !in_.Expect(":")) return false;
  const size_t mark = in_.Mark();
  std::vector<TensorType> types;
  return ReadTypeList(&in_, &types) && CheckTypes(*op, mark, types);
}

// `call @f(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>`
bool Parser::ReadCall(Op* op) {
  NamedAttr& callee = op->attributes.emplace_back();
  callee.at = callee.value.at = in_.Mark();
  callee.key = "callee";
  callee.value.form = Form::kSymbol;
  if (!in_.Name('@', &callee.value.word) || !in_.Expect("(")) return false;
  if (!in_.Try(")") && (!ReadValues(&op->operands) || !in_.Expect(")"))) return false;
  return ReadDict(op) && in_.Expect(":") && ReadTypes(Types::kFunction, op);
}

// `stablehlo.constant dense<1> : tensor<i32>`
bool Parser::ReadConstant(Op* op) {
  if (!ReadDict(op)) return false;
  NamedAttr value{.at = in_.Mark(), .key = "value", .value = {}};
  if (!ReadAttr(&in_, 0, &value.value)) return false;
  if (value.value.form != Form::kDense || value.value.word == "index")
    return in_.Fail(value.at, "expected dense<...> of a type that is supported as the value of stablehlo.constant");
  const std::vector<TensorType> types = value.value.types;
  if (Find(op->attributes, "value") != nullptr) return in_.Fail(value.at, "the attribute 'value' is here twice");
  op->attributes.push_back(std::move(value));
  return SetTypes(op, op->at, {}, types);
}

// `stablehlo.reduce(%x init: %y) applies stablehlo.add across dimensions = [1] : (...) -> ...`, or a region behind the
// type: `reducer(%a: tensor<f32>, %b: tensor<f32>) {...}`
bool Parser::ReadReduce(int depth, Op* op) {
  op->operands.resize(2);
  if (!in_.Expect("(") || !ReadValue(&op->operands[0]) || !in_.ExpectWord("init") || !in_.Expect(":") ||
      !ReadValue(&op->operands[1]) || !in_.Expect(")"))
    return false;
  if (in_.Peek() == ',')
    return in_.Fail(op->at, "expected one operand of stablehlo.reduce; several at once are not supported");
  const bool applies = in_.TryWord("applies");
  const size_t at = in_.Mark();
  std::string_view name;
  if (applies && !in_.Word(&name)) return false;
  Op& reduce = *op;
  NamedAttr dims{.at = 0, .key = "dimensions", .value = {}};
  if (!in_.ExpectWord("across")) return false;
  dims.at = in_.Mark();
  if (!in_.ExpectWord("dimensions") || !in_.Expect("=") || !ReadInts(&in_, &dims.value)) return false;
  reduce.attributes.push_back(std::move(dims));
  if (!ReadDict(op) || !in_.Expect(":") || !ReadTypes(Types::kFunction, op)) return false;
  if (!applies) return ReadReducer(depth, op);
  Op applied;
  applied.at = at;
  applied.name = name;
  if (!CheckName(&applied)) return false;
  Apply(at, name, op);
  return true;
}

bool Parser::ReadReducer(int depth, Op* op) {
  const size_t scope = defined_.size();
  Region& region = op->regions.emplace_back();
  return in_.ExpectWord("reducer") && in_.Expect("(") && ReadArguments(&region) && in_.Expect("{") &&
         ReadBody(depth + 1, scope, &region);
}

// Adds the region that `applies` stands for.
void Parser::Apply(size_t at, std::string_view name, Op* reduce) {
  const TensorType scalar{func_->types[reduce->operands[1]].data_type, {}};
  Region& region = reduce->regions.emplace_back();
  region.at = at;
  region.first_argument = AddValues({scalar, scalar, scalar});
  region.arguments = 2;
  Op& op = region.ops.emplace_back();
  op.at = at;
  op.name = name;
  op.operands = {region.first_argument, region.first_argument + 1};
  op.first_result = region.first_argument + 2;
  op.results = 1;
  region.results = {op.first_result};
}

// `stablehlo.while(%a = %x, %b = %y) : tensor<i32>, tensor<f32> cond {...} do {...}`
bool Parser::ReadWhile(int depth, Op* op) {
  struct Name {
    size_t at;
    std::string_view name;
  };
  std::vector<Name> names;
  if (!in_.Expect("(")) return false;
  do {
    Name& name = names.emplace_back(Name{in_.Mark(), {}});
    if (!in_.Name('%', &name.name) || !in_.Expect("=") || !ReadValue(&op->operands.emplace_back())) return false;
  } while (in_.Try(","));
  if (!in_.Expect(")") || !in_.Expect(":") || !ReadTypes(Types::kEach, op)) return false;
  if (in_.TryWord("attributes") && (in_.Peek() != '{' || !ReadDict(op))) return in_.Expected("'{'");
  for (const char* const word : {"cond", "do"}) {
    const size_t scope = defined_.size();
    Region& region = op->regions.emplace_back();
    if (!in_.ExpectWord(word) || !in_.Expect("{")) return false;
    region.arguments = names.size();
    region.first_argument = static_cast<ValueId>(func_->types.size());
    for (size_t i = 0; i < names.size(); ++i) {
      func_->types.push_back(TensorType(func_->types[op->operands[i]]));
      if (!Define(names[i].at, names[i].name, region.first_argument + static_cast<ValueId>(i), 1)) return false;
    }
    if (!ReadBody(depth + 1, scope, &region)) return false;
  }
  return true;
}

// `sdy.manual_computation(%a) in_shardings=[...] out_shardings=[...] manual_axes={...} (%b: tensor<f32>) {...} : (...)
// ->
// ...`
bool Parser::ReadManual(Op* op) {
  if (!in_.Expect("(")) return false;
  if (!in_.Try(")") && (!ReadValues(&op->operands) || !in_.Expect(")"))) return false;
  for (const char* const key : {"in_shardings", "out_shardings", "manual_axes"}) {
    NamedAttr& attribute = op->attributes.emplace_back();
    attribute.at = in_.Mark();
    attribute.key = key;
    if (!in_.ExpectWord(key) || !in_.Expect("=")) return false;
    if (!(attribute.key == "manual_axes" ? ReadManualAxes : ReadShardings)(&in_, &attribute.value)) return false;
  }
  return ReadManualRegion(true, op) && in_.Expect(":") && ReadTypes(Types::kFunction, op);
}

}  // namespace axccl::program::stablehlo
