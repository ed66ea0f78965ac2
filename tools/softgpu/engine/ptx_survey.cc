// What a body needs, by a look at its words. It takes a small part of the time of parsing it.
#include <algorithm>
#include <cstring>

#include "tools/softgpu/engine/ptx_parser.h"

namespace softgpu::engine {
namespace {

// For special registers, each of which has one column at most, apart from those of places in local memory.
constexpr uint32_t kSpecialColumns = 40;

template <class T>
void AddOnce(std::vector<const T*>* to, const T* what) {
  if (std::find(to->begin(), to->end(), what) == to->end()) to->push_back(what);
}

class Surveyor {
 public:
  Surveyor(const ModuleIr& module, const FunctionIr& function) : module_(module), text_(function.body) {
    survey_.columns = kSpecialColumns;
    for (const auto& variable : function.variables) AddLocal(*variable);
    for (const RegisterIr& formal : function.registers) AddRegisters(formal.type, 1);
  }

  BodySurvey Run() {
    while (SkipTo(Skip::kToStatement)) {
      if (text_[at_] == '.') {
        Directive();
      } else {
        Statement();
      }
    }
    return std::move(survey_);
  }

 private:
  enum class Skip { kBlanks, kToStatement };

  bool SkipTo(Skip what) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '/' && text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      } else if (c == '/' && text_.substr(at_, 2) == "/*") {
        at_ = std::min(text_.find("*/", at_), text_.size() - 2) + 1;
      } else if (std::strchr(what == Skip::kBlanks ? " \t\r\n" : " \t\r\n;{}", c) == nullptr) {
        return true;
      }
    }
    return false;
  }

  std::string_view TakeWord() {
    const size_t begin = at_;
    at_ = EndOfWord(text_, at_);
    return text_.substr(begin, at_ - begin);
  }

  void AddRegisters(Type type, uint32_t count) {
    if (type == Type::kPred) {
      survey_.predicates += count;
    } else {
      survey_.columns += count * (type == Type::kB128 ? 2 : 1);
    }
  }

  void AddLocal(const VariableIr& variable) {
    if (variable.space == Space::kShared) survey_.declares_shared = true;
    if (variable.space != Space::kLocal && variable.space != Space::kParam) return;
    const uint32_t align = std::max(variable.align, 1u);
    if (align > kLocalAlignment) survey_.local_bytes += align;  // of what precedes it
    survey_.local_bytes = (survey_.local_bytes + align - 1) / align * align + static_cast<uint32_t>(variable.bytes);
  }

  void Directive();
  void Declaration(std::string_view text);
  void Statement();
  void Call();
  void Opcode(std::string_view word);
  void Operand(std::string_view word);

  const ModuleIr& module_;
  const std::string_view text_;
  size_t at_ = 0;
  BodySurvey survey_;
};

void Surveyor::Directive() {
  const std::string_view rest = text_.substr(at_);
  const bool line = rest.starts_with(".loc") && !rest.starts_with(".local");
  const size_t end = std::min(rest.find(line || rest.starts_with(".file") ? '\n' : ';'), rest.size());
  if (rest.starts_with(".callprototype") || rest.starts_with(".calltargets")) survey_.calls_by_address = true;
  constexpr std::string_view kDeclare[] = {".reg", ".local", ".param", ".shared", ".align"};
  if (std::ranges::any_of(kDeclare, [&](std::string_view word) { return rest.starts_with(word); }))
    Declaration(rest.substr(0, end));
  at_ += end;
}

// An error in it is found when the body is parsed.
void Surveyor::Declaration(std::string_view text) {
  const std::vector<Token> tokens = Tokenize(text);
  Cursor cursor(tokens);
  DeclarationHead head;
  if (!ParseDeclarationHead(cursor, &head)) return;
  do {
    if (head.space == ".reg") {
      int64_t count = 1;
      cursor.Next();
      if (cursor.Skip("<") && (!ParseInteger(cursor, &count) || !cursor.Expect(">"))) return;
      AddRegisters(head.type, static_cast<uint32_t>(count));
    } else {
      AddLocal(*ParseDeclarator(cursor, head));
    }
  } while (cursor.Skip(","));
}

// A label, or an instruction.
void Surveyor::Statement() {
  bool guard = false, opcode = false;
  while (at_ < text_.size() && text_[at_] != ';') {
    const std::string_view word = TakeWord();
    if (word.empty()) {
      guard |= text_[at_++] == '@';
      continue;
    }
    if (!opcode && !guard) {
      if (SkipTo(Skip::kBlanks) && text_[at_] == ':') {
        ++at_;
        return;
      }
      Opcode(word);
      opcode = true;
    } else if (opcode) {
      Operand(word);
    }
    guard = false;
  }
  ++survey_.constants;
}

void Surveyor::Opcode(std::string_view word) {
  if (word == "call" || word == "call.uni") Call();
  if (!word.starts_with("cp.") || word.find("async.bulk.") == word.npos) return;
  const auto has = [&](std::string_view modifier) { return word.find(modifier) != word.npos; };
  survey_.reads_shared_in_bulk |= has(".bulk_group") || (has(".mbarrier::complete_tx") && !has(".global"));
}

// Results, if there are any, stand before the function.
void Surveyor::Call() {
  const size_t begin = at_;
  if (SkipTo(Skip::kBlanks) && text_[at_] == '(') {
    at_ = std::min(text_.find(')', at_), text_.size() - 1) + 1;
    while (SkipTo(Skip::kBlanks) && text_[at_] == ',') ++at_;
  }
  if (at_ < text_.size() && text_[at_] == '%') survey_.calls_by_address = true;
  at_ = begin;
}

void Surveyor::Operand(std::string_view word) {
  if (word[0] == '%' || word[0] == '$') return;
  ++survey_.constants;
  if ((word[0] >= '0' && word[0] <= '9') || word == "_") return;
  if (const auto function = module_.function_named.find(word); function != module_.function_named.end()) {
    AddOnce<FunctionIr>(&survey_.functions, function->second);
  } else if (const auto variable = module_.variable_named.find(word); variable != module_.variable_named.end()) {
    AddOnce<VariableIr>(&survey_.variables, variable->second);
  } else {
    ++survey_.columns;  // perhaps for the address of a local variable
  }
}

}  // namespace

const BodySurvey& SurveyBody(const ModuleIr& module, const FunctionIr& function) {
  std::lock_guard lock(module.mutex);
  const auto [found, fresh] = module.surveys.try_emplace(&function);
  if (fresh) found->second = Surveyor(module, function).Run();
  return found->second;
}

}  // namespace softgpu::engine
