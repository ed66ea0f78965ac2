// Cuts PTX text into words and marks. Words are runs of letters, digits, '_', '$', '%', '.' and "::", so
// "ld.global.u32" and "%tid.x" are one word each, but ".reg.b32" are two; a string literal is one word with its quotes.
#pragma once

#include <string_view>
#include <vector>

namespace softgpu::engine {

struct Token {
  std::string_view text;  // points into the given text; empty at the end
  int line = 0;           // from 1

  bool Is(std::string_view other) const { return text == other; }
  bool IsEnd() const { return text.empty(); }
};

// The last token is the end. Comments are skipped.
std::vector<Token> Tokenize(std::string_view text);

}  // namespace softgpu::engine
