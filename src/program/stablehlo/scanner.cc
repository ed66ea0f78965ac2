#include "src/program/stablehlo/scanner.h"

#include <algorithm>
#include <charconv>

namespace axccl::program::stablehlo {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsWord(char c) { return IsLetter(c) || IsDigit(c) || c == '$' || c == '.'; }

constexpr std::string_view kBlanks = " \t\r\n";

// Behind the ')' that belongs to the '(' at `at`; the end of the text if there is none.
size_t BehindParentheses(std::string_view text, size_t at) {
  bool in_string = false;
  for (int depth = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\') ++at;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth == 0) return at + 1;
  }
  return text.size();
}

// Behind the location at `at`, `loc(...)`, or its definition, `#loc1 = loc(...)`; `at` if there is none.
size_t BehindLocation(std::string_view text, size_t at) {
  constexpr std::string_view kLocation = "loc(", kName = "#loc";
  size_t location = at;
  if (text.substr(at, kName.size()) == kName) {
    location = text.find_first_not_of("0123456789", at + kName.size());
    location = std::min(text.find_first_not_of(kBlanks, location), text.size());
    if (text.substr(location, 1) != "=") return at;
    location = std::min(text.find_first_not_of(kBlanks, location + 1), text.size());
  }
  if (text.substr(location, kLocation.size()) != kLocation) return at;
  return BehindParentheses(text, location + kLocation.size() - 1);
}

}  // namespace

std::string Quote(std::string_view text) {
  constexpr size_t kLongest = 64;
  std::string quoted = "'";
  for (const char c : text.substr(0, kLongest)) quoted += c < ' ' || c > '~' ? '?' : c;
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

bool ParseDecimal(std::string_view word, double* value) {
  const size_t point = word.find('.');
  if (point == std::string_view::npos || point == 0 || !IsDigit(word[point - 1])) return false;
  const char* const end = word.data() + word.size();
  const auto [behind, error] = std::from_chars(word.data(), end, *value);
  return error == std::errc() && behind == end;
}

bool Scanner::Fail(size_t at, const std::string& message) {
  if (failed()) return false;
  const std::string_view before = text_.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  status_ = MakeStatus(Code::kInvalidArgument, "StableHLO text, line %td column %zu: %s", line, at - start + 1,
                       message.c_str());
  return false;
}

bool Scanner::Expected(const std::string& what) {
  const size_t at = Mark();
  const std::string_view rest = text_.substr(at, 24);
  return Fail(at, "expected " + what + ", found " +
                      (rest.empty() ? "the end of the text" : Quote(rest.substr(0, rest.find('\n')))));
}

size_t Scanner::Mark() {
  for (;;) {
    at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
    if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
      continue;
    }
    const size_t behind = BehindLocation(text_, at_);
    if (behind == at_) return at_;
    at_ = behind;
  }
}

bool Scanner::Try(std::string_view punctuation) {
  if (failed() || text_.substr(Mark(), punctuation.size()) != punctuation) return false;
  at_ += punctuation.size();
  return true;
}

bool Scanner::Expect(std::string_view punctuation) { return Try(punctuation) || Expected(Quote(punctuation)); }

bool Scanner::ExpectHere(std::string_view punctuation) {
  const size_t here = at_;
  return (Mark() == here && Try(punctuation)) ||
         Fail(here, "expected " + Quote(punctuation) + " without blanks before");
}

bool Scanner::TryWord(std::string_view word) {
  const size_t mark = Mark();
  if (!Try(word)) return false;
  if (at_ == text_.size() || !IsWord(text_[at_])) return true;
  at_ = mark;
  return false;
}

bool Scanner::ExpectWord(std::string_view word) { return TryWord(word) || Expected(Quote(word)); }

bool Scanner::Word(std::string_view* word) {
  const size_t mark = Mark();
  if (failed() || mark == text_.size() || !IsLetter(text_[mark])) return Expected("a word");
  while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
  *word = From(mark);
  return true;
}

bool Scanner::Name(char sigil, std::string_view* name) {
  if (!Try(std::string_view(&sigil, 1))) return Expected("a name that begins with " + Quote({&sigil, 1}));
  const size_t mark = at_;
  if (sigil == '@' && mark < text_.size() && text_[mark] == '"') return PlainString(name);
  // Names that begin with a digit have only digits.
  const bool is_number = at_ < text_.size() && IsDigit(text_[at_]) && sigil != '@';
  const auto belongs = [&](char c) { return is_number ? IsDigit(c) : IsWord(c) || (c == '-' && sigil != '@'); };
  if (sigil == '@' && at_ < text_.size() && !IsLetter(text_[at_])) return Fail(mark, "expected a name behind '@'");
  while (at_ < text_.size() && belongs(text_[at_])) ++at_;
  *name = From(mark);
  return !name->empty() || Fail(mark, "expected a name behind " + Quote({&sigil, 1}));
}

bool Scanner::String(std::string_view* contents) {
  if (!Expect("\"")) return false;
  const size_t mark = at_;
  for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    if (text_[at_] == '"') {
      *contents = From(mark);
      ++at_;
      return true;
    }
    if (text_[at_] != '\\') continue;
    const std::string_view rest = text_.substr(++at_, 2);
    const bool is_hex = rest.size() == 2 && IsHex(rest[0]) && IsHex(rest[1]);
    if (rest.empty() || (!is_hex && std::string_view("\"\\nt").find(rest[0]) == std::string_view::npos))
      return Fail(at_ - 1, "expected an escape sequence of a string");
    at_ += is_hex ? 1 : 0;
  }
  return Fail(mark, "expected the end of this string in its line");
}

bool Scanner::PlainString(std::string_view* contents) {
  const size_t mark = Mark();
  if (!String(contents)) return false;
  const bool is_plain = !contents->empty() && contents->find('\\') == std::string_view::npos;
  return is_plain || Fail(mark, "expected a name of at least one character without '\\'");
}

bool Scanner::Integer(int64_t* number) {
  const size_t mark = Mark();
  if (failed()) return false;
  const char* const begin = text_.data() + mark;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), *number);
  const size_t digits = static_cast<size_t>(end - begin) - (end != begin && *begin == '-' ? 1 : 0);
  if (error != std::errc() || (digits > 1 && end[-static_cast<ptrdiff_t>(digits)] == '0'))
    return Expected("an integer of 64 bits");
  at_ = mark + static_cast<size_t>(end - begin);
  return true;
}

std::string_view Scanner::Element() {
  const size_t mark = Mark();
  while (at_ < text_.size() &&
         (IsLetter(text_[at_]) || IsDigit(text_[at_]) || text_[at_] == '.' || text_[at_] == '+' || text_[at_] == '-'))
    ++at_;
  return From(mark);
}

bool Scanner::SkipBehind(char end) {
  const size_t found = text_.find(end, at_);
  if (found == std::string_view::npos) return Expected(Quote({&end, 1}) + " below");
  at_ = found + 1;
  return true;
}

}  // namespace axccl::program::stablehlo
