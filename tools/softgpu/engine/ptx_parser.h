// Common parts of the parsers of module scope and of function bodies: a cursor over tokens, declarations, the first
// error.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/softgpu/engine/ptx_ir.h"
#include "tools/softgpu/engine/ptx_lexer.h"

namespace softgpu::engine {

class Cursor {
 public:
  explicit Cursor(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Next() {
    const Token& token = Peek();
    if (!token.IsEnd()) ++at_;
    return token;
  }
  bool Skip(std::string_view text) {
    if (!Peek().Is(text)) return false;
    ++at_;
    return true;
  }
  bool Expect(std::string_view text) {
    return Skip(text) || Fail("expected '" + std::string(text) + "' but found '" + std::string(Peek().text) + "'");
  }
  void SkipLine() {
    for (const int line = Peek().line; !Peek().IsEnd() && Peek().line == line;) ++at_;
  }
  // Keeps the first error. Always returns false.
  bool Fail(const std::string& what) {
    if (error_.empty()) error_ = "line " + std::to_string(Peek().line) + ": " + what;
    return false;
  }
  bool failed() const { return !error_.empty(); }
  std::string TakeError() { return std::exchange(error_, {}); }

 private:
  const std::vector<Token>& tokens_;
  size_t at_ = 0;
  std::string error_;
};

// The words before a declared name: ".visible .global .align 8 .u64".
struct DeclarationHead {
  std::string_view space;  // ".global", ".reg", ...
  Type type = Type::kNone;
  uint32_t vector = 1, align = 0;
  bool is_extern = false, is_visible = false;
};

bool ParseDeclarationHead(Cursor& cursor, DeclarationHead* head);
// Parses from the name to the end of its array bounds. `space` is that of the head.
std::unique_ptr<VariableIr> ParseDeclarator(Cursor& cursor, const DeclarationHead& head);
// Parses what follows '='.
bool ParseInitialiser(Cursor& cursor, VariableIr* variable);
bool ParseInteger(Cursor& cursor, int64_t* value);

// Parses "( .param .b32 a, .reg .u32 b )"; the body's parser declares formal names.
bool ParseFormals(Cursor& cursor, FunctionIr* function, std::vector<OperandIr>* formals);

}  // namespace softgpu::engine
