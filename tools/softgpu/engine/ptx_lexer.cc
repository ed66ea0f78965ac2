#include "tools/softgpu/engine/ptx_lexer.h"

#include <cctype>

namespace softgpu::engine {
namespace {

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> Run() {
    std::vector<Token> tokens;
    for (SkipBlank(); at_ < text_.size(); SkipBlank()) {
      const size_t begin = at_;
      const int line = line_;
      Advance();
      tokens.push_back({text_.substr(begin, at_ - begin), line});
    }
    tokens.push_back({{}, line_});
    return tokens;
  }

 private:
  bool StartsWith(std::string_view mark) const { return text_.substr(at_, mark.size()) == mark; }

  void SkipTo(std::string_view mark, bool past) {
    const size_t found = text_.find(mark, at_);
    const size_t end = found == text_.npos ? text_.size() : found + (past ? mark.size() : 0);
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
  }

  void SkipBlank() {
    while (at_ < text_.size()) {
      if (StartsWith("//")) {
        SkipTo("\n", false);
      } else if (StartsWith("/*")) {
        SkipTo("*/", true);
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) || text_[at_] == '\0') {
        line_ += text_[at_++] == '\n';
      } else {
        return;
      }
    }
  }

  void Advance() {
    if (text_[at_] == '"') {
      ++at_;
      SkipTo("\"", true);
      return;
    }
    if (!IsWordCharacter(text_[at_])) {
      ++at_;
      return;
    }
    while (at_ < text_.size()) {
      if (IsWordCharacter(text_[at_])) {
        ++at_;
      } else if (StartsWith("::")) {
        at_ += 2;
      } else {
        return;
      }
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view text) { return Lexer(text).Run(); }

}  // namespace softgpu::engine
