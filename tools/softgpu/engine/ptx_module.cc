// Module scope of PTX: directives, variables and the heads of functions.
#include "tools/softgpu/engine/ptx_parser.h"

namespace softgpu::engine {
namespace {

class ModuleParser {
 public:
  ModuleParser(Cursor& cursor, ModuleIr* module) : cursor_(cursor), module_(module) {}

  bool Run() {
    while (!cursor_.Peek().IsEnd()) {
      if (!ParseItem() || cursor_.failed()) return false;
    }
    return true;
  }

 private:
  bool ParseItem();
  bool ParseFunction(bool is_entry);
  bool ParseFunctionAttributes(FunctionIr* function);
  bool ParseVariable();
  bool ParseAlias();
  // Whether these linkage words belong to a function.
  size_t FindKeyword() const;

  Cursor& cursor_;
  ModuleIr* const module_;
};

size_t ModuleParser::FindKeyword() const {
  size_t at = 0;
  for (std::string_view word = cursor_.Peek().text;
       word == ".visible" || word == ".extern" || word == ".weak" || word == ".common";)
    word = cursor_.Peek(++at).text;
  return at;
}

bool ModuleParser::ParseItem() {
  const std::string_view word = cursor_.Peek().text;
  if (word == ".version" || word == ".target" || word == ".address_size" || word == ".file" || word == ".loc") {
    cursor_.SkipLine();
    return true;
  }
  if (word == ".pragma") {
    while (!cursor_.Peek().IsEnd() && !cursor_.Skip(";")) cursor_.Next();
    return true;
  }
  if (word == ".section" || word == "@@DWARF") {
    while (!cursor_.Peek().IsEnd() && !cursor_.Next().IsBody()) {
    }
    return true;
  }
  if (word == ".alias") return ParseAlias();
  if (cursor_.Skip(";")) return true;
  const size_t linkage = FindKeyword();
  const std::string_view keyword = cursor_.Peek(linkage).text;
  if (keyword == ".entry" || keyword == ".func") {
    for (size_t i = 0; i <= linkage; ++i) cursor_.Next();
    return ParseFunction(keyword == ".entry");
  }
  if (!word.starts_with('.')) return cursor_.Fail("'" + std::string(word) + "' is not understood");
  return ParseVariable();
}

bool ModuleParser::ParseAlias() {
  cursor_.Next();
  const std::string name(cursor_.Next().text);
  cursor_.Expect(",");
  const auto found = module_->function_named.find(cursor_.Next().text);
  if (found == module_->function_named.end()) return cursor_.Fail("alias of an unknown function");
  module_->function_named[name] = found->second;
  return cursor_.Expect(";");
}

bool ModuleParser::ParseVariable() {
  DeclarationHead head;
  if (!ParseDeclarationHead(cursor_, &head)) return false;
  do {
    auto variable = ParseDeclarator(cursor_, head);
    if (cursor_.Skip("=") && !ParseInitialiser(cursor_, variable.get())) return false;
    // A declaration may precede the definition.
    VariableIr*& named = module_->variable_named[variable->name];
    if (named != nullptr && named->is_extern && !variable->is_extern) {
      *named = std::move(*variable);
    } else if (named == nullptr) {
      named = variable.get();
      module_->variables.push_back(std::move(variable));
    }
  } while (cursor_.Skip(","));
  return cursor_.Expect(";");
}

bool ModuleParser::ParseFunctionAttributes(FunctionIr* function) {
  while (cursor_.Peek().text.starts_with('.')) {
    const std::string_view word = cursor_.Next().text;
    uint64_t product = 1;
    while (!cursor_.Peek().IsEnd() && !cursor_.Peek().IsBody() && !cursor_.Peek().text.starts_with('.')) {
      if (cursor_.Peek().Is(";") && word != ".pragma") break;
      if (cursor_.Skip(",") || cursor_.Skip(";")) continue;
      if (cursor_.Peek().text.starts_with('"')) {
        cursor_.Next();
        continue;
      }
      int64_t value = 0;
      if (!ParseInteger(cursor_, &value)) return false;
      product *= static_cast<uint64_t>(value);
    }
    if (word == ".maxntid" || word == ".reqntid") function->max_threads = static_cast<uint32_t>(product);
  }
  return true;
}

bool ModuleParser::ParseFunction(bool is_entry) {
  auto function = std::make_unique<FunctionIr>();
  function->is_entry = is_entry;
  function->line = cursor_.Peek().line;
  if (!is_entry && !ParseFormals(cursor_, function.get(), &function->results)) return false;
  function->name = std::string(cursor_.Next().text);
  if (!ParseFormals(cursor_, function.get(), &function->parameters) || !ParseFunctionAttributes(function.get()))
    return false;
  FunctionIr*& named = module_->function_named[function->name];
  FunctionIr* const target = named == nullptr ? function.get() : named;
  if (named == nullptr) {
    named = target;
    module_->functions.push_back(std::move(function));
  }
  if (cursor_.Skip(";")) return true;
  if (!cursor_.Peek().IsBody()) return cursor_.Expect("{");
  // The definition is used; others may point to the same object.
  if (function != nullptr) *target = std::move(*function);
  target->has_body = true;
  target->body_line = cursor_.Peek().line;
  target->body = cursor_.Next().text;
  return true;
}

}  // namespace

std::unique_ptr<ModuleIr> ParsePtx(std::string_view text, std::string* error) {
  auto module = std::make_unique<ModuleIr>();
  module->text = std::string(text);
  const std::vector<Token> tokens = TokenizeModule(module->text);
  Cursor cursor(tokens);
  if (ModuleParser(cursor, module.get()).Run()) return module;
  *error = cursor.TakeError();
  return nullptr;
}

}  // namespace softgpu::engine
