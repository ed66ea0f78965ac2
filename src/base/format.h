// Builds strings. Thread-safe.
#pragma once

#include <cstdarg>
#include <string>
#include <string_view>

namespace axccl {

// Formats by printf's rules; the result may have any length.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);
std::string FormatV(const char* format, va_list arguments);

// Makes text from another process fit for a terminal and a log: every byte that is not printable ASCII becomes `?`.
std::string Printable(std::string_view text);

// Joins the words of a container, with `separator` between them.
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
