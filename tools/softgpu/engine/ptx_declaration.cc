// Variables with their heads, array bounds and initialisers; and formal parameters.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tools/softgpu/engine/ptx_literal.h"
#include "tools/softgpu/engine/ptx_parser.h"

namespace softgpu::engine {
namespace {

constexpr std::string_view kSpaces[] = {".global", ".const", ".shared", ".local", ".param", ".reg", ".tex"};

Space SpaceNamed(std::string_view name) {
  if (name == ".const") return Space::kConst;
  if (name == ".shared") return Space::kShared;
  if (name == ".local") return Space::kLocal;
  if (name == ".param") return Space::kParam;
  return Space::kGlobal;
}

// "0xFF00(symbol)": the mask selects the byte of the address.
bool ParseMaskedAddress(Cursor& cursor, uint64_t mask, AddressInitialiser* address) {
  address->mask = mask;
  cursor.Expect("(");
  if (cursor.Skip("generic")) cursor.Expect("(");
  address->symbol = cursor.Next().text;
  while (cursor.Skip(")")) {
  }
  return true;
}

bool ParseSymbolAddress(Cursor& cursor, AddressInitialiser* address) {
  const bool generic = cursor.Skip("generic");
  if (generic && !cursor.Expect("(")) return false;
  address->symbol = cursor.Next().text;
  if (generic && !cursor.Expect(")")) return false;
  if (cursor.Peek().Is("+") || cursor.Peek().Is("-")) {
    cursor.Skip("+");
    return ParseInteger(cursor, &address->addend);
  }
  return true;
}

uint64_t LiteralBits(const OperandIr& literal, Type type) {
  if (literal.literal == OperandIr::kFloat64 && type == Type::kF32)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(literal.bits)));
  if (literal.literal == OperandIr::kFloat32 && type == Type::kF64)
    return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(literal.bits))));
  return literal.bits;
}

bool ParseElement(Cursor& cursor, VariableIr* variable, uint32_t element_bytes) {
  const uint32_t offset = static_cast<uint32_t>(variable->data.size());
  uint64_t bits = 0;
  const bool negative = cursor.Skip("-");
  const std::string_view word = cursor.Peek().text;
  if (!word.empty() && word[0] >= '0' && word[0] <= '9') {
    OperandIr literal;
    if (!ParseLiteral(cursor.Next().text, negative, &literal)) return cursor.Fail("not a number: " + std::string(word));
    bits = LiteralBits(literal, variable->type);
    if (cursor.Peek().Is("(")) {
      AddressInitialiser address{offset, element_bytes, {}, 0, ~0ull};
      if (!ParseMaskedAddress(cursor, bits, &address)) return false;
      variable->addresses.push_back(address);
      bits = 0;
    }
  } else {
    AddressInitialiser address{offset, element_bytes, {}, 0, ~0ull};
    if (!ParseSymbolAddress(cursor, &address)) return false;
    variable->addresses.push_back(address);
  }
  variable->data.resize(offset + element_bytes);
  std::memcpy(variable->data.data() + offset, &bits, std::min<size_t>(element_bytes, sizeof bits));
  return true;
}

}  // namespace

bool ParseInteger(Cursor& cursor, int64_t* value) {
  const bool negative = cursor.Skip("-");
  OperandIr literal;
  const std::string_view word = cursor.Next().text;
  if (!ParseLiteral(word, negative, &literal) || literal.literal != OperandIr::kInteger)
    return cursor.Fail("not an integer: '" + std::string(word) + "'");
  *value = static_cast<int64_t>(literal.bits);
  return true;
}

bool ParseDeclarationHead(Cursor& cursor, DeclarationHead* head) {
  while (cursor.Peek().text.starts_with('.')) {
    const std::string_view word = cursor.Next().text;
    if (word == ".align") {
      int64_t align = 0;
      if (!ParseInteger(cursor, &align)) return false;
      // The alignment after .ptr is that of its target.
      if (head->align == 0) head->align = static_cast<uint32_t>(align);
    } else if (word == ".extern") {
      head->is_extern = true;
    } else if (word == ".visible" || word == ".weak" || word == ".common") {
      head->is_visible = true;
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      head->vector = static_cast<uint32_t>(word[2] - '0');
    } else if (word == ".ptr") {
      if (head->align == 0) head->align = SizeOf(head->type);
    } else if (word == ".attribute") {
      while (!cursor.Peek().IsEnd() && !cursor.Skip(")")) cursor.Next();
    } else if (std::find(std::begin(kSpaces), std::end(kSpaces), word) != std::end(kSpaces)) {
      if (head->space.empty()) head->space = word;
    } else if (const Type type = TypeNamed(word.substr(1)); type != Type::kNone) {
      head->type = type;
    } else if (word == ".managed") {
      continue;
    } else {
      return cursor.Fail("declaration with '" + std::string(word) + "' is not understood");
    }
  }
  return true;
}

std::unique_ptr<VariableIr> ParseDeclarator(Cursor& cursor, const DeclarationHead& head) {
  auto variable = std::make_unique<VariableIr>();
  variable->name = std::string(cursor.Next().text);
  variable->space = SpaceNamed(head.space);
  variable->type = head.type;
  variable->is_extern = head.is_extern;
  variable->is_visible = head.is_visible;
  const uint32_t element = SizeOf(head.type) * head.vector;
  variable->align = std::max(head.align, std::max(element, 1u));
  if (head.align != 0) variable->align = head.align;
  variable->bytes = element;
  while (cursor.Skip("[")) {
    int64_t count = 0;
    if (!cursor.Peek().Is("]") && !ParseInteger(cursor, &count)) return variable;
    variable->bytes *= static_cast<uint64_t>(count);
    if (!cursor.Expect("]")) return variable;
  }
  return variable;
}

bool ParseInitialiser(Cursor& cursor, VariableIr* variable) {
  const uint32_t element = std::max(SizeOf(variable->type), 1u);
  if (!cursor.Peek().Is("{")) return ParseElement(cursor, variable, element);
  int open = 0;
  do {
    if (cursor.Skip("{")) {
      ++open;
    } else if (cursor.Skip("}")) {
      --open;
    } else if (!cursor.Skip(",") && !ParseElement(cursor, variable, element)) {
      return false;
    }
  } while (open > 0 && !cursor.Peek().IsEnd());
  // "a[] = {1, 2}"
  variable->bytes = std::max<uint64_t>(variable->bytes, variable->data.size());
  return true;
}

bool ParseFormals(Cursor& cursor, FunctionIr* function, std::vector<OperandIr>* formals) {
  if (!cursor.Skip("(")) return true;
  while (!cursor.Skip(")")) {
    if (cursor.Peek().IsEnd()) return cursor.Fail("the list of parameters does not end");
    DeclarationHead head;
    if (!ParseDeclarationHead(cursor, &head)) return false;
    auto variable = ParseDeclarator(cursor, head);
    OperandIr operand;
    operand.type = head.type;
    operand.name = variable->name;
    operand.variable = variable.get();
    operand.kind = OperandIr::kVariable;
    if (head.space == ".reg") {
      operand.kind = OperandIr::kRegister;
      operand.index = static_cast<uint32_t>(function->registers.size());
      function->registers.push_back({head.type});
    }
    formals->push_back(operand);
    function->variables.push_back(std::move(variable));
    cursor.Skip(",");
  }
  return true;
}

}  // namespace softgpu::engine
