// Text that is put together. Thread-safe.
#pragma once

#include <cstdarg>
#include <string>
#include <string_view>

namespace axccl {

// By printf's rules, of any length.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);
std::string FormatV(const char* format, va_list arguments);

// What another process sent, fit for a terminal and a log: whatever is not printable ASCII becomes `?`.
std::string Printable(std::string_view text);

// The words of a container, one after the other, with `separator` between them.
template <class Words>
std::string Join(const Words& words, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& word : words) {
    if (!first) text += separator;
    text += word;
    first = false;
  }
  return text;
}

}  // namespace axccl
