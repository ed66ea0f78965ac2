#include "tools/axccl-program/options.h"

#include <charconv>
#include <iterator>

#include "src/base/command_line.h"

namespace axccl::tools {
namespace {

struct CommandName {
  const char* name;
  Command command;
};
constexpr CommandName kCommands[] = {
    {"import", Command::kImport},       {"check", Command::kCheck},         {"hash", Command::kHash},
    {"reference", Command::kReference}, {"replay", Command::kReplay},       {"run", Command::kRun},
    {"simulate", Command::kSimulate},   {"calibrate", Command::kCalibrate}, {"help", Command::kHelp}};

constexpr int kMostRepeat = 1'000'000, kMostCalibrated = 64;

bool Executes(Command command) { return command == Command::kReference || command == Command::kRun; }

template <class T>
bool Read(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool IsOfExecution(const std::string& option) {
  return option == "--inputs" || option == "--outputs" || option == "--against" || option == "--seed" ||
         option == "--tolerance";
}
const char* CommandsOf(const std::string& option) {
  if (IsOfExecution(option)) return "reference and run";
  if (option == "--ranks") return "calibrate";
  if (option == "--trace") return "run and simulate";
  if (option == "--processes" || option == "--repeat") return "replay and run";
  if (option == "--report" || option == "--blas") return "run";
  return option == "--trips" || option == "--branch" ? "replay and simulate" : "simulate";
}

Status NotFor(const std::string& option, const char* commands) {
  return MakeStatus(Code::kInvalidArgument, "%s is an option of %s; see axccl-program help", option.c_str(), commands);
}

// An option of simulate with a value. Returns kInvalidArgument if it is none, or the value is wrong.
Status SetOfSimulation(const std::string& option, const std::string& value, Options* o) {
  if (option == "--fabric") return o->fabric = value, Status();
  if (option == "--trace") return o->trace = value, Status();
  if (option == "--svg") return o->svg = value, Status();
  if (option == "--model") {
    o->distir = true;
    if (value == "distir") return Status();
    return MakeStatus(Code::kInvalidArgument, "--model is '%s'; there is only distir", value.c_str());
  }
  if (option == "--trips") {
    int64_t trips = 0;
    if (!Read(value, &trips) || trips < 0)
      return MakeStatus(Code::kInvalidArgument, "--trips is '%s'; give a number of rounds, such as 10", value.c_str());
    o->trips = trips;
    return Status();
  }
  if (option == "--branch") {
    o->branch = value == "else" ? 1 : 0;
    if (value == "then" || value == "else") return Status();
    return MakeStatus(Code::kInvalidArgument, "--branch is '%s'; give then or else", value.c_str());
  }
  return NotFor(option, CommandsOf(option));
}

// Of a replay and of a run.
Status SetRepeat(const std::string& value, Options* o) {
  if (Read(value, &o->repeat) && o->repeat >= 1 && o->repeat <= kMostRepeat) return Status();
  return MakeStatus(Code::kInvalidArgument, "--repeat is '%s'; give a number of rounds from 1 to %d", value.c_str(),
                    kMostRepeat);
}

// The same of replay.
Status SetOfReplay(const std::string& option, const std::string& value, Options* o) {
  if (option == "--trips" || option == "--branch") return SetOfSimulation(option, value, o);
  if (option == "--repeat") return SetRepeat(value, o);
  return NotFor(option, CommandsOf(option));
}

// The same of reference and run.
Status Set(const std::string& option, const std::string& value, Options* o) {
  if (option == "--inputs") return o->inputs = value, Status();
  if (option == "--outputs") return o->outputs = value, Status();
  if (option == "--against") return o->against = value, Status();
  if (option == "--seed") {
    if (Read(value, &o->seed)) return Status();
    return MakeStatus(Code::kInvalidArgument, "--seed is '%s'; give a number from 0 to 2^64 - 1", value.c_str());
  }
  if (option == "--repeat" && o->command == Command::kRun) return SetRepeat(value, o);
  if (option == "--tolerance") {
    if (Read(value, &o->tolerance) && o->tolerance >= 0 && o->tolerance < 1) return Status();
    return MakeStatus(Code::kInvalidArgument, "--tolerance is '%s'; give a number from 0 to 1, such as 1e-5",
                      value.c_str());
  }
  if (option == "--trace" && o->command == Command::kRun) return o->trace = value, Status();
  return NotFor(option, CommandsOf(option));
}

// An option of any command; refused unless it is one of o->command.
Status SetOption(const std::string& option, const std::string& value, Options* o) {
  const bool runs = o->command == Command::kRun, replays = o->command == Command::kReplay;
  if (option == "--processes" || option == "--report" || option == "--blas") {
    if (!runs && !(replays && option == "--processes")) return NotFor(option, CommandsOf(option));
    (option == "--report" ? o->report : option == "--blas" ? o->blas : o->processes) = true;
    return Status();
  }
  if (option == "--ranks") {
    if (o->command != Command::kCalibrate) return NotFor(option, CommandsOf(option));
    if (Read(value, &o->ranks) && o->ranks >= 1 && o->ranks <= kMostCalibrated) return Status();
    return MakeStatus(Code::kInvalidArgument, "--ranks is '%s'; give a number from 1 to %d", value.c_str(),
                      kMostCalibrated);
  }
  if (o->command == Command::kSimulate) return SetOfSimulation(option, value, o);
  if (replays) return SetOfReplay(option, value, o);
  return Executes(o->command) ? Set(option, value, o) : NotFor(option, CommandsOf(option));
}

Status SetFile(const std::string& file, Options* o) {
  if (!o->file.empty())
    return MakeStatus(Code::kInvalidArgument, "two files, '%s' and '%s'; give one", o->file.c_str(), file.c_str());
  o->file = file;
  return Status();
}

constexpr command_line::Option kOptions[] = {
    {"--inputs"},        {"--seed"},        {"--outputs"}, {"--against"}, {"--tolerance"}, {"--processes", false},
    {"--report", false}, {"--blas", false}, {"--repeat"},  {"--trace"},   {"--fabric"},    {"--model"},
    {"--trips"},         {"--branch"},      {"--svg"},     {"--ranks"}};

}  // namespace

Result<Options> ParseOptions(const std::vector<std::string>& arguments) {
  AXCCL_ASSIGN_OR_RETURN(const command_line::Words words, command_line::Split(arguments, kOptions));
  Options o;
  if (words.version) return o.command = Command::kVersion, o;
  if (words.help || words.words.empty()) return o;
  const command_line::Word& command = words.words[0];
  if (command.is_option())
    return MakeStatus(Code::kInvalidArgument, "%s comes before the command; see axccl-program help",
                      command.as.c_str());
  const auto* known = std::begin(kCommands);
  while (known != std::end(kCommands) && command.text != known->name) ++known;
  if (known == std::end(kCommands))
    return MakeStatus(Code::kInvalidArgument, "unknown command '%s'; see axccl-program help", command.text.c_str());
  o.command = known->command;
  for (size_t i = 1; i < words.words.size(); ++i) {
    const command_line::Word& word = words.words[i];
    AXCCL_RETURN_IF_ERROR(word.is_option() ? SetOption(word.as, word.text, &o) : SetFile(word.text, &o));
  }
  if (o.distir && !o.fabric.empty())
    return MakeStatus(Code::kInvalidArgument,
                      "--fabric and --model exclude each other; DistIR's model has figures of "
                      "its own");
  if (o.command == Command::kCalibrate && !o.file.empty())
    return MakeStatus(Code::kInvalidArgument, "calibrate takes no file, and '%s' is one", o.file.c_str());
  if (o.command != Command::kHelp && o.command != Command::kCalibrate && o.file.empty())
    return MakeStatus(Code::kInvalidArgument, "%s has no file; give one, or - for the standard input", known->name);
  return o;
}

const char* HelpText() {
  return "usage: axccl-program COMMAND FILE [OPTION VALUE]...      FILE: - is the standard input\n"
         "\n"
         "  import FILE.mlir     prints the program of a StableHLO module, as XLA partitions it (docs/stablehlo.md)\n"
         "  check FILE.axp       checks types, shapes and communication (docs/program-format.md)\n"
         "  hash FILE.axp        prints the hash of a program\n"
         "  reference FILE.axp   runs it on one thread, each operation by its definition\n"
         "  run FILE.axp         runs it on host ranks, its collectives by AxCCL\n"
         "  replay FILE.axp      measures its communication on host ranks, without its computation\n"
         "  simulate FILE.axp    predicts time and memory on other devices\n"
         "  calibrate            measures this machine and prints it as a fabric, for simulate --fabric\n"
         "\n"
         "Options of calibrate:\n"
         "  --ranks N            that run at the same time; one for each core unless given\n"
         "\n"
         "Options of reference and run:\n"
         "  --inputs FILE.json   inputs of all ranks (docs/programs.md, \"Files of tensors\"); else random ones\n"
         "  --seed N             of random inputs; 1 unless given\n"
         "  --outputs FILE.json  writes inputs and outputs there, and their data into FILE.bin\n"
         "  --against WHAT       compares the outputs: \"reference\", or a file of tensors; the first operation and\n"
         "                       element that differ from the reference are named\n"
         "  --tolerance X        of floats, times the largest element of the tensor; 0 unless given: bit for bit\n"
         "  --processes          (run) a process for each rank, instead of a thread\n"
         "  --report             (run) how much memory each rank allocated\n"
         "  --blas               (run) fast local operations, f32 and f64 products by OpenBLAS: for time; give a\n"
         "                       tolerance to compare\n"
         "  --repeat N           (run) runs it N times, a barrier before each, and prints the median time of the\n"
         "                       slowest rank\n"
         "  --trace FILE.json    (run) writes what happened when, as simulate does\n"
         "Under torchrun, mpirun or srun a process has some of the ranks (docs/programs.md, \"On several hosts\").\n"
         "\n"
         "Options of replay (docs/programs.md, \"Communication only\"): --processes, --trips, --branch, and\n"
         "  --repeat N           measured rounds; 10 unless given\n"
         "\n"
         "Options of simulate (docs/program-format.md, \"Simulation\"):\n"
         "  --fabric FILE        devices and links; H100 GPUs unless given\n"
         "  --model distir       time by DistIR's formulas, on its devices\n"
         "  --trips N            rounds of the loops whose number does not follow from constants\n"
         "  --branch then|else   the branch of every if\n"
         "  --trace FILE.json    writes what happens when, for ui.perfetto.dev\n"
         "  --svg FILE.svg       draws it: a row for each rank, and curves of memory\n"
         "\n"
         "-h, --help prints this, and --version name and version.\n"
         "Exit status: 0 right; 1 the program is wrong, fails or differs; 2 wrong use.\n";
}

}  // namespace axccl::tools
