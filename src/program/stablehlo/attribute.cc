#include "src/program/stablehlo/attribute.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_set>

#include "src/program/kinds.h"
#include "src/program/stablehlo/literal.h"
#include "src/program/stablehlo/sharding.h"
#include "src/program/stablehlo/type.h"

namespace axccl::program::stablehlo {
namespace {

using Form = AttrNode::Form;

// `(tensor<f32>) -> tensor<f32>`
bool ReadType(Scanner* in, AttrNode* attr) {
  std::vector<TensorType> outputs;
  attr->form = Form::kType;
  if (!ReadFunctionType(in, &attr->types, &outputs)) return false;
  attr->number = static_cast<int64_t>(attr->types.size());
  attr->types.insert(attr->types.end(), outputs.begin(), outputs.end());
  return true;
}

// Whether a number may have the type that is written behind it.
bool FitsType(const AttrNode& attr) {
  const bool is_unsigned = attr.word.starts_with("ui");
  DataType type{};
  if (attr.word == "index") return attr.form == Form::kNumber;
  if (!program::Find(attr.word.substr(is_unsigned ? 1 : 0), &type)) return false;
  if (IsFloat(type) || attr.form == Form::kFloat) return IsFloat(type) && attr.form == Form::kFloat;
  const int width = type == DataType::kBool ? 1 : static_cast<int>(8 * ElementSize(type));
  const int64_t rest = attr.number >> (width - 1);  // the bits above, and the first one
  return rest == 0 || (is_unsigned ? attr.number > 0 : rest == -1);
}

// `1`, `-1 : i64`, `1.5e+00 : f32`
bool ReadNumber(Scanner* in, AttrNode* attr) {
  const std::string_view word = in->Element();
  const char *const begin = word.data(), *const end = begin + word.size();
  const auto integer = std::from_chars(begin, end, attr->number);
  attr->form = Form::kNumber;
  if (integer.ec != std::errc() || integer.ptr != end) {
    double value = 0;
    if (!ParseDecimal(word, &value)) return in->Fail(attr->at, "expected a number of 64 bits, found " + Quote(word));
    attr->form = Form::kFloat;
  }
  if (!in->Try(":")) return true;
  const size_t mark = in->Mark();
  return in->Word(&attr->word) &&
         (FitsType(*attr) ||
          in->Fail(mark, "expected the type of a number that has this value, found " + Quote(attr->word)));
}

// Reads `0, 1]` if there are only such numbers; otherwise goes back.
bool TryInts(Scanner* in, AttrNode* attr) {
  const size_t mark = in->Mark();
  do {
    const std::string_view word = in->Element();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), attr->ints.emplace_back());
    if (error != std::errc() || end != word.data() + word.size()) break;
    if (!in->Try("]")) continue;
    attr->form = Form::kInts;
    return true;
  } while (in->Try(","));
  in->Back(mark);
  attr->ints.clear();
  return false;
}

// `[0, 1]`, `["a", @b]`
bool ReadList(Scanner* in, int depth, AttrNode* attr) {
  attr->form = Form::kInts;
  if (!in->Expect("[")) return false;
  if (in->Try("]") || TryInts(in, attr)) return true;
  attr->form = Form::kList;
  do {
    if (!ReadAttr(in, depth + 1, &attr->items.emplace_back())) return false;
  } while (in->Try(","));
  return in->Expect("]");
}

// `array<i64: 0, 1>` behind its first word
bool ReadArray(Scanner* in, AttrNode* attr) {
  attr->form = Form::kInts;
  if (!in->Expect("<") || !in->ExpectWord("i64")) return false;
  if (in->Try(">")) return true;
  if (!in->Expect(":")) return false;
  do {
    if (!in->Integer(&attr->ints.emplace_back())) return false;
  } while (in->Try(","));
  return in->Expect(">");
}

// `dense<1> : tensor<2xi64>` behind its first word. The type comes last, but says what the elements are.
bool ReadDense(Scanner* in, AttrNode* attr) {
  attr->form = Form::kDense;
  if (!in->Expect("<")) return false;
  const size_t begin = in->Mark();
  if (!in->SkipBehind('>') || !in->Expect(":") || !ReadDenseType(in, &attr->types.emplace_back(), &attr->word))
    return false;
  const size_t end = in->Mark();
  in->Back(begin);
  if (!ReadLiteral(in, attr->types[0], &attr->literal) || !in->Expect(">")) return false;
  in->Back(end);
  return true;
}

// `#stablehlo<name WORD>`, `#stablehlo.name<key = value>`, `#sdy.sharding<...>`
bool ReadDialect(Scanner* in, int depth, AttrNode* attr) {
  std::string_view name;
  if (!in->Name('#', &name)) return false;
  if (name == "stablehlo") {
    attr->form = Form::kWord;
    return in->ExpectHere("<") && in->Word(&attr->name) && in->Word(&attr->word) && in->Expect(">");
  }
  if (name.starts_with("stablehlo.")) {
    attr->form = Form::kFields;
    attr->name = name.substr(name.find('.') + 1);
    return in->ExpectHere("<") && ReadEntries(in, depth + 1, ">", &attr->fields);
  }
  if (name == "sdy.mesh") return ReadMesh(in, attr);
  if (name == "sdy.sharding") return ReadSharding(in, attr);
  if (name == "sdy.sharding_per_value") return in->Expect("<") && ReadShardings(in, attr) && in->Expect(">");
  if (name == "sdy")
    return in->ExpectHere("<") && in->ExpectWord("manual_axes") && ReadManualAxes(in, attr) && in->Expect(">");
  return in->Fail(attr->at, "the attribute " + Quote("#" + std::string(name)) +
                                " is not supported; supported are those of stablehlo, #sdy.mesh, #sdy.sharding and "
                                "#sdy.sharding_per_value");
}

// `(1)2` of a reference to a part of an axis
bool ReadSubAxis(Scanner* in, AttrNode* attr) {
  attr->form = Form::kSubAxis;
  attr->ints.resize(2);
  return in->Expect("(") && in->Integer(&attr->ints[0]) && in->Expect(")") && in->Integer(&attr->ints[1]);
}

bool ReadNamed(Scanner* in, AttrNode* attr) {
  if (in->TryWord("array")) return ReadArray(in, attr);
  if (in->TryWord("dense")) return ReadDense(in, attr);
  if (in->TryWord("unit")) return true;
  attr->form = Form::kBool;
  attr->number = in->TryWord("true") ? 1 : 0;
  if (attr->number == 1 || in->TryWord("false")) return true;
  return in->Expected("an attribute");
}

}  // namespace

bool ReadMesh(Scanner* in, AttrNode* attr) {
  attr->form = Form::kMesh;
  if (!in->Expect("<") || !in->Expect("[")) return false;
  if (!in->Try("]")) {
    do {
      NamedAttr& axis = attr->fields.emplace_back();
      axis.at = axis.value.at = in->Mark();
      if (!in->PlainString(&axis.key) || !in->Expect("=") || !in->Integer(&axis.value.number)) return false;
    } while (in->Try(","));
    if (!in->Expect("]")) return false;
  }
  if (in->Try(",")) {
    AttrNode ids;
    if (!in->ExpectWord("device_ids") || !in->Expect("=") || !ReadInts(in, &ids)) return false;
    attr->ints = std::move(ids.ints);
  }
  return in->Expect(">");
}

bool ReadInts(Scanner* in, AttrNode* attr) {
  attr->at = in->Mark();
  attr->form = Form::kInts;
  if (!in->Expect("[")) return false;
  if (in->Try("]")) return true;
  do {
    if (!in->Integer(&attr->ints.emplace_back())) return false;
  } while (in->Try(","));
  return in->Expect("]");
}

bool ReadAttr(Scanner* in, int depth, AttrNode* attr) {
  attr->at = in->Mark();
  if (depth > kMaxNesting) return in->Expected("at most 16 attributes within each other");
  const char c = in->Peek();
  switch (c) {
    case '"':
      attr->form = Form::kText;
      return in->String(&attr->word);
    case '@':
      attr->form = Form::kSymbol;
      return in->Name('@', &attr->word);
    case '[':
      return ReadList(in, depth, attr);
    case '{':
      attr->form = Form::kFields;
      return in->Expect("{") && ReadEntries(in, depth + 1, "}", &attr->fields);
    case '#':
      return ReadDialect(in, depth, attr);
    case '(':
      return ReadType(in, attr);
    default:
      return c == '-' || (c >= '0' && c <= '9') ? ReadNumber(in, attr) : ReadNamed(in, attr);
  }
}

bool ReadEntries(Scanner* in, int depth, std::string_view end, std::vector<NamedAttr>* attributes) {
  if (in->Try(end)) return true;
  std::unordered_set<std::string_view> keys;
  for (const NamedAttr& attribute : *attributes) keys.insert(attribute.key);
  do {
    NamedAttr& entry = attributes->emplace_back();
    entry.at = entry.value.at = in->Mark();
    if (!in->Word(&entry.key)) return false;
    if (!keys.insert(entry.key).second)
      return in->Fail(entry.at, "the attribute " + Quote(entry.key) + " is here twice; expected it once");
    if (!in->Try("=")) continue;
    if (!(entry.key == "sub_axis_info" ? ReadSubAxis(in, &entry.value) : ReadAttr(in, depth, &entry.value)))
      return false;
  } while (in->Try(","));
  return in->Expect(end);
}

}  // namespace axccl::program::stablehlo
