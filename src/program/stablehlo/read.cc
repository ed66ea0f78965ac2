#include "src/program/stablehlo/read.h"

#include <algorithm>
#include <string>

#include "src/program/kinds.h"
#include "src/program/stablehlo/names.h"
#include "src/program/text.h"

namespace axccl::program::stablehlo {
namespace {

using Form = AttrNode::Form;

const Source* FindSource(OpKind kind, Attr attr) {
  for (const Source& row : Sources()) {
    if (row.kind == kind && row.attr == attr) return &row;
  }
  return nullptr;
}

bool HasField(OpKind kind, std::string_view key, std::string_view field) {
  const auto has = [&](const Source& row) { return row.kind == kind && row.key == key && row.field == field; };
  return std::any_of(Sources().begin(), Sources().end(), has);
}

// The name of the attribute with the fields, as in `#stablehlo.gather<...>`.
std::string_view StructOf(OpKind kind) {
  return kind == OpKind::kGather ? "gather" : kind == OpKind::kScatter ? "scatter" : "dot";
}

bool IsNumber(const AttrNode& attr) {
  return attr.form == Form::kNumber && attr.number >= 0 && (attr.word.empty() || attr.word == "i64");
}

bool ReadNumber(const AttrNode& attr, Scanner* errors, int64_t* number) {
  if (!IsNumber(attr)) return errors->Fail(attr.at, "expected a number such as 1 : i64 that is not negative");
  *number = attr.number;
  return true;
}

bool ReadList(const AttrNode& attr, bool is_signed, Scanner* errors, Ints* ints) {
  const bool fits = attr.form == Form::kInts && (is_signed || std::all_of(attr.ints.begin(), attr.ints.end(),
                                                                          [](int64_t number) { return number >= 0; }));
  if (!fits)
    return errors->Fail(attr.at, std::string("expected a list such as array<i64: 0, 1>") +
                                     (is_signed ? "" : ", without negative numbers"));
  *ints = attr.ints;
  return true;
}

bool ReadDirection(const AttrNode& attr, Scanner* errors, Direction* direction) {
  const bool found =
      attr.form == Form::kWord && attr.name == "comparison_direction" && program::Find(attr.word, direction);
  return found || errors->Fail(attr.at, "expected EQ, NE, GE, GT, LE or LT");
}

bool ReadValue(const AttrNode& attr, const TensorType& type, Scanner* errors, Literal* literal) {
  if (attr.form != Form::kDense || attr.word == "index" || attr.types[0] != type)
    return errors->Fail(attr.at, "expected dense<...> of the type of the result, " + Print(type));
  *literal = attr.literal;
  return true;
}

// Attributes that are ignored must be what StableHLO has under that name.
bool CheckIgnored(const NamedAttr& attribute, Scanner* errors) {
  const AttrNode& value = attribute.value;
  const auto check = [&](bool good, const char* expected) {
    return good || errors->Fail(value.at, "expected " + std::string(expected) + " as " + std::string(attribute.key));
  };
  if (attribute.key == "indices_are_sorted" || attribute.key == "unique_indices")
    return check(value.form == Form::kBool, "true or false");
  if (attribute.key == "result_accuracy")
    return check(value.form == Form::kFields && value.name == "result_accuracy", "#stablehlo.result_accuracy<...>");
  if (attribute.key != "precision_config") return true;
  const auto is_precision = [](const AttrNode& item) {
    return item.form == Form::kWord && item.name == "precision" &&
           (item.word == "DEFAULT" || item.word == "HIGH" || item.word == "HIGHEST");
  };
  const bool is_list = value.form == Form::kList || (value.form == Form::kInts && value.ints.empty());
  return check(is_list && value.items.size() <= 2 && std::all_of(value.items.begin(), value.items.end(), is_precision),
               "up to two of DEFAULT, HIGH and HIGHEST");
}

}  // namespace

bool CheckFields(const Op& op, OpKind kind, Scanner* errors) {
  if (const NamedAttr* const type = Find(op.attributes, "compare_type")) {
    const std::string_view word = type->value.word;
    if (type->value.form != Form::kWord || type->value.name != "comparison_type" ||
        (word != "FLOAT" && word != "SIGNED" && word != "UNSIGNED"))
      return errors->Fail(type->value.at, "the comparison " + Quote(word) +
                                              " is not supported; supported are FLOAT, SIGNED and UNSIGNED");
  }
  for (const NamedAttr& attribute : op.attributes) {
    if (!CheckIgnored(attribute, errors)) return false;
    if (IsIgnored(attribute.key) || HasField(kind, attribute.key, "")) continue;
    const bool has_fields = std::any_of(Sources().begin(), Sources().end(), [&](const Source& row) {
      return row.kind == kind && row.key == attribute.key;
    });
    if (!has_fields) continue;
    if (attribute.value.form != Form::kFields || attribute.value.name != StructOf(kind))
      return errors->Fail(attribute.value.at, "expected #stablehlo." + std::string(StructOf(kind)) + "<...>");
    for (const NamedAttr& field : attribute.value.fields) {
      if (!HasField(kind, attribute.key, field.key))
        return errors->Fail(field.at, "the field " + Quote(field.key) + " of " + std::string(attribute.key) +
                                          " is not supported; supported are those of StableHLO");
    }
  }
  return true;
}

bool ReadAttribute(const Op& op, const Operation& operation, Scanner* errors, Attribute* attribute, size_t* words) {
  const AttrType type = InfoOf(attribute->attr).type;
  const Source& source = *FindSource(operation.kind, attribute->attr);
  const NamedAttr* found = Find(op.attributes, source.key);
  if (found == nullptr)
    return errors->Fail(op.at, "expected the attribute " + Quote(source.key) + " of " + std::string(op.name));
  if (!source.field.empty()) found = Find(found->value.fields, source.field);
  // A field that is absent is 0 or empty.
  AttrNode absent;
  absent.form = type == AttrType::kNumber ? Form::kNumber : Form::kInts;
  const AttrNode& value = found == nullptr ? absent : found->value;
  *words = value.ints.size() + value.literal.bytes.size() / 8;
  switch (type) {
    case AttrType::kNumber:
      return ReadNumber(value, errors, &attribute->value.emplace<int64_t>());
    case AttrType::kDirection:
      return ReadDirection(value, errors, &attribute->value.emplace<Direction>());
    case AttrType::kLiteral:
      return ReadValue(value, operation.results[0].type, errors, &attribute->value.emplace<Literal>());
    default:
      return ReadList(value, type == AttrType::kSignedList, errors, &attribute->value.emplace<Ints>());
  }
}

bool ReadFold(const Op& op, const Func& func, Scanner* errors, Combine* fold) {
  constexpr struct {
    OpKind kind;
    Combine fold;
  } kFolds[] = {{OpKind::kAdd, Combine::kSum},     {OpKind::kMultiply, Combine::kProd},
                {OpKind::kMaximum, Combine::kMax}, {OpKind::kMinimum, Combine::kMin},
                {OpKind::kAnd, Combine::kAnd},     {OpKind::kOr, Combine::kOr},
                {OpKind::kXor, Combine::kXor}};
  const Region& region = op.regions[0];
  const auto fail = [&](size_t at, const std::string& what) {
    return errors->Fail(at, "the region of " + std::string(op.name) + " " + what +
                                "; supported is one operation of the two arguments that is returned: add, multiply, "
                                "maximum, minimum, and, or, xor");
  };
  if (region.arguments != 2) return fail(region.at, "has not two arguments");
  const TensorType scalar{func.types[op.operands[0]].data_type, {}};
  const ValueId first = region.first_argument, second = first + 1;
  if (func.types[first] != scalar || func.types[second] != scalar)
    return fail(region.at, "has arguments that are not " + Print(scalar));
  if (region.ops.size() != 1)
    return fail(region.ops.size() < 2 ? region.at : region.ops[1].at,
                region.ops.empty() ? "has no operation" : "has more than one operation, " + Quote(region.ops[1].name));
  const Op& only = region.ops[0];
  OpKind kind{};
  const bool known = FindKind(only.name, &kind);
  const auto found =
      std::find_if(std::begin(kFolds), std::end(kFolds), [&](const auto& row) { return row.kind == kind; });
  if (!known || found == std::end(kFolds)) return fail(only.at, "has the operation " + Quote(only.name));
  const bool both =
      only.operands == std::vector<ValueId>{first, second} || only.operands == std::vector<ValueId>{second, first};
  if (!both || region.results != std::vector<ValueId>{only.first_result} || func.types[only.first_result] != scalar)
    return fail(only.at, "does something else with its arguments than " + Quote(only.name));
  *fold = found->fold;
  return true;
}

}  // namespace axccl::program::stablehlo
