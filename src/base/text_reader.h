// A cursor over a text in a strict line-based form, such as a plan or a machine description.
//
// The reader keeps the first failure with its line and column. After it, every read fails, so callers may chain reads
// and check once. Views of the text are valid as long as the text. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace axccl {

class TextReader {
 public:
  // `title` ("plan text") begins the message of a failure.
  TextReader(std::string_view title, std::string_view text) : title_(title), text_(text) {}

  const Status& status() const { return status_; }
  bool failed() const { return !status_.ok(); }
  bool AtEnd() const { return at_ == text_.size(); }

  // Records a failure: what was expected here, and what was found. Always returns false.
  bool Fail(const std::string& expected);

  // Consumes `word` if the text continues with it.
  bool Try(std::string_view word);
  // As Try, but fails if the text does not continue with `word`.
  bool Expect(std::string_view word);
  // Reads a decimal number without sign and leading zeros.
  bool Number(uint64_t least, uint64_t most, uint64_t* value);
  template <class T>
  bool Number(uint64_t least, uint64_t most, T* value) {
    uint64_t v = 0;
    if (!Number(least, most, &v)) return false;
    *value = static_cast<T>(v);
    return true;
  }
  // Reads the characters up to the next space or line end.
  std::string_view Word() { return Until(" \n"); }
  std::string_view Line() { return Until("\n"); }

  // Reads the characters up to the first of `ends`, or to the end of the text.
  std::string_view Until(std::string_view ends);

  // Mark returns the current position, Back returns to it, so that a word can be checked as a whole and a failure be
  // reported at its start.
  size_t Mark() const { return at_; }
  void Back(size_t mark) { at_ = failed() ? at_ : mark; }

 private:
  std::string Found() const;

  std::string_view title_;
  std::string_view text_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace axccl
