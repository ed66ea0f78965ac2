#include "src/base/command_line.h"

#include <algorithm>
#include <utility>

namespace axccl::command_line {
namespace {

constexpr Option kHelp{"--help", false, 'h'}, kVersion{"--version", false};

std::string_view WithoutDashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

// Letters to insert, remove or replace to make one of the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Status NoSuchOption(const std::string& given, std::span<const Option> options) {
  std::vector<std::string_view> names = {kHelp.name, kVersion.name};
  for (const Option& option : options)
    if (!option.name.empty()) names.push_back(option.name);
  const std::string nearest(Nearest(given, names));
  if (nearest.empty())
    return MakeStatus(Code::kInvalidArgument, "%s: no such option; --help lists them", given.c_str());
  return MakeStatus(Code::kInvalidArgument, "%s: did you mean %s?", given.c_str(), nearest.c_str());
}

const Option* Find(std::span<const Option> options, std::string_view name, char letter) {
  const auto is = [&](const Option& o) { return letter != 0 ? o.letter == letter : !name.empty() && o.name == name; };
  if (is(kHelp)) return &kHelp;
  if (is(kVersion)) return &kVersion;
  const auto found = std::find_if(options.begin(), options.end(), is);
  return found == options.end() ? nullptr : &*found;
}

std::string CalledAs(const Option& option) {
  if (option.letter == 0) return std::string(option.name);
  const std::string letter = {'-', option.letter};
  return option.name.empty() ? letter : letter + " (" + std::string(option.name) + ")";
}

// Splits arguments[*at], an option, and moves *at to its last argument.
Result<Word> SplitOne(const std::vector<std::string>& arguments, size_t* at, std::span<const Option> options) {
  const std::string& argument = arguments[*at];
  const bool is_long = argument.starts_with("--");
  const size_t end = is_long ? std::min(argument.find('='), argument.size()) : 2;
  const std::string given = argument.substr(0, end);
  const Option* const option = Find(options, is_long ? std::string_view(given) : "", is_long ? '\0' : argument[1]);
  // Of "-ranks" the whole may be meant.
  if (option == nullptr) return NoSuchOption(is_long ? given : argument, options);
  Word word = {*option, CalledAs(*option), ""};
  const bool attached = end < argument.size();
  if (!option->has_value) {
    if (!attached) return word;
    if (!is_long) return NoSuchOption(argument, options);
    return MakeStatus(Code::kInvalidArgument, "%s: %s takes no value", argument.c_str(), given.c_str());
  }
  if (attached) {
    word.text = argument.substr(is_long ? end + 1 : end);
  } else {
    if (*at + 1 == arguments.size()) return MakeStatus(Code::kInvalidArgument, "%s needs a value", word.as.c_str());
    word.text = arguments[++*at];
  }
  return word;
}

}  // namespace

std::string_view Nearest(std::string_view given, std::span<const std::string_view> names) {
  const std::string_view plain = WithoutDashes(given);
  std::string_view nearest;
  // More changes than a third of its letters make it another word.
  size_t best = (plain.size() + 2) / 3 + 1;
  for (const std::string_view name : names) {
    const std::string_view known = WithoutDashes(name);
    const size_t distance = plain.size() > 1 && known.starts_with(plain) ? 0 : Distance(plain, known);
    if (distance < best) best = distance, nearest = name;
  }
  return nearest;
}

Result<Words> Split(const std::vector<std::string>& arguments, std::span<const Option> options) {
  Words words;
  bool ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!ended && arguments[i] == "--") {
      ended = true;
    } else if (ended || arguments[i].size() < 2 || arguments[i][0] != '-') {
      words.words.push_back({Option{}, "", arguments[i]});
    } else {
      AXCCL_ASSIGN_OR_RETURN(Word word, SplitOne(arguments, &i, options));
      words.help = word.option.name == kHelp.name;
      words.version = word.option.name == kVersion.name;
      if (words.help || words.version) return words;
      words.words.push_back(std::move(word));
    }
  }
  return words;
}

std::string VersionText(std::string_view program) {
  return std::string(program.substr(program.rfind('/') + 1)) + " (AxCCL) " AXCCL_VERSION "\n";
}

}  // namespace axccl::command_line
