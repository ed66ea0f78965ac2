#include "tools/axccl-plan/options.h"

#include <algorithm>
#include <charconv>

#include "src/algo/algo.h"

namespace axccl::tools {

using plan::Kind;

namespace {

// Kept below what Generate takes, so that its own message is reached for everything else.
constexpr int kLargest = 1 << 20;

std::string KindNames() {
  std::string names;
  for (int i = 0; i < plan::kNumKinds; ++i) {
    names += (i > 0 ? ", " : "") + std::string(plan::KindName(static_cast<Kind>(i)));
  }
  return names;
}

Status BadUse(const std::string& what) {
  return MakeStatus(Code::kInvalidArgument, "%s; see axccl-plan --help", what.c_str());
}

Status ParseInt(const std::string& option, const std::string& text, int least, int* value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *value);
  if (parsed.ec == std::errc() && parsed.ptr == end && *value >= least && *value <= kLargest) return Status();
  return BadUse(option + " '" + text + "' is not a number from " + std::to_string(least) + " to " +
                std::to_string(kLargest));
}

// Ranks on each machine, one machine after the other.
Status ParseMachines(const std::string& text, plan::Placement* placement) {
  std::vector<int> machine_of;
  int machine = 0;
  for (size_t begin = 0; begin <= text.size(); ++machine) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int ranks = 0;
    AXCCL_RETURN_IF_ERROR(ParseInt("--machines", text.substr(begin, end - begin), 1, &ranks));
    machine_of.insert(machine_of.end(), static_cast<size_t>(ranks), machine);
    begin = end + 1;
  }
  *placement = plan::Placement::Of(machine_of);
  return Status();
}

Status ParseCommand(const std::string& word, Command* command) {
  if (word == "list") {
    *command = Command::kList;
  } else if (word == "show") {
    *command = Command::kShow;
  } else if (word == "verify") {
    *command = Command::kVerify;
  } else if (word == "hash") {
    *command = Command::kHash;
  } else {
    return BadUse("unknown command '" + word + "'; there is list, show, verify and hash");
  }
  return Status();
}

Status SetOption(const std::string& name, const std::string& value, Options* o) {
  if (name == "--op") {
    o->has_op = plan::FindKind(value, &o->contract.kind);
    return o->has_op ? Status() : BadUse("--op '" + value + "' is unknown; there is " + KindNames());
  }
  if (name == "--algo") {
    o->algorithm = value;
    return Status();
  }
  if (name == "--machines") return ParseMachines(value, &o->placement);
  if (name == "--ranks") return ParseInt(name, value, 1, &o->contract.ranks);
  if (name == "--root") return ParseInt(name, value, 0, &o->contract.root);
  return ParseInt(name, value, 1, &o->lanes);
}

bool IsOption(const std::string& word) {
  return word == "--op" || word == "--algo" || word == "--ranks" || word == "--root" || word == "--lanes" ||
         word == "--machines";
}

Status CheckComplete(const Options& o, bool generated, bool has_ranks) {
  if (o.command == Command::kList) {
    const bool only_op = o.file.empty() && o.algorithm.empty() && !has_ranks;
    return only_op ? Status() : BadUse("list takes no argument but --op and --machines");
  }
  if (!o.file.empty()) return generated ? BadUse("give a FILE or --op, --algo and --ranks, not both") : Status();
  if (!o.has_op) return BadUse("--op is missing (or a FILE); there is " + KindNames());
  if (o.algorithm.empty()) {
    std::string names;
    for (const std::string_view name : algo::Algorithms(o.contract.kind, o.placement)) {
      names.append(names.empty() ? "" : ", ").append(name);
    }
    return BadUse("--algo is missing; for " + std::string(plan::KindName(o.contract.kind)) + " there is " + names);
  }
  return has_ranks ? Status() : BadUse("--ranks is missing");
}

}  // namespace

Result<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options o;
  for (const std::string& a : arguments) {
    if (a == "--help" || a == "-h" || a == "help") return Options();
  }
  if (arguments.empty()) return BadUse("no command; there is list, show, verify and hash");
  AXCCL_RETURN_IF_ERROR(ParseCommand(arguments[0], &o.command));
  bool generated = false, has_ranks = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (IsOption(word)) {
      if (i + 1 == arguments.size()) return BadUse(word + " needs a value");
      AXCCL_RETURN_IF_ERROR(SetOption(word, arguments[++i], &o));
      generated = true;
      has_ranks = has_ranks || word == "--ranks";
    } else if (word.size() > 1 && word[0] == '-') {
      return BadUse("unknown option '" + word + "'");
    } else if (word.empty() || !o.file.empty()) {
      return BadUse("'" + word + "' is one FILE too many");
    } else {
      o.file = word;
    }
  }
  AXCCL_RETURN_IF_ERROR(CheckComplete(o, generated, has_ranks));
  return o;
}

const char* HelpText() {
  return "axccl-plan: look at collective schedules and prove them.\n"
         "\n"
         "  axccl-plan list [--op OP]       the algorithms of each collective; --machines as below\n"
         "  axccl-plan show PLAN            the schedule in canonical text form\n"
         "  axccl-plan verify PLAN          prove it: structure, deadlock, races, leaks, dataflow\n"
         "  axccl-plan hash PLAN            its content hash\n"
         "\n"
         "PLAN is a FILE in text form (- for standard input), or what the library generates for\n"
         "  --op OP         collective: all_reduce, broadcast, reduce, all_gather, reduce_scatter,\n"
         "                  all_to_all, gather, scatter, send_recv, barrier\n"
         "  --algo ALGO     algorithm, see list\n"
         "  --ranks N       ranks of the group\n"
         "  --root R        root rank (default 0)\n"
         "  --lanes L       lanes of each rank (default 1)\n"
         "  --machines A,B  the first A ranks are on one machine, the next B on another, and so on: for the\n"
         "                  algorithm hierarchical, which no group on a single machine has\n"
         "\n"
         "Exit status: 0 done, and the plan is right; 1 the plan is malformed or rejected; 2 wrong use.\n";
}

}  // namespace axccl::tools
