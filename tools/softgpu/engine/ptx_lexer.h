// Cuts PTX text into words and marks. Words are runs of letters, digits, '_', '$', '%', '.' and "::", so
// "ld.global.u32" and "%tid.x" are one word each, but ".reg.b32" are two; a string literal is one word with its quotes.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace softgpu::engine {

struct Token {
  std::string_view text;  // points into the given text; empty at the end
  int line = 0;           // from 1

  bool Is(std::string_view other) const { return text == other; }
  bool IsEnd() const { return text.empty(); }
  bool IsBody() const { return text.starts_with('{'); }  // of TokenizeModule
};

// Where the word ends that contains the character at `at`; `at` if none does.
size_t EndOfWord(std::string_view text, size_t at);
// The last token is the end. Comments are skipped. `line` is that of the first character.
std::vector<Token> Tokenize(std::string_view text, int line = 1);
// The same, but what stands in braces, as the bodies of functions do, is one word, unless it follows "=".
std::vector<Token> TokenizeModule(std::string_view text);

}  // namespace softgpu::engine
