#include "tools/axccl-info/options.h"

#include <charconv>

#include "src/base/command_line.h"
#include "tools/axccl-info/ranks.h"

namespace axccl_info {
namespace {

using axccl::Code;
using axccl::MakeStatus;
using axccl::Status;

Status Bad(const std::string& option, const std::string& value, const char* expected) {
  return MakeStatus(Code::kInvalidArgument, "%s %s: expected %s", option.c_str(), value.c_str(), expected);
}

Status TakeValue(const std::string& option, const std::string& value, Options* options) {
  if (option == "--ranks") {
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), options->ranks);
    if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || options->ranks < 1)
      return Bad(option, value, "a number of ranks");
  } else if (option == "--format") {
    if (value != "text" && value != "svg" && value != "file") return Bad(option, value, "text, svg or file");
    options->format = value == "svg" ? Format::kSvg : value == "file" ? Format::kFile : Format::kText;
  } else {
    if (value.empty()) return Bad(option, value, "the name of a file");
    options->output = value;
  }
  return Status();
}

}  // namespace

axccl::Result<Options> ParseOptions(const std::vector<std::string>& arguments) {
  constexpr axccl::command_line::Option kOptions[] = {
      {"--ranks"}, {"--topology", false}, {"--json", false}, {"--format"}, {"--output"}};
  AXCCL_ASSIGN_OR_RETURN(const axccl::command_line::Words given, axccl::command_line::Split(arguments, kOptions));
  Options options;
  options.help = given.help, options.version = given.version;
  bool drawn = false, formatted = false;  // an option about the drawing, or --format, was given
  for (const axccl::command_line::Word& word : given.words) {
    if (!word.is_option())
      return MakeStatus(Code::kInvalidArgument, "'%s' is not an option; --help lists them", word.text.c_str());
    if (word.as == "--topology" || word.as == "--json") {
      (word.as == "--json" ? options.json : options.topology) = true;
      continue;
    }
    drawn |= word.as != "--ranks";
    formatted |= word.as == "--format";
    AXCCL_RETURN_IF_ERROR(TakeValue(word.as, word.text, &options));
  }
  if (drawn && !options.topology) return MakeStatus(Code::kInvalidArgument, "--format and --output go with --topology");
  if (formatted && options.json) return MakeStatus(Code::kInvalidArgument, "--format and --json: give one of them");
  const int most = options.topology ? kMaxPlacedRanks : kMaxRanks;
  if (options.ranks > most)
    return Bad("--ranks", std::to_string(options.ranks), ("at most " + std::to_string(most)).c_str());
  return options;
}

}  // namespace axccl_info
