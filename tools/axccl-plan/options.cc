#include "tools/axccl-plan/options.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "src/algo/algo.h"
#include "src/base/command_line.h"
#include "src/base/format.h"
#include "tools/axccl-plan/units.h"

namespace axccl::tools {

using plan::Kind;

namespace {

// Kept below what Generate takes, so that its own message is reached for everything else.
constexpr int kLargest = 1 << 20;
constexpr char kCommands[] = "list, show, verify, hash, simulate and explain";

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

Status ParseType(const std::string& text, DataType* type) {
  static constexpr std::pair<const char*, DataType> kShort[] = {{"f16", DataType::kFloat16},
                                                                {"bf16", DataType::kBfloat16},
                                                                {"f32", DataType::kFloat32},
                                                                {"f64", DataType::kFloat64}};
  for (const auto& [name, named] : kShort) {
    if (text == name) return *type = named, Status();
  }
  std::string known = "f16, bf16, f32, f64";
  for (int i = 0; i < kNumArithmeticTypes; ++i) {
    *type = static_cast<DataType>(i);
    if (text == DataTypeName(*type)) return Status();
    known.append(", ").append(DataTypeName(*type));
  }
  return BadUse("--dtype '" + text + "' is unknown; there is " + known);
}

Status ParseOrder(const std::string& text, algo::ChunkOrder* order) {
  std::string known;
  for (int i = 0; i < algo::kNumChunkOrders; ++i) {
    *order = static_cast<algo::ChunkOrder>(i);
    if (text == algo::ChunkOrderName(*order)) return Status();
    known += (i > 0 ? ", " : "") + std::string(algo::ChunkOrderName(*order));
  }
  return BadUse("--order '" + text + "' is unknown; there is " + known);
}

Status ParseAccess(const std::string& text, std::optional<tune::Access>* access) {
  if (text == "none") {
    *access = tune::Access::kNone;
  } else if (text == "call") {
    *access = tune::Access::kCall;
  } else if (text == "mapped") {
    *access = tune::Access::kMapped;
  } else {
    return BadUse("--access '" + text + "' is unknown; there is none, call and mapped");
  }
  return Status();
}

Status ParseBlocks(const std::string& text, Options* o) {
  o->short_runs = text == "short-runs";
  o->split_rows = text == "split-rows";
  if (o->short_runs || o->split_rows || text == "plain") return Status();
  return BadUse("--blocks '" + text + "' is unknown; there is plain, short-runs and split-rows");
}

// Ranks on each machine, one machine after the other; NxM: N on each of M. How many in all.
Status ParseMachines(const std::string& text, plan::Placement* placement, int* ranks) {
  std::vector<int> machine_of;
  int machine = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t times = std::min(item.find('x'), item.size());
    int each = 0, machines = 1;
    AXCCL_RETURN_IF_ERROR(ParseInt("--machines", item.substr(0, times), 1, &each));
    if (times < item.size()) AXCCL_RETURN_IF_ERROR(ParseInt("--machines", item.substr(times + 1), 1, &machines));
    if (static_cast<int64_t>(each) * machines + static_cast<int64_t>(machine_of.size()) > kLargest)
      return BadUse("--machines '" + text + "' are of more than " + std::to_string(kLargest) + " ranks");
    for (const int after = machine + machines; machine < after; ++machine)
      machine_of.insert(machine_of.end(), static_cast<size_t>(each), machine);
    begin = end + 1;
  }
  *placement = plan::Placement::Of(machine_of);
  *ranks = static_cast<int>(machine_of.size());
  return Status();
}

struct FabricOption {
  const char* name;
  double sim::Fabric::*figure;
  bool rate;
};

constexpr FabricOption kFabricOptions[] = {
    {"--op-time", &sim::Fabric::op_seconds, false},
    {"--memory", &sim::Fabric::memory_bytes_per_second, true},
    {"--link", &sim::Fabric::link_bytes_per_second, true},
    {"--multicast", &sim::Fabric::multicast_bytes_per_second, true},
    {"--signal", &sim::Fabric::signal_seconds, false},
    {"--nic", &sim::Fabric::nic_bytes_per_second, true},
    {"--message", &sim::Fabric::message_seconds, false},
    {"--network", &sim::Fabric::network_seconds, false},
    {"--lane-memory", &sim::Fabric::lane_memory_bytes_per_second, true},
    {"--lane-link", &sim::Fabric::lane_link_bytes_per_second, true},
};

Status NotATime(const std::string& option, const std::string& text) {
  return BadUse(option + " '" + text + "' is not a time, such as 400ns or 1.5us");
}

Status ParseFigure(const FabricOption& option, const std::string& text, sim::Fabric* fabric) {
  double* figure = &(fabric->*option.figure);
  if (option.rate ? ParseRate(text, figure) : ParseTime(text, figure)) return Status();
  if (!option.rate) return NotATime(option.name, text);
  return BadUse(std::string(option.name) + " '" + text + "' is not a rate, such as 400Gbit/s or 450GB/s");
}

Status ParseYes(const std::string& option, const std::string& text, bool* yes) {
  *yes = text == "yes";
  return *yes || text == "no" ? Status() : BadUse(option + " '" + text + "' must be yes or no");
}

Status ParseSize(const std::string& option, const std::string& text, uint64_t* bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 56;  // as of a call
  if (!ParseBytes(text, bytes)) return BadUse(option + " '" + text + "' is not a size, such as 4096, 64K or 1G");
  return *bytes <= kMost ? Status() : BadUse(option + " '" + text + "' is too large; it can be 65536T at most");
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
  } else if (word == "simulate") {
    *command = Command::kSimulate;
  } else if (word == "explain") {
    *command = Command::kExplain;
  } else {
    return BadUse("unknown command '" + word + "'; there is " + kCommands);
  }
  return Status();
}

bool IsIn(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
bool SaysWhatToGenerate(const std::string& word) {
  return IsIn(word,
              {"--op", "--algo", "--ranks", "--root", "--lanes", "--machines", "--slices", "--produced", "--order"});
}
bool IsOfSimulate(const std::string& word) {
  return IsIn(word, {"--bytes", "--tile", "--produce", "--consume", "--in-place"}) ||
         std::any_of(std::begin(kFabricOptions), std::end(kFabricOptions),
                     [&](const auto& f) { return word == f.name; });
}
bool IsOfExplain(const std::string& word) {
  return IsIn(word, {"--bytes", "--dtype", "--machine", "--network", "--access", "--max-lanes", "--cores", "--gpus",
                     "--nvls", "--blocks"});
}

// Of all commands; CheckComplete refuses those of others.
std::vector<command_line::Option> AllOptions() {
  std::vector<command_line::Option> all = {{"--json", false}, {"--format"}};
  for (const char* name :
       {"--op",      "--algo",   "--ranks",     "--root",    "--lanes",   "--machines", "--slices", "--produced",
        "--order",   "--bytes",  "--tile",      "--produce", "--consume", "--in-place", "--dtype",  "--machine",
        "--network", "--access", "--max-lanes", "--cores",   "--gpus",    "--nvls",     "--blocks"})
    all.push_back({name});
  for (const FabricOption& option : kFabricOptions)
    if (std::string_view(option.name) != "--network") all.push_back({option.name});
  return all;
}

// What was given besides what Options keep.
struct Given {
  std::vector<std::string> options;
  int machine_ranks = 0;

  bool Has(const char* option) const { return std::find(options.begin(), options.end(), option) != options.end(); }
  // The first of that kind; "": none.
  std::string First(bool (*is)(const std::string&)) const {
    const auto first = std::find_if(options.begin(), options.end(), is);
    return first == options.end() ? "" : *first;
  }
};

Status SetSimulated(const std::string& name, const std::string& value, Options* o) {
  if (name == "--bytes") return ParseSize(name, value, &o->bytes);
  if (name == "--tile") return ParseSize(name, value, &o->tile_bytes);
  if (name == "--in-place") return ParseYes(name, value, &o->in_place);
  if (name == "--produce" || name == "--consume") {
    double* seconds = name == "--produce" ? &o->caller.produce_seconds : &o->caller.consume_seconds;
    return ParseTime(value, seconds) ? Status() : NotATime(name, value);
  }
  for (const FabricOption& option : kFabricOptions) {
    if (name == option.name) return ParseFigure(option, value, &o->fabric);
  }
  return Status();
}

Status SetExplained(const std::string& name, const std::string& value, Options* o) {
  if (name == "--bytes") return ParseSize(name, value, &o->bytes);
  if (name == "--dtype") return ParseType(value, &o->type);
  if (name == "--access") return ParseAccess(value, &o->access);
  if (name == "--blocks") return ParseBlocks(value, o);
  if (name == "--max-lanes") return ParseInt(name, value, 1, &o->max_lanes);
  if (name == "--cores") return ParseInt(name, value, 1, &o->cores);
  if (name == "--nvls") return ParseYes(name, value, &o->nvls);
  if (name == "--gpus") return ParseInt(name, value, 1, &o->gpus);
  (name == "--machine" ? o->machine_file : o->network_file) = value;
  return Status();
}

Status SetOption(const std::string& name, const std::string& value, Options* o, Given* given) {
  given->options.push_back(name);
  if (o->command == Command::kExplain && IsOfExplain(name)) return SetExplained(name, value, o);
  if (o->command == Command::kSimulate && IsOfSimulate(name)) return SetSimulated(name, value, o);
  if (name == "--op") {
    o->has_op = plan::FindKind(value, &o->contract.kind);
    return o->has_op ? Status() : BadUse("--op '" + value + "' is unknown; there is " + KindNames());
  }
  if (name == "--algo") {
    o->algorithm = value;
    return Status();
  }
  if (name == "--machines") return ParseMachines(value, &o->placement, &given->machine_ranks);
  if (name == "--ranks") return ParseInt(name, value, 1, &o->contract.ranks);
  if (name == "--root") return ParseInt(name, value, 0, &o->contract.root);
  if (name == "--lanes") return ParseInt(name, value, 1, &o->lanes);
  if (name == "--slices") {
    o->chunked = true;
    return ParseInt(name, value, 1, &o->chunking.slices);
  }
  if (name == "--order") return ParseOrder(value, &o->chunking.order);
  if (name == "--produced") return ParseYes(name, value, &o->chunking.produced);
  // An option of another command: CheckComplete refuses it.
  return Status();
}

// Ranks are those of --ranks, of --machines, or of both alike.
Status CheckRanks(const Options& o, const Given& given) {
  if (!given.Has("--ranks") && given.machine_ranks == 0) return BadUse("--ranks is missing (or --machines)");
  if (given.machine_ranks == 0 || given.machine_ranks == o.contract.ranks) return Status();
  return BadUse("--ranks " + std::to_string(o.contract.ranks) + " are not the " + std::to_string(given.machine_ranks) +
                " of --machines");
}

Status CheckExplain(const Options& o, const Given& given) {
  if (!o.file.empty()) return BadUse("explain takes no FILE");
  // The answer contains these, so they cannot be given.
  const std::string of_plan = given.First([](const std::string& word) { return IsIn(word, {"--algo", "--lanes"}); });
  if (!of_plan.empty()) return BadUse("explain takes no " + of_plan + ", as that is what it finds out");
  if (!o.has_op) return BadUse("--op is missing; there is " + KindNames());
  AXCCL_RETURN_IF_ERROR(CheckRanks(o, given));
  if (!given.Has("--bytes") && o.contract.kind != Kind::kBarrier) return BadUse("--bytes is missing");
  if (!o.placement.is_flat() && o.access.value_or(tune::Access::kNone) != tune::Access::kNone)
    return BadUse("--access: ranks on several machines do not reach each other's buffers");
  const std::string of_host = given.First([](const std::string& word) {
    return IsIn(word, {"--machine", "--machines", "--cores"});
  });
  if (o.nvls && o.gpus < o.contract.ranks) return BadUse("--nvls needs a GPU for each rank (--gpus)");
  if (o.gpus > 0 && !of_host.empty()) return BadUse("--gpus has figures of its own and takes no " + of_host);
  return Status();
}

// A plan with slices has the lanes that it needs, and is of one machine.
Status CheckSlices(const Options& o, const Given& given) {
  const auto& names = algo::ChunkedAlgorithms(o.contract.kind);
  const bool chunked = std::find(names.begin(), names.end(), o.algorithm) != names.end();
  const std::string of_slices = given.First([](const std::string& word) {
    return IsIn(word, {"--produced", "--order", "--produce", "--consume"});
  });
  if (!o.chunked && of_slices.empty())
    return chunked ? BadUse("--slices is missing, for --algo " + o.algorithm) : Status();
  if (!o.chunked) return BadUse(of_slices + " is for --slices");
  if (given.Has("--produce") && !o.chunking.produced) return BadUse("--produce is for --produced yes");
  if (given.Has("--lanes") || given.machine_ranks != 0)
    return BadUse("--slices goes with neither --lanes nor --machines");
  if (given.Has("--tile")) return BadUse("--slices takes no --tile, because all moves in one turn");
  if (chunked) return Status();
  return BadUse("--slices is for --algo " + (names.empty() ? "of other operations" : Join(names, ", ")));
}

Status CheckPlan(const Options& o, const Given& given) {
  const bool simulates = o.command == Command::kSimulate;
  if (simulates && !o.file.empty()) return BadUse("simulate takes no FILE but --op, --algo and --machines");
  if (!o.file.empty())
    return given.options.empty() ? Status() : BadUse("give a FILE or --op, --algo and --ranks, not both");
  if (!o.has_op) return BadUse("--op is missing (or a FILE); there is " + KindNames());
  if (o.algorithm.empty()) {
    const std::string names = Join(algo::Algorithms(o.contract.kind, o.placement), ", ");
    return BadUse("--algo is missing; for " + std::string(plan::KindName(o.contract.kind)) + " there is " + names);
  }
  AXCCL_RETURN_IF_ERROR(CheckRanks(o, given));
  AXCCL_RETURN_IF_ERROR(CheckSlices(o, given));
  return simulates && !given.Has("--bytes") ? BadUse("--bytes is missing") : Status();
}

Status CheckComplete(const Options& o, const Given& given) {
  if (o.command == Command::kList) {
    const std::string other = given.First([](const std::string& word) { return !IsIn(word, {"--op", "--machines"}); });
    return o.file.empty() && other.empty() ? Status() : BadUse("list takes no argument but --op and --machines");
  }
  for (const std::string& word : given.options) {
    const bool simulated = IsOfSimulate(word), explained = IsOfExplain(word);
    if (SaysWhatToGenerate(word) || (simulated && o.command == Command::kSimulate)) continue;
    if (explained && o.command == Command::kExplain) continue;
    return BadUse(word + " is for " +
                  (simulated && explained ? "simulate and explain"
                   : simulated            ? "simulate"
                                          : "explain"));
  }
  return o.command == Command::kExplain ? CheckExplain(o, given) : CheckPlan(o, given);
}

}  // namespace

Result<Options> ParseOptions(const std::vector<std::string>& arguments) {
  AXCCL_ASSIGN_OR_RETURN(const command_line::Words words, command_line::Split(arguments, AllOptions()));
  Options o;
  if (words.version) return o.command = Command::kVersion, o;
  if (words.help || (!arguments.empty() && arguments[0] == "help")) return o;
  if (words.words.empty()) return BadUse(std::string("no command; there is ") + kCommands);
  const command_line::Word& command = words.words[0];
  if (command.is_option()) return BadUse(command.as + " comes before the command; there is " + kCommands);
  AXCCL_RETURN_IF_ERROR(ParseCommand(command.text, &o.command));
  Given given;
  for (size_t i = 1; i < words.words.size(); ++i) {
    const command_line::Word& word = words.words[i];
    if (word.as == "--json") {
      o.json = true;
    } else if (word.as == "--format") {
      if (o.command != Command::kShow) return BadUse("--format is for show");
      if (word.text != "text" && word.text != "svg")
        return BadUse("--format '" + word.text + "' is unknown; there is text and svg");
      o.svg = word.text == "svg";
    } else if (word.is_option()) {
      AXCCL_RETURN_IF_ERROR(SetOption(word.as, word.text, &o, &given));
    } else if (word.text.empty() || !o.file.empty()) {
      return BadUse("'" + word.text + "' is one FILE too many");
    } else {
      o.file = word.text;
    }
  }
  if (!given.Has("--ranks") && given.machine_ranks > 0) o.contract.ranks = given.machine_ranks;
  if (o.json && (o.command == Command::kShow || o.command == Command::kHash))
    return BadUse("--json is for list, verify, simulate and explain");
  AXCCL_RETURN_IF_ERROR(CheckComplete(o, given));
  return o;
}

const char* HelpText() {
  return "axccl-plan: look at collective schedules, prove them, and simulate them on other machines.\n"
         "\n"
         "  axccl-plan list [--op OP]       the algorithms of each collective; --machines as below\n"
         "  axccl-plan show PLAN            the schedule in canonical text form (docs/plan-format.md);\n"
         "                                  --format svg: a picture of its lanes, copies and signals\n"
         "  axccl-plan verify PLAN          prove it: structure, deadlock, races, leaks, dataflow\n"
         "  axccl-plan hash PLAN            its content hash\n"
         "  axccl-plan simulate PLAN --bytes B   how long it would take\n"
         "  axccl-plan explain QUESTION     what the library would choose, between what, and why\n"
         "\n"
         "PLAN is a FILE in text form (- for standard input), or what the library generates for\n"
         "  --op OP         collective: all_reduce, broadcast, reduce, all_gather, reduce_scatter,\n"
         "                  all_to_all, gather, scatter, send_recv, barrier\n"
         "  --algo ALGO     algorithm, see list\n"
         "  --ranks N       ranks of the group (default: those of --machines)\n"
         "  --root R        root rank (default 0)\n"
         "  --lanes L       lanes of each rank (default 1)\n"
         "  --slices S      slices of a block, for chunked_*: a plan whose chunks can be waited for\n"
         "  --produced yes  with --slices: input chunks are awaited (default no)\n"
         "  --order ORDER   with --slices: how blocks are received, awaited and announced by a rank: own_first,\n"
         "                  own_last, by_rank (default: own_last in reduce_scatter, own_first elsewhere)\n"
         "  --machines A,B  the first A ranks are on one machine, the next B on another, and so on: for the\n"
         "                  algorithms hierarchical*, which no group on a single machine has. NxM in such a list\n"
         "                  is N ranks on each of M machines: 8x2048\n"
         "\n"
         "A simulation runs what is generated, not a FILE, on machines that are alike:\n"
         "  --bytes B       size, as nccl-tests counts it; K, M, G, T are powers of 1024\n"
         "  --tile B        of a block, for each lane and turn (default: all in one turn)\n"
         "  --op-time T     every operation of a schedule (default 400ns); ns, us, ms, s\n"
         "  --memory R      what copies and reductions of a rank read and write (default 3.35TB/s);\n"
         "                  Mbit/s, Gbit/s, Tbit/s, MB/s, GB/s, TB/s\n"
         "  --link R        of a rank to others of its machine, each way (default 450GB/s)\n"
         "  --multicast R   the same for slots of all ranks at once (default 310GB/s, assumed)\n"
         "  --lane-memory R, --lane-link R   what a lane reads and writes there (default: no limit of its own)\n"
         "  --signal T      between ranks of a machine (default 1.5us)\n"
         "  --nic R         of a rank to those of other machines, each way (default 400Gbit/s)\n"
         "  --message T     of a NIC, for each message it sends or takes in (default 250ns)\n"
         "  --network T     between NICs (default 5us)\n"
         "  --in-place yes  all ranks run in place, where OP has that: own blocks stay where they are (default no)\n"
         "  --produce T     with --produced yes: for each input chunk, what the caller of a rank computes before it\n"
         "                  declares the chunk ready, in the order in which chunks are awaited (default 0s)\n"
         "  --consume T     with --slices: for each output chunk, what the caller computes after all its input, in\n"
         "                  the order in which chunks come (default 0s)\n"
         "It prints the time, the bus bandwidth and its share of what the links allow, what was busiest, and what\n"
         "crossed between machines. With --slices, the time includes the callers, the bandwidth is that of the\n"
         "communication alone, and it also prints communication and computation alone, the overlap (the longer of\n"
         "these two, divided by the time), and the time in bulk: the computation and the fastest plan without slices,\n"
         "one after the other. perf/README.md says what a simulation leaves out.\n"
         "\n"
         "QUESTION is --op, --ranks, --root and --machines as above, and\n"
         "  --bytes N       size as nccl-tests and the perf tools count it, K, M and G for binary units: what a\n"
         "                  rank has, or, of all_gather, reduce_scatter, all_to_all, gather and scatter, the parts\n"
         "                  of all ranks together (a part is a multiple of 16 bytes)\n"
         "  --dtype T       type of an element (default f32)\n"
         "  --access A      how ranks reach each other's buffers: mapped (default: threads, ncclMemAlloc), call "
         "(plain\n"
         "                  memory of other processes) or none (where that is forbidden; on several machines)\n"
         "  --gpus N        the ranks are on so many GPUs (H100, NVLink), not on this machine's processors\n"
         "  --nvls yes      with --gpus, one for each rank: they have NVLink SHARP, which folds such elements\n"
         "                  (default no)\n"
         "  --blocks B      how a view's blocks lie: plain (default), short-runs (side by side, sharing cache lines) "
         "or\n"
         "                  split-rows (side by side, in rows of a few KiB)\n"
         "  --max-lanes L   lanes there are (default 1, on several machines 4; see NCCL_MIN_CTAS)\n"
         "  --cores C       cores the ranks of a machine share (default: those of this one)\n"
         "  --machine FILE  what a machine can do, as measured elsewhere (~/.cache/axccl/machine-*); default: what "
         "was\n"
         "                  measured here, or is now\n"
         "  --network FILE  what goes between machines (~/.cache/axccl/network-*); default: what was measured last by "
         "ranks\n"
         "                  here, if anything was; fixed: the figures of AXCCL_NET_MEASURE=never\n"
         "NCCL_ALGO, AXCCL_ORDER, AXCCL_SCRATCH_BYTES and AXCCL_NVLS_BYTES take effect as on rank 0. Of each candidate "
         "explain prints "
         "the\n"
         "predicted time and where it goes: steps (operations and signals inside machines), copies (bytes inside\n"
         "machines), messages (signals between machines) and link (bytes between machines).\n"
         "\n"
         "--json prints what list, verify, simulate and explain find as JSON (docs/json.md).\n"
         "-h, --help prints this, and --version name and version.\n"
         "Exit status: 0 done, and the plan is right; 1 the plan is malformed or rejected; 2 wrong use.\n";
}

}  // namespace axccl::tools
