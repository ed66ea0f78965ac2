#include "tools/axccl-program/flags.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "src/base/command_line.h"

namespace axccl::tools {
namespace {

template <class T>
bool ReadAll(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void Flags::Number(const char* name, int64_t* value, int64_t least) {
  flags_.push_back({name, [=](const std::string& text) {
                      if (ReadAll(text, value) && *value >= least) return Status();
                      return MakeStatus(Code::kInvalidArgument, "%s is '%s'; give a number of at least %lld", name,
                                        text.c_str(), static_cast<long long>(least));
                    }});
}

void Flags::Text(const char* name, std::string* value) {
  flags_.push_back({name, [=](const std::string& text) {
                      *value = text;
                      return Status();
                    }});
}

void Flags::Choice(const char* name, const char* choices, std::function<bool(const std::string&)> set) {
  flags_.push_back({name, [name, choices, set = std::move(set)](const std::string& text) {
                      if (set(text)) return Status();
                      return MakeStatus(Code::kInvalidArgument, "%s is '%s'; give %s", name, text.c_str(), choices);
                    }});
}

Status Flags::Parse(const std::vector<std::string>& arguments, std::vector<std::string>* rest) const {
  std::vector<command_line::Option> options;
  for (const Flag& flag : flags_) options.push_back({flag.name});
  AXCCL_ASSIGN_OR_RETURN(const command_line::Words words, command_line::Split(arguments, options));
  for (const command_line::Word& word : words.words) {
    if (!word.is_option()) {
      rest->push_back(word.text);
      continue;
    }
    for (const Flag& flag : flags_)
      if (word.as == flag.name) AXCCL_RETURN_IF_ERROR(flag.set(word.text));
  }
  return Status();
}

bool ReadBytes(const std::string& text, uint64_t* bytes) {
  uint64_t factor = 1;
  std::string digits = text;
  constexpr std::pair<char, uint64_t> kUnits[] = {
      {'k', 1'000}, {'M', 1'000'000}, {'G', 1'000'000'000}, {'T', 1'000'000'000'000}};
  for (const auto& [unit, size] : kUnits) {
    if (text.empty() || text.back() != unit) continue;
    factor = size;
    digits.pop_back();
  }
  if (!ReadAll(digits, bytes) || *bytes > std::numeric_limits<uint64_t>::max() / factor) return false;
  *bytes *= factor;
  return true;
}

bool ReadNumbers(const std::string& text, std::vector<int64_t>* numbers) {
  numbers->clear();
  for (size_t first = 0; first <= text.size();) {
    const size_t comma = std::min(text.find(',', first), text.size());
    int64_t number = 0;
    if (!ReadAll(text.substr(first, comma - first), &number) || number < 0) return false;
    numbers->push_back(number);
    first = comma + 1;
  }
  return !numbers->empty();
}

}  // namespace axccl::tools
