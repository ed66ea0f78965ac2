#include "perf/loops/cases.h"

#include <algorithm>
#include <cstring>

#include "perf/common/calls.h"
#include "perf/common/types.h"
#include "perf/loops/loops.h"

namespace axccl::perf {
namespace {

// Bytes of one run of the all-gathers on the last dimension.
constexpr size_t kRunBytes[] = {4, 8, 16, 64, 256, 1024};
constexpr int kListLength = 200;

Shape GatherShape(const CaseTask& task) { return task.quick ? Shape{64, 64} : Shape{4096, 4096}; }
Shape AllToAllShape(const CaseTask& task) { return task.quick ? Shape{4, 8, 4, 16} : Shape{64, 512, 32, 64}; }
std::vector<Shape> ListShapes(const CaseTask& task) { return ModelShapes(kListLength, task.quick ? 8 : 128); }
// The size in the definition of nccl-tests: that of the output.
size_t RunsSize(const CaseTask& task) { return size_t{16} << (task.quick ? 10 : 20); }

size_t Elements(const std::vector<Shape>& shapes) {
  ViewOptions none;
  return Operands(ViewKind::kSame, none, shapes, 1, 0, false).send_span();
}

std::string ShapeText(const Shape& shape) {
  std::string text;
  for (int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// The collectives on views that the cases use, with operands in the field's buffers.
struct Operation {
  ViewKind kind;
  int split_dim = 0;
  int concat_dim = 0;
};

std::shared_ptr<Operands> OperandsFor(const Field& field, const Operation& op, const std::vector<Shape>& shapes,
                                      const char* in, char* out, int type) {
  ViewOptions options;
  options.split_dim = op.split_dim;
  options.concat_dim = op.concat_dim;
  auto operands = std::make_shared<Operands>(op.kind, options, shapes, field.ranks(), field.rank(), false);
  operands->Aim(in, out, type);
  return operands;
}

void Enqueue(const Field& field, const Operation& op, int count, const axcclView_t* in, const axcclView_t* out) {
  switch (op.kind) {
    case ViewKind::kConcat:
      PERF_CALL(axcclAllGather(count, in, out, op.concat_dim, field.channel(), nullptr, field.stream()));
      break;
    case ViewKind::kSplit:
      PERF_CALL(axcclReduceScatter(count, in, out, op.split_dim, ncclSum, field.channel(), nullptr, field.stream()));
      break;
    default:
      PERF_CALL(axcclAllToAll(count, in, out, op.split_dim, op.concat_dim, field.channel(), nullptr, field.stream()));
  }
}

Contestant OneCall(Field* field, const std::string& name, const Operation& op, const std::vector<Shape>& shapes,
                   int type) {
  auto operands = OperandsFor(*field, op, shapes, field->in(), field->out(), type);
  auto run = [field, op, operands] {
    Enqueue(*field, op, operands->size(), operands->in(), operands->out());
    field->Synchronize();
  };
  return {name, "", run, operands};
}

// ---- all_gather on dimension 1 of a matrix ----

// On dimension 0 into the staging memory, then the fastest copy into place.
Contestant GatherAndCopy(Field* field, const Shape& shape, int type) {
  const Operation first = {ViewKind::kConcat, 0, 0};
  auto gathered = OperandsFor(*field, first, {shape}, field->in(), field->staging(), type);
  auto parts = SideBySide(field->staging(), field->out(), static_cast<size_t>(field->ranks()),
                          static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]) * ElementBytes(type));
  std::vector<CopyWay> ways = AllCopyWays();
  CopyWay way = ways[field->Fastest(ways.size(), [&](size_t w) { CopyRuns(parts, ways[w]); })];
  auto run = [field, first, gathered, parts, way] {
    Enqueue(*field, first, 1, gathered->in(), gathered->out());
    field->Synchronize();
    CopyRuns(parts, way);
  };
  return {"dim 0 + copy", CopyWayName(way), run,
          OperandsFor(*field, {ViewKind::kConcat, 0, 1}, {shape}, field->in(), field->out(), type)};
}

void Gather(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure) {
  const Shape shape = GatherShape(task);
  const Sequence sequence{task.type, kMove, 1, field->ranks(), field->rank()};
  Contestant ours = OneCall(field, "AxCCL", {ViewKind::kConcat, 0, 1}, {shape}, task.type);
  ours.expected->Fill(sequence);
  field->exchange()->Barrier();
  Contestant first = OneCall(field, "dim 0", {ViewKind::kConcat, 0, 0}, {shape}, task.type);
  measure({"all_gather",
           "all_gather of " + ShapeText(shape) + " on dim 1",
           sequence,
           {ours, first, GatherAndCopy(field, shape, task.type)}});
}

// ---- runs ----

// The work of this rank: fetch the runs of all ranks, or bring its own to all.
std::vector<Runs> LoopParts(const Field& field, size_t count, size_t bytes, bool fetch) {
  std::vector<Runs> parts;
  const ptrdiff_t step = static_cast<ptrdiff_t>(bytes);
  for (int peer = 0; peer < field.ranks(); ++peer) {
    const int source = fetch ? peer : field.rank();
    const int destination = fetch ? field.rank() : peer;
    parts.push_back({field.loop_in(source), field.loop_out(destination) + static_cast<size_t>(source) * bytes, count,
                     bytes, step, step * field.ranks()});
  }
  return parts;
}

Contestant Loops(Field* field, const Shape& shape, size_t bytes, int type) {
  struct Plan {
    bool fetch;
    CopyWay way;
  };
  std::vector<Plan> plans;
  for (bool fetch : {true, false}) {
    for (const CopyWay& way : AllCopyWays()) plans.push_back({fetch, way});
  }
  const size_t count = static_cast<size_t>(shape[0]);
  size_t fastest = field->Fastest(
      plans.size(), [&](size_t p) { CopyRuns(LoopParts(*field, count, bytes, plans[p].fetch), plans[p].way); });
  const Plan plan = plans[fastest];
  std::vector<Runs> parts = LoopParts(*field, count, bytes, plan.fetch);
  auto run = [parts, plan] { CopyRuns(parts, plan.way); };
  return {"loop", std::string(plan.fetch ? "fetch, " : "bring, ") + CopyWayName(plan.way), run,
          OperandsFor(*field, {ViewKind::kConcat, 0, 1}, {shape}, field->loop_in(field->rank()),
                      field->loop_out(field->rank()), type)};
}

void GatherRuns(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure) {
  const size_t block = RunsSize(task) / static_cast<size_t>(field->ranks());
  for (size_t bytes : kRunBytes) {
    const Shape shape = {static_cast<int64_t>(block / bytes), static_cast<int64_t>(bytes / ElementBytes(task.type))};
    if (shape[1] == 0) continue;  // a run is at least one element
    const Sequence sequence{task.type, kMove, 2, field->ranks(), field->rank()};
    Contestant ours = OneCall(field, "AxCCL", {ViewKind::kConcat, 0, 1}, {shape}, task.type);
    ours.expected->Fill(sequence);
    OperandsFor(*field, {ViewKind::kConcat, 0, 1}, {shape}, field->loop_in(field->rank()), field->out(), task.type)
        ->Fill(sequence);
    field->exchange()->Barrier();
    measure({"runs_" + std::to_string(bytes),
             "all_gather of " + ShapeText(shape) + " on dim 1: runs of " + std::to_string(bytes) + " B",
             sequence,
             {ours, Loops(field, shape, bytes, task.type)}});
  }
}

// ---- other collectives ----

void ReduceScatter(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure) {
  const Shape shape = GatherShape(task);
  const Sequence sequence{task.type, kSum, 3, field->ranks(), field->rank()};
  Contestant ours = OneCall(field, "AxCCL", {ViewKind::kSplit, 1, 0}, {shape}, task.type);
  ours.expected->Fill(sequence);
  field->exchange()->Barrier();
  measure({"reduce_scatter",
           "reduce_scatter of " + ShapeText(shape) + " on dim 1",
           sequence,
           {ours, OneCall(field, "dim 0", {ViewKind::kSplit, 0, 0}, {shape}, task.type)}});
}

void AllToAll(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure) {
  const Shape shape = AllToAllShape(task);
  const Sequence sequence{task.type, kMove, 4, field->ranks(), field->rank()};
  Contestant ours = OneCall(field, "AxCCL 1, 0", {ViewKind::kSplitConcat, 1, 0}, {shape}, task.type);
  ours.expected->Fill(sequence);
  field->exchange()->Barrier();
  measure({"alltoall",
           "all_to_all of " + ShapeText(shape),
           sequence,
           {ours, OneCall(field, "AxCCL 2, 1", {ViewKind::kSplitConcat, 2, 1}, {shape}, task.type),
            OneCall(field, "dim 0", {ViewKind::kSplitConcat, 0, 0}, {shape}, task.type)}});
}

// ---- lists ----

// One call for each, in the faster of the ways to wait for them, or in one group.
Contestant ManyCalls(Field* field, const std::vector<Shape>& shapes, int type, bool grouped) {
  const Operation op = {ViewKind::kConcat, 0, 0};
  auto operands = OperandsFor(*field, op, shapes, field->in(), field->out(), type);
  auto run_by = [field, op, operands, grouped](size_t wait_after_each) {
    if (grouped) PERF_CALL(ncclGroupStart());
    for (int k = 0; k < operands->size(); ++k) {
      Enqueue(*field, op, 1, operands->in() + k, operands->out() + k);
      if (wait_after_each != 0) field->Synchronize();
    }
    if (grouped) PERF_CALL(ncclGroupEnd());
    field->Synchronize();
  };
  if (grouped) return {"a call each, in a group", "", [run_by] { run_by(0); }, operands};
  const size_t wait = field->Fastest(2, run_by);
  return {"a call each", wait == 0 ? "wait at the end" : "wait after each", [run_by, wait] { run_by(wait); }, operands};
}

// Copies all operands into one buffer, makes one call, and copies them out again. The staging memory holds both
// buffers.
Contestant PackedCall(Field* field, const std::vector<Shape>& shapes, int type) {
  auto operands = OperandsFor(*field, {ViewKind::kConcat, 0, 0}, shapes, field->in(), field->out(), type);
  std::vector<Runs> in;
  std::vector<Runs> out;
  const size_t total = operands->counts().send * ElementBytes(type);
  char* gathered = field->staging() + (total + 63) / 64 * 64;
  size_t done = 0;
  for (int k = 0; k < operands->size(); ++k) {
    const char* source = static_cast<const char*>(operands->in()[k].data);
    char* destination = static_cast<char*>(operands->out()[k].data);
    const size_t bytes = Elements({shapes[static_cast<size_t>(k)]}) * ElementBytes(type);
    in.push_back({source, field->staging() + done, 1, bytes, 0, 0});
    for (size_t r = 0; r < static_cast<size_t>(field->ranks()); ++r) {
      out.push_back({gathered + r * total + done, destination + r * bytes, 1, bytes, 0, 0});
    }
    done += bytes;
  }
  auto run_by = [field, in, out, gathered, type, total](const CopyWay& way) {
    CopyRuns(in, way);
    PERF_CALL(ncclAllGather(field->staging(), gathered, total / ElementBytes(type), static_cast<ncclDataType_t>(type),
                            field->comm(), field->stream()));
    field->Synchronize();
    CopyRuns(out, way);
  };
  const std::vector<CopyWay> ways = {{Loop::kMemcpy, false}, {Loop::kMoves, false}, {Loop::kStream, false}};
  CopyWay way = ways[field->Fastest(ways.size(), [&](size_t w) { run_by(ways[w]); })];
  return {"copy in + call + copy out", CopyWayName(way), [run_by, way] { run_by(way); }, operands};
}

void List(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure) {
  const std::vector<Shape> shapes = ListShapes(task);
  const Sequence sequence{task.type, kMove, 5, field->ranks(), field->rank()};
  Contestant ours = OneCall(field, "AxCCL", {ViewKind::kConcat, 0, 0}, shapes, task.type);
  ours.expected->Fill(sequence);
  field->exchange()->Barrier();
  measure({"list",
           "all_gather of a list of " + std::to_string(shapes.size()) + " views",
           sequence,
           {ours, ManyCalls(field, shapes, task.type, false), ManyCalls(field, shapes, task.type, true),
            PackedCall(field, shapes, task.type)}});
}

// ---- channels ----

void Destroy(std::vector<axcclChannel_t>* channels) {
  for (axcclChannel_t channel : *channels) PERF_CALL(axcclChannelDestroy(channel));
  channels->clear();
}

// Creates one channel each time; after a round all of them are destroyed.
Contestant Creation(Field* field, const std::string& name, std::function<int64_t()> id) {
  auto channels = std::make_shared<std::vector<axcclChannel_t>>();
  channels->reserve(128);
  auto create = [field, id, channels] {
    PERF_CALL(axcclChannelCreate(&channels->emplace_back(), field->comm(), nullptr, id(), 0));
  };
  return {name, "", create, nullptr, [channels] { Destroy(channels.get()); }, true};
}

void Channels(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure) {
  constexpr int64_t kLives = 1;
  std::vector<axcclChannel_t> lives(1);
  PERF_CALL(axcclChannelCreate(&lives[0], field->comm(), nullptr, kLives, 0));
  int64_t last = kLives;
  measure({"channel",
           "creation of a channel of " + std::to_string(field->ranks()) + " ranks",
           {task.type, kMove, 6, field->ranks(), field->rank()},
           {Creation(field, "new id", [&last] { return ++last; }),
            Creation(field, "id that lives", [] { return kLives; })}});
  Destroy(&lives);
}

struct Named {
  const char* name;
  void (*cases)(const CaseTask& task, Field* field, const std::function<void(const Case&)>& measure);
};
const Named kNamed[] = {{"all_gather", Gather}, {"runs", GatherRuns}, {"reduce_scatter", ReduceScatter},
                        {"alltoall", AllToAll}, {"list", List},       {"channel", Channels}};

}  // namespace

const std::vector<std::string>& CaseNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Named& named : kNamed) all.push_back(named.name);
    return all;
  }();
  return names;
}

FieldSizes SizesFor(const std::vector<std::string>& names, const CaseTask& task, int ranks) {
  FieldSizes sizes;
  const size_t n = static_cast<size_t>(ranks);
  const size_t bytes = ElementBytes(task.type);
  auto need = [](size_t* size, size_t least) { *size = std::max(*size, least); };
  for (const std::string& name : names) {
    size_t block = 0;
    if (name == "all_gather" || name == "reduce_scatter") block = Elements({GatherShape(task)}) * bytes;
    if (name == "alltoall") block = Elements({AllToAllShape(task)}) * bytes;
    if (name == "runs") block = RunsSize(task) / n;
    if (name == "list") block = (Elements(ListShapes(task)) + kListLength * 64) * bytes;
    need(&sizes.in, block);
    need(&sizes.out, name == "alltoall" ? block : block * n);
    if (name == "all_gather") need(&sizes.staging, block * n);
    if (name == "list") need(&sizes.staging, block * (n + 1));
    if (name != "runs") continue;
    need(&sizes.loop_in, block);
    need(&sizes.loop_out, block * n);
  }
  return sizes;
}

void ForEachCase(const std::string& name, const CaseTask& task, Field* field,
                 const std::function<void(const Case&)>& measure) {
  for (const Named& named : kNamed) {
    if (name == named.name) named.cases(task, field, measure);
  }
}

}  // namespace axccl::perf
