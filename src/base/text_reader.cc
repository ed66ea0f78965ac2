#include "src/base/text_reader.h"

#include <algorithm>
#include <charconv>

namespace axccl {
namespace {

std::string Quote(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\n' ? std::string("\\n") : c < ' ' || c > '~' ? "?" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

bool TextReader::Fail(const std::string& expected) {
  if (failed()) return false;
  const std::string_view before = text_.substr(0, at_);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  status_ =
      MakeStatus(Code::kInvalidArgument, "%.*s, line %td column %zu: %s, found %s", static_cast<int>(title_.size()),
                 title_.data(), line, at_ - start + 1, expected.c_str(), Found().c_str());
  return false;
}

bool TextReader::Try(std::string_view word) {
  if (failed() || text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

bool TextReader::Expect(std::string_view word) { return Try(word) || Fail("expected " + Quote(word)); }

bool TextReader::Number(uint64_t least, uint64_t most, uint64_t* value) {
  if (failed()) return false;
  const char* const begin = text_.data() + at_;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
  const bool leading_zero = end - begin > 1 && *begin == '0';
  if (error != std::errc() || leading_zero || number < least || number > most)
    return Fail("expected a number from " + std::to_string(least) + " to " + std::to_string(most));
  at_ += static_cast<size_t>(end - begin);
  *value = number;
  return true;
}

std::string_view TextReader::Until(std::string_view ends) {
  const size_t start = at_;
  if (!failed()) at_ = std::min(text_.find_first_of(ends, at_), text_.size());
  return text_.substr(start, at_ - start);
}

std::string TextReader::Found() const {
  if (AtEnd()) return "the end of the text";
  const std::string_view rest = text_.substr(at_, 24);
  const size_t end = rest.find('\n');
  return Quote(end == std::string_view::npos ? rest : rest.substr(0, end + 1));
}

}  // namespace axccl
