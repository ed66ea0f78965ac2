#include "tools/axccl-info/options.h"

#include <charconv>

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
  Options options;
  bool drawn = false;  // an option about the drawing was given
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (option == "--help") {
      options.help = true;
    } else if (option == "--topology") {
      options.topology = true;
    } else if (option == "--ranks" || option == "--format" || option == "--output") {
      if (i + 1 == arguments.size()) return MakeStatus(Code::kInvalidArgument, "%s needs a value", option.c_str());
      drawn |= option != "--ranks";
      AXCCL_RETURN_IF_ERROR(TakeValue(option, arguments[++i], &options));
    } else {
      return MakeStatus(Code::kInvalidArgument, "%s: no such option", option.c_str());
    }
  }
  if (drawn && !options.topology) return MakeStatus(Code::kInvalidArgument, "--format and --output go with --topology");
  const int most = options.topology ? kMaxPlacedRanks : kMaxRanks;
  if (options.ranks > most)
    return Bad("--ranks", std::to_string(options.ranks), ("at most " + std::to_string(most)).c_str());
  return options;
}

}  // namespace axccl_info
