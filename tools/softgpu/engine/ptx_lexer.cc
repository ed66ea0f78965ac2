#include "tools/softgpu/engine/ptx_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace softgpu::engine {
namespace {

constexpr auto kWordCharacters = [] {
  std::array<bool, 256> is{};
  for (unsigned char c = '0'; c <= '9'; ++c) is[c] = true;
  for (unsigned char c = 'a'; c <= 'z'; ++c) is[c] = true;
  for (unsigned char c = 'A'; c <= 'Z'; ++c) is[c] = true;
  for (const unsigned char c : {'_', '$', '%', '.'}) is[c] = true;
  return is;
}();

bool IsWordCharacter(char c) { return kWordCharacters[static_cast<unsigned char>(c)]; }

class Lexer {
 public:
  Lexer(std::string_view text, int line, bool bodies_are_words)
      : text_(text), bodies_are_words_(bodies_are_words), line_(line) {}

  std::vector<Token> Run() {
    std::vector<Token> tokens;
    int open = 0;  // braces of "= {{1, 2}, {3, 4}}"
    for (SkipBlank(); at_ < text_.size(); SkipBlank()) {
      const size_t begin = at_;
      const int line = line_;
      const char first = text_[at_];
      if (first == '{' && bodies_are_words_ && open == 0 && (tokens.empty() || !tokens.back().Is("="))) {
        SkipBody();
      } else {
        open += static_cast<int>(first == '{') - static_cast<int>(first == '}');
        Advance();
      }
      tokens.push_back({text_.substr(begin, at_ - begin), line});
    }
    tokens.push_back({{}, line_});
    return tokens;
  }

 private:
  bool StartsWith(std::string_view mark) const { return text_.substr(at_, mark.size()) == mark; }

  void SkipTo(std::string_view mark, bool past) {
    const size_t found = text_.find(mark, at_);
    GoTo(found == text_.npos ? text_.size() : found + (past ? mark.size() : 0));
  }

  void GoTo(size_t end) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  // To behind the brace that closes the one here.
  void SkipBody() {
    int open = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      line_ += c == '\n';
      if (c == '{') ++open;
      if (c == '}' && --open == 0) return;
      if (c == '"') SkipTo("\"", true);
      if (c != '/') continue;
      --at_;
      const size_t begin = at_;
      SkipBlank();  // a comment
      if (at_ == begin) ++at_;
    }
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
    // Directives are one word each, ".reg.b32" are two; opcodes keep their modifiers.
    const bool directive = text_[at_++] == '.';
    if (directive) {
      while (at_ < text_.size() && text_[at_] != '.' && IsWordCharacter(text_[at_])) ++at_;
    } else {
      at_ = EndOfWord(text_, at_);
    }
  }

  const std::string_view text_;
  const bool bodies_are_words_;
  size_t at_ = 0;
  int line_;
};

}  // namespace

size_t EndOfWord(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (IsWordCharacter(text[at])) {
      ++at;
    } else if (text.substr(at, 2) == "::") {
      at += 2;
    } else {
      break;
    }
  }
  return at;
}

std::vector<Token> Tokenize(std::string_view text, int line) { return Lexer(text, line, false).Run(); }

std::vector<Token> TokenizeModule(std::string_view text) { return Lexer(text, 1, true).Run(); }

}  // namespace softgpu::engine
