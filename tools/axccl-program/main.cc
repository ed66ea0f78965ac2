// axccl-program: imports, checks and runs distributed tensor programs on the command line.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/command_line.h"
#include "src/base/files.h"
#include "src/base/format.h"
#include "src/base/hash.h"
#include "src/base/standard_output.h"
#include "src/plan/plan.h"
#include "src/program/check.h"
#include "src/program/reference.h"
#include "src/program/stablehlo.h"
#include "src/program/text.h"
#include "tools/axccl-program/agreed_run.h"
#include "tools/axccl-program/blas.h"
#include "tools/axccl-program/calibrate.h"
#include "tools/axccl-program/compare.h"
#include "tools/axccl-program/drawing.h"
#include "tools/axccl-program/files.h"
#include "tools/axccl-program/gpus.h"
#include "tools/axccl-program/inputs.h"
#include "tools/axccl-program/job.h"
#include "tools/axccl-program/options.h"
#include "tools/axccl-program/replay.h"
#include "tools/axccl-program/run.h"
#include "tools/axccl-program/simulate.h"
#include "tools/axccl-program/trace.h"
#include "tools/axccl-program/training.h"

namespace axccl::tools {
namespace {

using program::Program;
using program::Tensors;

constexpr size_t kMostBytes = size_t{1} << 32;  // of a program

enum Exit : int { kRight = 0, kWrong = 1, kBadUse = 2 };

int Complain(std::string_view text, Exit exit) {
  std::fprintf(stderr, "axccl-program: %.*s\n", static_cast<int>(text.size()), text.data());
  return exit;
}
int Complain(const Status& status, Exit exit) { return Complain(status.message(), exit); }

int PrintAll(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kRight;
}

Result<RunOptions> HowToRun(const Options& o) {
  RunOptions how;
  how.repeat = o.repeat;
  if (!o.blas && o.command != Command::kCalibrate) return how;
  AXCCL_ASSIGN_OR_RETURN(const program::Products products, LoadBlas());
  how.local = [products](const program::Operation& operation, program::TensorSpan operands) {
    return program::ComputeFast(operation, operands, products);
  };
  return how;
}

// The place in a job, or all ranks; with names of files that only this process writes.
Result<Job> JobOf(const Program& program, Options* o) {
  if (o->command != Command::kRun && o->command != Command::kReplay) return Job{{0, program.ranks}, 1, ""};
  AXCCL_ASSIGN_OR_RETURN(Job job, FindJob(program.ranks, &std::getenv));
  if (job.processes > 1 && o->processes)
    return MakeStatus(Code::kInvalidUsage,
                      "--processes: a launcher has started %d processes already; leave the option out", job.processes);
  AXCCL_ASSIGN_OR_RETURN(o->outputs, NameHere("--outputs", o->outputs, job));
  AXCCL_ASSIGN_OR_RETURN(o->trace, NameHere("--trace", o->trace, job));
  o->against = WithRank(o->against, job.here);
  if (!job.meeting_point.empty()) setenv("NCCL_COMM_ID", job.meeting_point.c_str(), 0);
  return job;
}

// Of what all processes of a job must have alike.
uint64_t NumberOf(const Options& o, const Program& program, const std::vector<Tensors>& inputs) {
  const plan::Hash hash = program::HashOf(program);
  uint64_t number = Mix(Mix(kHashSeed, hash.high), hash.low);
  number = Mix(Mix(number, static_cast<uint64_t>(o.repeat)), static_cast<uint64_t>(o.trips.value_or(-1)));
  number = Mix(number, static_cast<uint64_t>(o.branch.value_or(-1)));
  number = Mix(Mix(number, o.against.empty()), std::bit_cast<uint64_t>(o.tolerance));
  for (const Tensors& of_rank : inputs) {
    for (const program::Tensor& input : of_rank) {
      for (const uint8_t byte : input.bytes) number = Mix(number, byte);
    }
  }
  return number;
}

Start StartOf(const Options& o, const Job& job, const Program& program, const std::vector<Tensors>& inputs) {
  if (o.processes) return RunRanksOnProcesses;
  if (job.processes == 1) return RunRanksOnThreads;
  return [job, number = NumberOf(o, program, inputs)](int ranks, const MakeTask& make) {
    return RunRanksHere(ranks, job.here, ComparedFirst(number, ranks, "program, options and inputs", make));
  };
}

// "ranks 2 to 3:" and `end`, or "rank 2:", of a process of a job; else "".
std::string Prefix(const Job& job, char end) {
  if (job.processes == 1) return "";
  const std::string first = std::to_string(job.here.first);
  if (job.here.count == 1) return "rank " + first + ":" + end;
  return "ranks " + first + " to " + std::to_string(job.here.first + job.here.count - 1) + ":" + end;
}

// "step 1234.5 us, median of 5, fastest 1200 us, slowest 1500 us\n"
std::string StepsText(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return Format("step %.6g us, median of %zu, fastest %.6g us, slowest %.6g us\n", seconds[seconds.size() / 2] * 1e6,
                seconds.size(), seconds.front() * 1e6, seconds.back() * 1e6);
}

// What the options ask for: a line for each rank that has run, and one of times.
void PrintReport(const Options& o, const Job& job, const RunReport& report) {
  std::string text;
  for (size_t rank = 0; o.report && rank < report.peaks.size(); ++rank) {
    if (!job.here.Has(static_cast<int64_t>(rank))) continue;
    text += "rank " + std::to_string(rank) + ": peak " + std::to_string(report.peaks[rank]) + " bytes\n";
  }
  if (!report.steps.empty()) text += Prefix(job, ' ') + StepsText(report.steps);
  PrintAll(text);
}

// What the outputs must be.
Result<std::vector<Tensors>> ExpectedOf(const Options& o, const Program& program, const std::vector<Tensors>& inputs) {
  if (o.against == "reference") return program::RunReference(program, inputs);
  AXCCL_ASSIGN_OR_RETURN(TensorFile read, ReadTensors(o.against));
  std::vector<Tensors> expected(static_cast<size_t>(read.first_rank));
  for (Tensors& of_rank : read.outputs) expected.push_back(std::move(of_rank));
  return expected;
}

// Runs the program once more and looks at every operation. All ranks are here.
std::string OperationDifference(const Options& o, const RunOptions& how, const Program& program,
                                const std::vector<Tensors>& inputs) {
  Watch watch(&program, &inputs, o.tolerance);
  for (int rank = 0; rank < program.ranks; ++rank) {
    if (!watch.Begin(rank, {0, program.ranks}).ok()) return "";
  }
  if (!RunOnThreads(program, inputs, watch.observer(), nullptr, {how.local}).ok()) return "";
  std::vector<std::optional<Place>> places(static_cast<size_t>(program.ranks));
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const std::optional<DifferentOperation>& of_rank = watch.Of(static_cast<int>(rank));
    if (of_rank.has_value()) places[rank] = of_rank->place;
  }
  const std::optional<size_t> first = FirstOf(places);
  return first.has_value() ? watch.Of(static_cast<int>(*first))->text : "";
}

int Equal(const Options& o, const Job& job) {
  std::printf("%sequal to %s\n", Prefix(job, ' ').c_str(), o.against.c_str());
  return kRight;
}

// What all processes of a job have found together; that of rank 0 says it.
int ReportVerdict(const Options& o, const Job& job, const std::string& verdict) {
  if (verdict.empty()) return Equal(o, job);
  if (job.here.first > 0)
    return Complain(Prefix(job, ' ') + "the job's outputs differ; the process of rank 0 says where", kWrong);
  for (size_t at = 0; at < verdict.size();) {
    const size_t end = std::min(verdict.find('\n', at), verdict.size());
    Complain(std::string_view(verdict).substr(at, end - at), kWrong);
    at = end + 1;
  }
  return kWrong;
}

int Compare(const Options& o, const Job& job, const RunOptions& how, const Program& program, const TensorFile& tensors,
            const std::vector<Tensors>& expected) {
  std::string difference;
  for (int rank = 0; rank < program.ranks && difference.empty(); ++rank)
    difference = OutputDifference(rank, tensors.outputs[static_cast<size_t>(rank)], expected, o.tolerance);
  if (difference.empty()) return Equal(o, job);
  Complain("differs from " + o.against + " in " + difference, kWrong);
  if (o.command == Command::kReference) return kWrong;
  difference = OperationDifference(o, how, program, tensors.inputs);
  if (!difference.empty()) Complain("the first operation that differs from the reference: " + difference, kWrong);
  return kWrong;
}

Result<std::vector<Tensors>> Execute(const Options& o, const Job& job, const RunOptions& how, const Program& program,
                                     const std::vector<Tensors>& inputs, RunReport* report) {
  if (o.command == Command::kReference) return program::RunReference(program, inputs);
  return RunBy(StartOf(o, job, program, inputs), program, inputs, report, how);
}

TensorFile PartOf(const TensorFile& all, RankRange here) {
  const auto part = [&](const TensorFile::ByRank& of) {
    return TensorFile::ByRank(of.begin() + here.first, of.begin() + here.first + here.count);
  };
  return {part(all.inputs), part(all.outputs), here.first};
}

int ExecuteAndReport(const Options& o, const Job& job, const Program& program) {
  TensorFile tensors;
  if (o.inputs.empty()) {
    tensors.inputs = RandomInputs(program, o.seed);
  } else {
    Result<TensorFile> read = ReadTensors(o.inputs);
    if (!read.ok()) return Complain(read.status(), kBadUse);
    tensors.inputs = std::move(read.value().inputs);
  }
  if (const Status fit = program::CheckInputs(program, tensors.inputs); !fit.ok()) return Complain(fit, kBadUse);
  Result<RunOptions> how = HowToRun(o);
  if (!how.ok()) return Complain(how.status(), kBadUse);
  Comparison comparison(&program, &tensors.inputs, o.tolerance);
  comparison.here = job.here;
  comparison.against = o.against;
  if (!o.against.empty()) {
    Result<std::vector<Tensors>> expected = ExpectedOf(o, program, tensors.inputs);
    if (!expected.ok()) return Complain(expected.status(), o.against == "reference" ? kWrong : kBadUse);
    comparison.expected = std::move(expected.value());
    if (job.processes > 1) how.value().comparison = &comparison;
  }
  RunReport report;
  report.keeps_events = !o.trace.empty();
  Result<std::vector<Tensors>> outputs = Execute(o, job, how.value(), program, tensors.inputs, &report);
  if (!outputs.ok()) return Complain(outputs.status(), kWrong);
  PrintReport(o, job, report);
  if (!o.trace.empty()) {
    const Status written = WriteWholeFile(o.trace, TraceOf(report.events));
    if (!written.ok()) return Complain(written, kBadUse);
  }
  tensors.outputs = std::move(outputs.value());
  if (!o.outputs.empty()) {
    const Status written = WriteTensors(o.outputs, PartOf(tensors, job.here));
    if (!written.ok()) return Complain(written, kBadUse);
  }
  if (!o.against.empty() && job.processes > 1) return ReportVerdict(o, job, report.verdict);
  if (!o.against.empty()) return Compare(o, job, how.value(), program, tensors, comparison.expected);
  std::printf("%s%d ranks have run\n", Prefix(job, ' ').c_str(), job.here.count);
  return kRight;
}

int ReplayAndReport(const Options& o, const Job& job, const Program& program) {
  ReplayOptions how{{o.trips, o.branch}};
  if (o.repeat > 0) how.rounds = o.repeat;
  how.start = StartOf(o, job, program, {});
  const Result<std::string> report = Replay(program, how);
  if (!report.ok()) return Complain(report.status(), kWrong);
  return PrintAll(Prefix(job, '\n') + report.value());
}

int SimulateAndReport(const Options& o, const Program& program) {
  Result<std::unique_ptr<program::Model>> model = ModelOf(o);
  if (!model.ok()) return Complain(model.status(), kBadUse);
  const Result<program::Simulation> simulation =
      program::Simulate(program, model.value().get(), {o.trips, o.branch, !o.trace.empty() || !o.svg.empty()});
  if (!simulation.ok()) return Complain(simulation.status(), kWrong);
  if (!o.trace.empty()) {
    const Status written = WriteWholeFile(o.trace, TraceOf(simulation.value().events));
    if (!written.ok()) return Complain(written, kBadUse);
  }
  if (!o.svg.empty()) {
    const Status written = WriteWholeFile(o.svg, DrawingOf(program, simulation.value()));
    if (!written.ok()) return Complain(written, kBadUse);
  }
  return PrintAll(ReportOf(program, simulation.value()));
}

int Train(const std::string& command, const std::vector<std::string>& arguments) {
  const Result<std::string> text = CatchAll(command.c_str(), [&] { return RunTraining(command, arguments); });
  if (!text.ok()) return Complain(text.status(), text.status().code() == Code::kInvalidUsage ? kBadUse : kWrong);
  return PrintAll(text.value());
}

int CalibrateAndPrint(const Options& o) {
  const Result<RunOptions> how = HowToRun(o);
  if (!how.ok()) return Complain(how.status(), kBadUse);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const Result<std::string> fabric = Calibrate(o.ranks > 0 ? o.ranks : cores, how.value());
  return fabric.ok() ? PrintAll(fabric.value()) : Complain(fabric.status(), kWrong);
}

// Only replay knows ranks on GPUs.
Status ChooseDevice(const Options& o) {
  if (o.command == Command::kReplay || !GpusWanted()) {
    setenv("AXCCL_DEVICE", "host", 0);
    return Status();
  }
  if (o.command != Command::kRun && o.command != Command::kCalibrate) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "AXCCL_DEVICE is cuda, and run and calibrate have host ranks only; unset it, or replay");
}

int Run(Options o) {
  if (const Status chosen = ChooseDevice(o); !chosen.ok()) return Complain(chosen, kBadUse);
  if (o.command == Command::kHelp) return PrintAll(std::string(HelpText()) + "\n" + TrainingHelp());
  if (o.command == Command::kVersion) return PrintAll(command_line::VersionText("axccl-program"));
  if (o.command == Command::kCalibrate) return CalibrateAndPrint(o);
  const Result<std::string> text = ReadWholeFile(o.file == "-" ? "/dev/stdin" : o.file, kMostBytes);
  if (!text.ok()) return Complain(text.status(), kBadUse);
  const Result<Program> program =
      o.command == Command::kImport ? program::ImportStablehlo(text.value()) : program::Parse(text.value());
  if (!program.ok()) return Complain(program.status(), kWrong);
  if (o.command == Command::kImport) return PrintAll(program::Print(program.value()));
  if (o.command == Command::kHash) return PrintAll(plan::ToString(program::HashOf(program.value())) + "\n");
  if (const Status right = program::Check(program.value()); !right.ok()) return Complain(right, kWrong);
  if (o.command == Command::kCheck) return PrintAll("right\n");
  if (o.command == Command::kSimulate) return SimulateAndReport(o, program.value());
  const Result<Job> job = JobOf(program.value(), &o);
  if (!job.ok()) return Complain(job.status(), kBadUse);
  if (o.command == Command::kReplay) return ReplayAndReport(o, job.value(), program.value());
  return ExecuteAndReport(o, job.value(), program.value());
}

}  // namespace
}  // namespace axccl::tools

int main(int argc, char** argv) {
  using namespace axccl;
  ExpectOutputAtExit("axccl-program", tools::kBadUse);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool asks = std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "-h" || argument == "--help" || argument == "--version";
  });
  if (!asks && argc > 1 && tools::IsOfTraining(argv[1])) return tools::Train(argv[1], {argv + 2, argv + argc});
  const Result<tools::Options> options = tools::ParseOptions(arguments);
  if (!options.ok()) return tools::Complain(options.status(), tools::kBadUse);
  try {
    return tools::Run(options.value());
  } catch (const std::bad_alloc&) {
    return tools::Complain(StatusOfException(argv[1]), tools::kWrong);
  }
}
