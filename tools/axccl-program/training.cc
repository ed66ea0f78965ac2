#include "tools/axccl-program/training.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "src/base/files.h"
#include "src/base/format.h"
#include "src/base/processors.h"
#include "src/program/check.h"
#include "src/program/kinds.h"
#include "src/program/make.h"
#include "src/program/search.h"
#include "src/program/text.h"
#include "src/program/transform.h"
#include "tools/axccl-program/drawing.h"
#include "tools/axccl-program/flags.h"
#include "tools/axccl-program/simulate.h"

namespace axccl::tools {
namespace {

using program::Candidate;
using program::LocalLoss;
using program::Parallelism;
using program::PipelineOrder;
using program::Program;

constexpr size_t kMostBytes = size_t{1} << 32;  // of a program
constexpr size_t kMostRows = 20;                // of a table, unless --rows says otherwise

Status WrongUse(const std::string& message) { return MakeStatus(Code::kInvalidUsage, "%s", message.c_str()); }

// The command's options, and the only word beside them.
Result<std::string> ParseAll(const Flags& flags, const std::vector<std::string>& arguments, const char* what) {
  std::vector<std::string> rest;
  if (const Status parsed = flags.Parse(arguments, &rest); !parsed.ok()) return WrongUse(std::string(parsed.message()));
  if (rest.size() != 1) return WrongUse(Format("%zu arguments beside options; give %s", rest.size(), what));
  return rest[0];
}

Result<Program> ReadProgram(const std::string& file) {
  const Result<std::string> text = ReadWholeFile(file == "-" ? "/dev/stdin" : file, kMostBytes);
  if (!text.ok()) return WrongUse(std::string(text.status().message()));
  AXCCL_ASSIGN_OR_RETURN(Program program, program::Parse(text.value()));
  AXCCL_RETURN_IF_ERROR(program::Check(program));
  return program;
}

Result<std::string> Make(const std::vector<std::string>& arguments) {
  int64_t layers = 0, dim = 0, heads = 0, sequence = 0, batch = 0;
  DataType type = DataType::kFloat32;
  Flags flags;
  flags.Number("--layers", &layers);
  flags.Number("--dim", &dim);
  flags.Number("--heads", &heads);
  flags.Number("--sequence", &sequence);
  flags.Number("--batch", &batch);
  flags.Choice("--type", "a type of floats or signed integers, such as f32, bf16, i32",
               [&](const std::string& name) { return program::Find(name, &type); });
  AXCCL_ASSIGN_OR_RETURN(const std::string model, ParseAll(flags, arguments, "a model, mlp or transformer"));
  const auto given = [](int64_t value, int64_t otherwise) { return value > 0 ? value : otherwise; };
  if (model == "mlp") {
    if (heads > 0 || sequence > 0) return WrongUse("make mlp has no --heads and no --sequence");
    program::MlpShape shape;
    shape = {given(layers, shape.layers), given(dim, shape.dim), given(batch, shape.batch), type};
    AXCCL_ASSIGN_OR_RETURN(const Program program, program::MakeMlp(shape));
    return program::Print(program);
  }
  if (model != "transformer") return WrongUse("make: no model '" + model + "'; there are mlp and transformer");
  program::TransformerShape shape;
  shape = {given(layers, shape.layers),     given(dim, shape.dim),     given(heads, shape.heads),
           given(sequence, shape.sequence), given(batch, shape.batch), type};
  AXCCL_ASSIGN_OR_RETURN(const Program program, program::MakeTransformer(shape));
  return program::Print(program);
}

bool ReadOrder(const std::string& name, PipelineOrder* order) {
  *order = name == "fifo" ? PipelineOrder::kFifo : PipelineOrder::k1F1B;
  return name == "fifo" || name == "1f1b";
}

bool ReadBucket(const std::string& text, int64_t* bytes) {
  uint64_t value = 0;
  if (!ReadBytes(text, &value) || value > uint64_t{1} << 62) return false;
  *bytes = static_cast<int64_t>(value);
  return true;
}

Result<std::string> TransformFile(const std::vector<std::string>& arguments) {
  Parallelism p;
  int64_t zero = 0;
  Flags flags;
  flags.Number("--data", &p.data);
  flags.Number("--tensor", &p.tensor);
  flags.Number("--pipeline", &p.stages);
  flags.Number("--microbatches", &p.microbatches);
  flags.Number("--zero", &zero, 0);
  flags.Number("--recompute", &p.recompute);
  flags.Choice("--schedule", "fifo or 1f1b", [&](const std::string& name) { return ReadOrder(name, &p.order); });
  flags.Choice("--overlap", "a number of bytes, such as 25M",
               [&](const std::string& text) { return ReadBucket(text, &p.bucket_bytes); });
  flags.Choice("--local-layer", "stages or layers", [&](const std::string& name) {
    p.local = name == "stages" ? LocalLoss::kStages : LocalLoss::kLayers;
    return name == "stages" || name == "layers";
  });
  AXCCL_ASSIGN_OR_RETURN(const std::string file, ParseAll(flags, arguments, "a file, or - for the standard input"));
  if (zero > 3) return WrongUse(Format("--zero is '%lld'; give 0, 1, 2 or 3", static_cast<long long>(zero)));
  p.zero = static_cast<int>(zero);
  AXCCL_ASSIGN_OR_RETURN(const Program program, ReadProgram(file));
  AXCCL_ASSIGN_OR_RETURN(const program::Transformed transformed, program::Parallelize(program, p));
  return program::Print(transformed.program);
}

std::string RowOf(const Candidate& c) {
  const Parallelism& p = c.parallelism;
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  return Format("%6lld %6lld %6lld %6lld %5d %9lld %11.3f %9.3f %8.1f %6.1f\n", number(p.data), number(p.tensor),
                number(p.stages), number(p.microbatches), p.zero, number(p.recompute), c.seconds * 1e3,
                static_cast<double>(c.peak_bytes) / 1e9, 100 * c.exposed, 100 * c.idle);
}

// The ways that cannot be used, a line for each reason; of those that need too much memory, what the smallest needs.
std::string LeftOut(const std::vector<Candidate>& candidates, size_t usable) {
  std::map<std::string, std::pair<size_t, uint64_t>> reasons;  // how many, and the least peak
  for (size_t i = usable; i < candidates.size(); ++i) {
    auto& [count, least] = reasons.try_emplace(candidates[i].left_out, 0, ~uint64_t{0}).first->second;
    ++count;
    least = std::min(least, candidates[i].peak_bytes);
  }
  std::string text;
  for (const auto& [reason, of] : reasons) {
    text += Format("left out, %zu: %s", of.first, reason.c_str());
    text += of.second > 0 ? Format("; the smallest needs %.3f GB\n", static_cast<double>(of.second) / 1e9) : "\n";
  }
  return text;
}

std::string TableOf(const std::vector<Candidate>& candidates, size_t rows) {
  std::string text = "  data tensor stages  micro  zero recompute   time [ms] peak [GB] exposed%  idle%\n";
  const auto usable = static_cast<size_t>(
      std::count_if(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.left_out.empty(); }));
  for (size_t i = 0; i < std::min(rows, usable); ++i) text += RowOf(candidates[i]);
  if (usable > rows) text += Format("and %zu more; --rows N shows more\n", usable - rows);
  return text + LeftOut(candidates, usable);
}

// Numbers that are ints.
bool ReadStages(const std::string& text, std::vector<int>* stages) {
  std::vector<int64_t> numbers;
  if (!ReadNumbers(text, &numbers)) return false;
  stages->clear();
  for (const int64_t number : numbers) {
    if (number > 3) return false;
    stages->push_back(static_cast<int>(number));
  }
  return true;
}

// Files of the fastest way; empty: not written.
struct FastestFiles {
  std::string program, picture;
};

Status WriteFile(const std::string& file, const std::string& text) {
  const Status written = WriteWholeFile(file, text);
  return written.ok() ? written : WrongUse(std::string(written.message()));
}

Status WriteFastest(const Program& before, const Parallelism& fastest, program::Model* model,
                    const FastestFiles& files) {
  AXCCL_ASSIGN_OR_RETURN(const program::Transformed after, program::Parallelize(before, fastest));
  if (!files.program.empty()) AXCCL_RETURN_IF_ERROR(WriteFile(files.program, program::Print(after.program)));
  if (files.picture.empty()) return Status();
  program::SimulateOptions with_events;
  with_events.events = true;
  AXCCL_ASSIGN_OR_RETURN(const program::Simulation simulation, program::Simulate(after.program, model, with_events));
  return WriteFile(files.picture, DrawingOf(after.program, simulation));
}

Result<std::string> SearchFor(const std::vector<std::string>& arguments) {
  program::SearchSpace space;
  space.threads = std::max(size_t{1}, AllowedProcessors().size());
  Options of_model;
  FastestFiles files;
  int64_t rows = kMostRows;
  Flags flags;
  flags.Number("--devices", &space.devices);
  flags.Number("--rows", &rows, 0);
  flags.Text("--fabric", &of_model.fabric);
  flags.Text("--emit", &files.program);
  flags.Text("--svg", &files.picture);
  flags.Choice("--model", "distir", [&](const std::string& name) {
    // Its devices do one thing at a time, and know no reduce_scatter.
    space.zero = {0};
    space.bucket_bytes = -1;
    return of_model.distir = name == "distir";
  });
  flags.Choice("--memory", "a number of bytes, such as 80G",
               [&](const std::string& text) { return ReadBytes(text, &space.memory_bytes); });
  flags.Choice("--schedule", "fifo or 1f1b", [&](const std::string& name) { return ReadOrder(name, &space.order); });
  flags.Choice("--overlap", "a number of bytes, such as 25M, or none", [&](const std::string& text) {
    if (text == "none") return space.bucket_bytes = -1, true;
    return ReadBucket(text, &space.bucket_bytes);
  });
  flags.Choice("--zero", "stages, such as 0,1,3",
               [&](const std::string& text) { return ReadStages(text, &space.zero); });
  flags.Choice("--recompute", "numbers of layers, such as 0,1",
               [&](const std::string& text) { return ReadNumbers(text, &space.recompute); });
  flags.Choice("--microbatches", "numbers, such as 4,8,16",
               [&](const std::string& text) { return ReadNumbers(text, &space.microbatches); });
  AXCCL_ASSIGN_OR_RETURN(const std::string file, ParseAll(flags, arguments, "a file, or - for the standard input"));
  if (of_model.distir && !of_model.fabric.empty())
    return WrongUse("--fabric and --model exclude each other; DistIR's model has figures of its own");
  const Result<std::unique_ptr<program::Model>> model = ModelOf(of_model);
  if (!model.ok()) return WrongUse(std::string(model.status().message()));
  AXCCL_ASSIGN_OR_RETURN(const Program program, ReadProgram(file));
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Candidate> found, program::Search(program, space, model.value().get()));
  const std::string table = TableOf(found, static_cast<size_t>(rows));
  if (files.program.empty() && files.picture.empty()) return table;
  if (found.empty() || !found[0].left_out.empty())
    return MakeStatus(Code::kInvalidArgument, "search: nothing to write, no way is possible:\n%s", table.c_str());
  AXCCL_RETURN_IF_ERROR(WriteFastest(program, found[0].parallelism, model.value().get(), files));
  return table;
}

}  // namespace

bool IsOfTraining(const std::string& command) {
  return command == "make" || command == "transform" || command == "search";
}

Result<std::string> RunTraining(const std::string& command, const std::vector<std::string>& arguments) {
  if (command == "make") return Make(arguments);
  return command == "transform" ? TransformFile(arguments) : SearchFor(arguments);
}

const char* TrainingHelp() {
  return "Training steps (docs/transforms.md):\n"
         "  make mlp|transformer   prints one, for one rank: --layers, --dim, --batch, --type; transformer: --heads,\n"
         "                         --sequence\n"
         "  transform FILE.axp     prints it for many ranks\n"
         "  search FILE.axp        prints a table of the ways to spread it over devices, the fastest first\n"
         "\n"
         "Options of transform:\n"
         "  --data N, --tensor N   ranks that share the batch, ranks that share tensors\n"
         "  --zero 0|1|2|3         what ranks that share the batch share of weights and gradients, too\n"
         "  --pipeline N           stages\n"
         "  --microbatches N       that go through the stages one after the other\n"
         "  --schedule fifo|1f1b   1f1b unless given\n"
         "  --local-layer stages|layers   each stage, or each layer, has its own loss; no gradient goes between them\n"
         "  --recompute N          keeps the input of every N layers, and computes the rest once more\n"
         "  --overlap BYTES        communication beside computation; gradients in calls of up to that size\n"
         "Options of search:\n"
         "  --devices N            how many\n"
         "  --memory BYTES         of a device, such as 80G; no limit unless given; what needs more is not timed\n"
         "  --fabric, --model      as of simulate; DistIR's model has no ZeRO and no overlap\n"
         "  --zero, --recompute, --microbatches, --schedule, --overlap   what is tried: 0,1,2,3  0,1  2,4,8,16,32,64\n"
         "                         1f1b  26214400 (or none)\n"
         "  --emit FILE.axp        writes the fastest\n"
         "  --svg FILE.svg         draws it, as simulate --svg does\n"
         "  --rows N               of the table; 20\n";
}

}  // namespace axccl::tools
