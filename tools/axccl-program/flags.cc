#include "tools/axccl-program/flags.h"

#include <algorithm>
#include <charconv>
#include <limits>

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
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "-" || arguments[i].substr(0, 1) != "-") {
      rest->push_back(arguments[i]);
      continue;
    }
    const Flag* known = nullptr;
    for (const Flag& flag : flags_) known = flag.name == arguments[i] ? &flag : known;
    if (known == nullptr)
      return MakeStatus(Code::kInvalidArgument, "%s has no option '%s'; see axccl-program help", command_.c_str(),
                        arguments[i].c_str());
    if (i + 1 == arguments.size()) return MakeStatus(Code::kInvalidArgument, "%s has no value", arguments[i].c_str());
    AXCCL_RETURN_IF_ERROR(known->set(arguments[++i]));
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
