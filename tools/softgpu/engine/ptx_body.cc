// Function bodies: declarations, labels, statements and their operands.
#include "tools/softgpu/engine/ptx_literal.h"
#include "tools/softgpu/engine/ptx_parser.h"
#include "tools/softgpu/engine/ptx_scope.h"

namespace softgpu::engine {
namespace {

class BodyParser {
 public:
  BodyParser(Cursor& cursor, const ModuleIr& module, FunctionIr* function)
      : cursor_(cursor), module_(module), function_(function), scopes_(function) {}

  bool Run();

 private:
  bool ParseItem();
  bool ParseLabelled(std::string_view label);
  bool ParseDeclaration();
  bool ParseRegisters(const DeclarationHead& head);
  bool ParseStatement();
  bool ParseGuard(StatementIr* statement);
  bool ParseCall(StatementIr* statement);
  bool ParseList(std::vector<OperandIr>* list);
  bool ParseOperand(OperandIr* operand);
  bool ParsePlainOperand(OperandIr* operand);
  bool ParseAddress(OperandIr* operand);
  bool ParseOffset(int64_t* offset);
  bool ResolveName(std::string_view name, OperandIr* operand);
  bool CloseScope();

  Cursor& cursor_;
  const ModuleIr& module_;
  FunctionIr* const function_;
  Scopes scopes_;
};

bool BodyParser::Run() {
  for (const std::vector<OperandIr>* formals : {&function_->results, &function_->parameters}) {
    for (const OperandIr& formal : *formals) scopes_.DeclareFormal(formal);
  }
  while (true) {
    if (cursor_.Peek().IsEnd()) return cursor_.Fail("the body of '" + function_->name + "' does not end");
    if (cursor_.Skip("}")) {
      const bool last = scopes_.IsOutermost();
      if (!CloseScope()) return false;
      if (last) return true;
    } else if (!ParseItem()) {
      return false;
    }
  }
}

bool BodyParser::CloseScope() {
  std::string_view missing;
  return scopes_.Close(&missing) || cursor_.Fail("there is no label '" + std::string(missing) + "'");
}

bool BodyParser::ParseItem() {
  const std::string_view word = cursor_.Peek().text;
  if (cursor_.Skip("{")) {
    scopes_.Open();
    return true;
  }
  if (cursor_.Skip(";")) return true;
  if (word == ".loc" || word == ".file") {
    cursor_.SkipLine();
    return true;
  }
  if (word == ".pragma") {
    while (!cursor_.Peek().IsEnd() && !cursor_.Skip(";")) cursor_.Next();
    return true;
  }
  if (cursor_.Peek(1).Is(":")) {
    cursor_.Next();
    cursor_.Next();
    return ParseLabelled(word);
  }
  return word.starts_with('.') ? ParseDeclaration() : ParseStatement();
}

bool BodyParser::ParseLabelled(std::string_view label) {
  const std::string_view word = cursor_.Peek().text;
  if (word == ".branchtargets") {
    cursor_.Next();
    std::vector<std::string_view> labels;
    do {
      labels.push_back(cursor_.Next().text);
    } while (cursor_.Skip(","));
    scopes_.DeclareTargets(label, std::move(labels));
    return cursor_.Expect(";");
  }
  if (word == ".callprototype" || word == ".calltargets") {
    while (!cursor_.Peek().IsEnd() && !cursor_.Skip(";")) cursor_.Next();
    return true;
  }
  scopes_.DeclareLabel(label);
  return true;
}

bool BodyParser::ParseDeclaration() {
  DeclarationHead head;
  if (!ParseDeclarationHead(cursor_, &head)) return false;
  if (head.space == ".reg") return ParseRegisters(head);
  do {
    auto variable = ParseDeclarator(cursor_, head);
    if (cursor_.Skip("=") && !ParseInitialiser(cursor_, variable.get())) return false;
    scopes_.DeclareVariable(variable.get());
    function_->variables.push_back(std::move(variable));
  } while (cursor_.Skip(","));
  return cursor_.Expect(";");
}

bool BodyParser::ParseRegisters(const DeclarationHead& head) {
  if (head.vector != 1) return cursor_.Fail("vector registers are not supported");
  do {
    const std::string_view name = cursor_.Next().text;
    if (cursor_.Skip("<")) {
      int64_t count = 0;
      if (!ParseInteger(cursor_, &count) || !cursor_.Expect(">")) return false;
      scopes_.DeclareRegisters(name, static_cast<uint32_t>(count), head.type);
    } else {
      scopes_.DeclareRegister(name, head.type);
    }
  } while (cursor_.Skip(","));
  return cursor_.Expect(";");
}

bool BodyParser::ParseGuard(StatementIr* statement) {
  if (!cursor_.Skip("@")) return true;
  const bool negated = cursor_.Skip("!");
  const std::string_view name = cursor_.Next().text;
  if (!scopes_.Find(name, &statement->guard) || statement->guard.type != Type::kPred)
    return cursor_.Fail("'" + std::string(name) + "' is no predicate");
  statement->guard.negated = negated;
  return true;
}

// Splits words such as "ld.global.u32".
void SplitOpcode(std::string_view word, StatementIr* statement) {
  size_t dot = word.find('.');
  statement->opcode = word.substr(0, dot);
  while (dot != word.npos) {
    word.remove_prefix(dot + 1);
    dot = word.find('.');
    statement->modifiers.push_back(word.substr(0, dot));
  }
}

bool BodyParser::ParseStatement() {
  StatementIr statement;
  statement.line = cursor_.Peek().line;
  const char* const begin = cursor_.Peek().text.data();
  if (!ParseGuard(&statement)) return false;
  SplitOpcode(cursor_.Next().text, &statement);
  if (statement.opcode == "call") {
    if (!ParseCall(&statement)) return false;
  } else if (!cursor_.Peek().Is(";")) {
    do {
      OperandIr operand;
      if (!ParseOperand(&operand)) return false;
      statement.operands.push_back(std::move(operand));
    } while (cursor_.Skip(","));
  }
  const char* const end = cursor_.Peek().text.data();
  if (!cursor_.Expect(";")) return false;
  statement.text = std::string_view(begin, static_cast<size_t>(end - begin));
  if (statement.opcode == "bra" || statement.opcode == "brx") {
    if (statement.operands.empty()) return cursor_.Fail("branch without a target");
    scopes_.Branch(static_cast<uint32_t>(function_->statements.size()), statement.operands.back().name);
  }
  function_->statements.push_back(std::move(statement));
  return true;
}

bool BodyParser::ParseList(std::vector<OperandIr>* list) {
  while (!cursor_.Skip(")")) {
    if (cursor_.Peek().IsEnd()) return cursor_.Fail("a list does not end");
    list->emplace_back();
    if (!ParseOperand(&list->back())) return false;
    cursor_.Skip(",");
  }
  return true;
}

// call (results), function, (arguments), prototype: all except the function are optional.
bool BodyParser::ParseCall(StatementIr* statement) {
  if (cursor_.Skip("(") && !(ParseList(&statement->results) && cursor_.Expect(","))) return false;
  statement->operands.emplace_back();
  if (!ParseOperand(&statement->operands.back())) return false;
  if (cursor_.Skip(",")) {
    if (cursor_.Skip("(")) {
      if (!ParseList(&statement->arguments)) return false;
      if (cursor_.Skip(",")) cursor_.Next();
    } else {
      cursor_.Next();
    }
  }
  return true;
}

bool BodyParser::ParseOperand(OperandIr* operand) {
  if (!ParsePlainOperand(operand)) return false;
  if (!cursor_.Skip("|")) return true;
  operand->second = std::make_shared<OperandIr>();
  return ParsePlainOperand(operand->second.get());
}

bool BodyParser::ParseOffset(int64_t* offset) {
  *offset = 0;
  while (cursor_.Peek().Is("+") || cursor_.Peek().Is("-")) {
    cursor_.Skip("+");
    int64_t value = 0;
    if (!ParseInteger(cursor_, &value)) return false;
    *offset += value;
  }
  return true;
}

bool BodyParser::ParsePlainOperand(OperandIr* operand) {
  if (cursor_.Skip("[")) return ParseAddress(operand);
  if (cursor_.Skip("{")) {
    operand->kind = OperandIr::kVector;
    while (!cursor_.Skip("}")) {
      if (cursor_.Peek().IsEnd()) return cursor_.Fail("a vector does not end");
      operand->parts.emplace_back();
      if (!ParseOperand(&operand->parts.back())) return false;
      cursor_.Skip(",");
    }
    return true;
  }
  const bool negated = cursor_.Skip("!");
  const bool negative = cursor_.Skip("-");
  const std::string_view word = cursor_.Next().text;
  if (word.empty()) return cursor_.Fail("an operand is missing");
  if (word[0] >= '0' && word[0] <= '9')
    return ParseLiteral(word, negative, operand) || cursor_.Fail("not a number: '" + std::string(word) + "'");
  if (negative) return cursor_.Fail("'-' before '" + std::string(word) + "'");
  if (!ResolveName(word, operand)) return false;
  operand->negated = negated;
  return operand->kind != OperandIr::kVariable || ParseOffset(&operand->offset);
}

bool BodyParser::ParseAddress(OperandIr* operand) {
  operand->kind = OperandIr::kAddress;
  const std::string_view word = cursor_.Peek().text;
  if (!word.empty() && ((word[0] >= '0' && word[0] <= '9') || word == "-")) {
    if (!ParseInteger(cursor_, &operand->offset)) return false;
  } else {
    operand->parts.emplace_back();
    if (!ResolveName(cursor_.Next().text, &operand->parts[0]) || !ParseOffset(&operand->offset)) return false;
  }
  return cursor_.Expect("]");
}

bool BodyParser::ResolveName(std::string_view name, OperandIr* operand) {
  operand->name = name;
  if (name == "_") {
    operand->kind = OperandIr::kSink;
  } else if (scopes_.Find(name, operand)) {
    return true;
  } else if (const auto variable = module_.variable_named.find(name); variable != module_.variable_named.end()) {
    operand->kind = OperandIr::kVariable;
    operand->variable = variable->second;
    operand->type = variable->second->type;
  } else if (module_.function_named.contains(name)) {
    operand->kind = OperandIr::kFunction;
  } else if (name.starts_with('%') || name == "WARP_SZ") {
    operand->kind = OperandIr::kSpecial;
  } else {
    operand->kind = OperandIr::kName;  // a label
  }
  return true;
}

}  // namespace

bool ParseBody(const ModuleIr& module, const FunctionIr& of_module) {
  std::lock_guard lock(module.mutex);
  if (module.parsed.insert(&of_module).second) {
    FunctionIr* const function = module.function_named.find(of_module.name)->second;
    const std::vector<Token> tokens = Tokenize(function->body, function->body_line);
    Cursor cursor(tokens);
    if (!cursor.Expect("{") || !BodyParser(cursor, module, function).Run()) function->error = cursor.TakeError();
  }
  return of_module.error.empty();
}

}  // namespace softgpu::engine
