// A cursor over the tokens of MLIR's text: it skips blanks, comments and locations before each.
//
// It keeps the first failure with its line and column. After it, every read fails, so callers may chain reads and check
// once. Views of the text are valid as long as the text. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace axccl::program::stablehlo {

// `text` in quotes, printable and not long.
std::string Quote(std::string_view text);

// A float in MLIR's form: digits, a point, and maybe more digits and an exponent; false if it is not, or too large.
bool ParseDecimal(std::string_view word, double* value);

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  const Status& status() const { return status_; }
  bool failed() const { return !status_.ok(); }

  // Record a failure; always return false. Expected says what was found at the next token.
  bool Fail(size_t at, const std::string& message);
  bool Expected(const std::string& what);

  // Where the next token begins. Back returns there.
  size_t Mark();
  void Back(size_t mark) { at_ = mark; }
  std::string_view From(size_t mark) const { return text_.substr(mark, at_ - mark); }
  bool AtEnd() { return Mark() == text_.size(); }
  // The character of the next token, 0 at the end.
  char Peek() { return AtEnd() || failed() ? '\0' : text_[at_]; }

  // Consumes punctuation if the text continues with it.
  bool Try(std::string_view punctuation);
  bool Expect(std::string_view punctuation);
  // The same, without blanks before.
  bool ExpectHere(std::string_view punctuation);
  // The same for a whole word.
  bool TryWord(std::string_view word);
  bool ExpectWord(std::string_view word);

  // An identifier such as `stablehlo.add`; fails if there is none.
  bool Word(std::string_view* word);
  // What follows %, @, ^, # or !, such as the `arg0` of %arg0. @ may be followed by a string.
  bool Name(char sigil, std::string_view* name);
  // What is between the quotes. Symbols and the names of axes may have no escapes.
  bool String(std::string_view* contents);
  bool PlainString(std::string_view* contents);
  // A decimal integer, maybe negative.
  bool Integer(int64_t* number);
  // The characters of a number, `true` or the like: letters, digits, '.', '+' and '-'.
  std::string_view Element();
  // Moves behind the next `end`; fails if there is none.
  bool SkipBehind(char end);

 private:
  std::string_view text_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace axccl::program::stablehlo
