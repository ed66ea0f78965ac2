#include <type_traits>

#include "src/plan/text.h"
#include "src/program/element.h"
#include "src/program/kinds.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

template <class Items, class PrintItem>
void PrintList(const Items& items, std::string* out, PrintItem print_item) {
  *out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) *out += ',';
    print_item(items[i]);
  }
  *out += ']';
}

void PrintInts(const Ints& ints, std::string* out) {
  PrintList(ints, out, [&](int64_t number) { *out += std::to_string(number); });
}

void PrintLiteral(const Literal& literal, DataType type, std::string* out) {
  const size_t size = ElementSize(type), elements = literal.bytes.size() / size;
  if (elements != 1) *out += '[';
  for (size_t i = 0; i < elements; ++i) {
    if (i != 0) *out += ',';
    *out += ElementText(type, literal.bytes.data() + i * size);
  }
  if (elements != 1) *out += ']';
}

void PrintAttribute(const Operation& operation, const Attribute& attribute, std::string* out) {
  *out += ' ';
  *out += InfoOf(attribute.attr).name;
  *out += '=';
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, int64_t>) {
          *out += std::to_string(value);
        } else if constexpr (std::is_same_v<T, Ints>) {
          PrintInts(value, out);
        } else if constexpr (std::is_same_v<T, Groups>) {
          PrintList(value, out, [&](const Ints& group) { PrintInts(group, out); });
        } else if constexpr (std::is_same_v<T, Literal>) {
          PrintLiteral(value, operation.results[0].type.data_type, out);
        } else {
          *out += NameOf(value);
        }
      },
      attribute.value);
}

void PrintId(Id id, std::string* out) { *out += '%' + std::to_string(id); }

void PrintValue(const Value& value, std::string* out) {
  PrintId(value.id, out);
  *out += ' ' + Print(value.type);
}

void PrintOperands(const std::vector<Id>& operands, std::string* out) {
  for (const Id id : operands) {
    *out += ' ';
    PrintId(id, out);
  }
}

void PrintFunction(const Function& function, const std::string& indent, std::string* out);

void PrintOperation(const Operation& operation, const std::string& indent, std::string* out) {
  const KindInfo& info = InfoOf(operation.kind);
  *out += indent;
  if (operation.results.empty()) PrintId(operation.id, out);
  for (size_t i = 0; i < operation.results.size(); ++i) {
    if (i != 0) *out += ", ";
    PrintValue(operation.results[i], out);
  }
  *out += " = ";
  *out += info.name;
  PrintOperands(operation.operands, out);
  for (const Attribute& attribute : operation.attributes) PrintAttribute(operation, attribute, out);
  *out += '\n';
  for (const Function& region : operation.regions) {
    *out += indent + region.name + '\n';
    PrintFunction(region, indent + "  ", out);
  }
}

void PrintFunction(const Function& function, const std::string& indent, std::string* out) {
  for (const Value& argument : function.arguments) {
    *out += indent + "argument ";
    PrintValue(argument, out);
    *out += argument.donated ? " donated\n" : "\n";
  }
  for (const Operation& operation : function.operations) PrintOperation(operation, indent, out);
  *out += indent + "return";
  PrintOperands(function.results, out);
  *out += '\n';
}

}  // namespace

std::string Print(const TensorType& type) {
  std::string text(NameOf(type.data_type));
  PrintInts(type.dims, &text);
  return text;
}

std::string Print(const Program& program) {
  std::string text = "axccl-program " + std::to_string(kTextVersion) + "\n";
  text += "ranks " + std::to_string(program.ranks) + "\n";
  for (const Part& part : program.parts) {
    text += "part " + part.function.name + " on ";
    PrintInts(part.ranks, &text);
    text += '\n';
    PrintFunction(part.function, "  ", &text);
  }
  return text;
}

plan::Hash HashOf(const Program& program) { return plan::HashOf(Print(program)); }

}  // namespace axccl::program
