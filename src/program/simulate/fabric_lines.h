// The lines of a fabric file, and errors that name where in it.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace axccl::program {

// The lines that say something, one after the other, without comments and the blanks before these.
class FabricLines {
 public:
  explicit FabricLines(std::string_view text) : text_(text) {}

  // An empty line at the end.
  std::string_view Next();
  // `column` of the current line, from 0.
  Status Fail(size_t column, std::string_view found, const std::string& expected) const;

 private:
  std::string_view text_;
  int number_ = 0;
};

// The shortest text that reads back as the same number.
template <class T>
std::string FigureText(T value) {
  char digits[64];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

}  // namespace axccl::program
