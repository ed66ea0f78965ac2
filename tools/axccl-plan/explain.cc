#include "tools/axccl-plan/explain.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/base/format.h"
#include "src/base/json.h"
#include "src/base/param.h"
#include "src/base/processors.h"
#include "src/cost/machine.h"
#include "src/cost/network.h"
#include "src/exec/call/call.h"
#include "src/plan/schedule.h"
#include "src/tune/tune.h"

namespace axccl::tools {

using tune::Candidate;
using tune::Exclusion;

namespace {

double Micro(double seconds) { return seconds * 1e6; }
double Giga(double bytes_per_second) { return bytes_per_second / 1e9; }

constexpr int kMostGpuLanes = 64;  // exec::LaneBounds

int MaxLanes(const Options& o) {
  if (o.max_lanes > 0) return o.max_lanes;
  if (o.gpus > 0) return kMostGpuLanes;
  return o.placement.is_flat() ? 1 : tune::kNetworkLanes;
}

// Of the GPU with the most; 0 without GPUs.
int RanksOfGpu(const Options& o) { return o.gpus > 0 ? (o.contract.ranks + o.gpus - 1) / o.gpus : 0; }

// Cuts parts as nccl-tests does: into multiples of 16 bytes.
uint64_t BlockBytes(const Options& o) {
  constexpr uint64_t kMultiple = 16;
  const int root = o.contract.root;
  const int blocks = std::max(plan::InputBlocks(o.contract, root), plan::OutputBlocks(o.contract, root));
  if (blocks > 1) return o.bytes / static_cast<uint64_t>(blocks) / kMultiple * kMultiple;
  return blocks == 0 ? 0 : o.bytes / ElementSize(o.type) * ElementSize(o.type);
}

// The question is about sums.
bool InGroupOrder(const Options& o) {
  exec::Call sum;
  sum.kind = o.contract.kind;
  sum.type = o.type;
  return param::Get("AXCCL_ORDER") == "group" && sum.OrderMatters();
}

tune::Query QueryOf(const Options& o) {
  tune::Query query;
  query.contract = o.contract;
  query.block_bytes = BlockBytes(o);
  query.type = o.type;
  query.access = o.access.value_or(o.placement.is_flat() ? tune::Access::kMapped : tune::Access::kNone);
  query.group_order = InGroupOrder(o);
  query.short_runs = o.short_runs;
  query.split_rows = o.split_rows;
  query.placement = o.placement;
  query.sharers = RanksOfGpu(o);
  if (o.gpus > 0) query.flagged_bytes = tune::MostFlaggedBytes(o.contract, true, true);
  if (o.nvls) {
    query.multicast = tune::Multicast::kFolds;
    query.multicast_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_NVLS_BYTES")) / plan::kRotation;
  }
  return query;
}

struct Figures {
  cost::Machine machine;
  std::string source, network_source;
};

// The newest network that was measured from here is the likeliest.
Status SetNetworkFigures(const Options& o, Figures* f) {
  std::string file = o.network_file;
  if (file.empty()) {
    for (const std::string& kept : cost::NetworkFiles()) {
      if (file.empty() && cost::ReadNetwork(kept).ok()) file = kept;
    }
  }
  f->network_source = "fixed figures";
  if (file.empty() || file == "fixed") return Status();
  AXCCL_ASSIGN_OR_RETURN(const cost::KeptNetwork kept, cost::ReadNetwork(file));
  cost::SetNetwork(kept.network, &f->machine);
  f->network_source = (o.network_file.empty() ? "measured before, from " : "from ") + file + ", of " + kept.pair_class;
  return Status();
}

Result<Figures> MachineFigures(const Options& o) {
  Figures f;
  if (o.gpus > 0) {
    f.machine = cost::GpuMachine(cost::Gpu::kMultiprocessors, RanksOfGpu(o));
    f.source = Format("%d GPUs, fixed figures of an H100", o.gpus);
    return f;
  }
  if (!o.machine_file.empty()) {
    AXCCL_ASSIGN_OR_RETURN(f.machine, cost::ReadMachine(o.machine_file));
    f.source = "from " + o.machine_file;
  } else {
    const std::string file = cost::CacheFile();
    const bool known = !file.empty() && cost::ReadMachine(file).ok();
    f.machine = cost::MeasureOnce(file);
    f.source = known          ? "measured before, from " + file
               : file.empty() ? "measured now"
                              : "measured now, kept in " + file;
  }
  f.machine.cores = o.cores > 0 ? o.cores : static_cast<int>(AllowedProcessors().size());
  f.machine.ranks = o.contract.ranks;
  if (!o.placement.is_flat()) AXCCL_RETURN_IF_ERROR(SetNetworkFigures(o, &f));
  return f;
}

void PrintMachine(const Figures& f, std::string* out) {
  const cost::Machine& m = f.machine;
  out->append("machine: ").append(f.source).append("\n");
  *out += Format("  signal %.3f us, operation %.4f us, switch of ranks %.2f us, system call %.2f us\n",
                 Micro(m.signal_seconds), Micro(m.op_seconds), Micro(m.switch_seconds), Micro(m.call_seconds));
  *out += Format("  copies %.1f GB/s in the cache (%.1f MiB a rank), %.1f in memory, %.1f by system call; %d cores\n",
                 Giga(m.cached_bytes_per_second), static_cast<double>(m.RankCacheBytes()) / (1 << 20),
                 Giga(m.memory_bytes_per_second), Giga(m.call_bytes_per_second), m.cores);
  if (m.peer_bytes_per_second == 0) return;
  *out += Format("  copies between GPUs %.1f GB/s by a lane, %.0f by a GPU each way; its memory %.0f GB/s\n",
                 Giga(m.peer_bytes_per_second), Giga(m.gpu_link_bytes_per_second), Giga(m.gpu_memory_bytes_per_second));
}

void PrintNetwork(const Figures& f, std::string* out) {
  const cost::Machine& m = f.machine;
  out->append("network: ").append(f.network_source).append("\n");
  *out += Format("  message %.2f us on its way and %.2f us of each end, link of a machine %.3f GB/s each way\n",
                 Micro(m.network_signal_seconds), Micro(m.network_message_seconds), Giga(m.link_bytes_per_second));
}

const char* AccessText(tune::Access access) {
  switch (access) {
    case tune::Access::kNone:
      return "none (only scratch is shared)";
    case tune::Access::kCall:
      return "call (read by system call)";
    case tune::Access::kMapped:
      return "mapped (loads and stores)";
  }
  return "";
}

void PrintQuestion(const Options& o, const tune::Query& query, const std::string& filter, std::string* out) {
  *out += Format("%s of %llu bytes, %d ranks", plan::KindName(o.contract.kind),
                 static_cast<unsigned long long>(o.bytes), o.contract.ranks);
  if (!o.placement.is_flat()) *out += Format(" on %d machines", o.placement.machines());
  if (plan::HasRoot(o.contract.kind)) *out += Format(", root %d", o.contract.root);
  *out += Format(": blocks of %llu bytes\n", static_cast<unsigned long long>(query.block_bytes));
  *out += Format("access to the other ranks' buffers: %s\nat most %d lanes; scratch %lld bytes a rank\n",
                 AccessText(query.access), MaxLanes(o), static_cast<long long>(param::GetInt("AXCCL_SCRATCH_BYTES")));
  if (query.group_order) *out += "sums in group order\n";
  if (!filter.empty()) out->append("NCCL_ALGO=").append(filter).append("\n");
}

// The largest component.
std::string Bound(const tune::Split& split, double seconds) {
  const std::pair<double, const char*> parts[] = {
      {split.steps, "steps"}, {split.copies, "copies"}, {split.messages, "messages"}, {split.link, "link"}};
  const auto most = std::max_element(std::begin(parts), std::end(parts));
  if (seconds <= 0) return "-";
  return Format("%s %.0f%%", most->second, 100 * most->first / seconds);
}

std::string ExclusionText(Exclusion why) {
  switch (why) {
    case Exclusion::kNone:
      return "";
    case Exclusion::kFilter:
      return "excluded by NCCL_ALGO";
    case Exclusion::kNoGain:
      return "another one is as good or better for such a group";
    case Exclusion::kGroupOrder:
      return "does not fold in group order";
    case Exclusion::kAccess:
      return "needs access to the other ranks' buffers";
    case Exclusion::kPushes:
      return "writes into the other ranks' buffers";
    case Exclusion::kScratch:
      return "its slots do not fit into the scratch (AXCCL_SCRATCH_BYTES)";
    case Exclusion::kNoPlan:
      return "has no plan for such a group";
    case Exclusion::kTooLarge:
      return "its plan is too large to be verified";
  }
  return "";
}

// Sorts the candidates that may be chosen before the others, and each kind from fast to slow.
std::vector<size_t> InOrder(const std::vector<Candidate>& candidates) {
  std::vector<size_t> order;
  for (size_t i = 0; i < candidates.size(); ++i) order.push_back(i);
  const auto key = [&](size_t i) {
    const Candidate& c = candidates[i];
    return std::pair(c.excluded != Exclusion::kNone, c.choice.seconds);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

// A column of microseconds, 9 wide.
std::string Column(double seconds) { return Format(seconds < 0.09 ? " %8.2f" : " %8.0f", Micro(seconds)); }

// Fits 100 columns; why a candidate is excluded is in a line of its own below it.
void PrintTable(const tune::Chooser& chooser, const tune::Query& query, const tune::Decision& decision,
                std::string* out) {
  *out += Format("  %-19s %5s %8s %8s %8s %8s %8s %8s  %s\n", "algorithm (us)", "lanes", "tile B", "time", "steps",
                 "copies", "messages", "link", "mostly");
  for (const size_t i : InOrder(decision.candidates)) {
    const Candidate& c = decision.candidates[i];
    const std::string name(c.choice.algorithm);
    const char* const mark = static_cast<int>(i) == decision.chosen ? "*" : " ";
    *out += Format("%s %-19s %5d ", mark, name.c_str(), c.choice.lanes);
    if (std::isfinite(c.choice.seconds)) {
      const tune::Split split = chooser.SplitTime(query, c.choice);
      const std::string tile = c.choice.tile_bytes == 0 ? "-" : std::to_string(c.choice.tile_bytes);
      *out += Format("%8s", tile.c_str()) + Column(c.choice.seconds) + Column(split.steps) + Column(split.copies) +
              Column(split.messages) + Column(split.link) + "  " + Bound(split, c.choice.seconds) + "\n";
    } else {
      *out += Format("%8s %8s %8s %8s %8s %8s\n", "-", "-", "-", "-", "-", "-");
    }
    if (c.excluded != Exclusion::kNone) out->append("      ").append(ExclusionText(c.excluded)).append("\n");
  }
}

void PrintChoice(const tune::Decision& decision, std::string* out) {
  const std::string name(decision.choice.algorithm);
  if (decision.filter_ignored) *out += "NCCL_ALGO admits nothing here, so it is ignored.\n";
  *out += Format("chosen: %s, %d lanes", name.c_str(), decision.choice.lanes);
  if (decision.choice.tile_bytes > 0)
    *out += Format(", tiles of %llu bytes", static_cast<unsigned long long>(decision.choice.tile_bytes));
  switch (decision.reason) {
    case tune::Reason::kFastest:
      *out += ": the shortest predicted time\n";
      break;
    case tune::Reason::kShortRuns:
      *out += ": as direct, whose ranks would write to the same cache lines here\n";
      break;
    case tune::Reason::kSplitRows:
      *out += ": as direct, whose ranks would read parts of the same pages here\n";
      break;
    case tune::Reason::kNoScratch:
      *out += ": nothing fits, and this will say so when called\n";
      break;
  }
}

const char* ReasonName(tune::Reason reason) {
  switch (reason) {
    case tune::Reason::kFastest:
      return "fastest";
    case tune::Reason::kShortRuns:
      return "short runs";
    case tune::Reason::kSplitRows:
      return "split rows";
    case tune::Reason::kNoScratch:
      return "no scratch";
  }
  return "";
}

void WriteCandidate(const tune::Chooser& chooser, const tune::Query& query, const Candidate& c, JsonWriter* json) {
  json->BeginObject();
  json->Key("algorithm").String(std::string(c.choice.algorithm));
  json->Key("lanes").Int(c.choice.lanes);
  if (std::isfinite(c.choice.seconds)) {
    const tune::Split split = chooser.SplitTime(query, c.choice);
    json->Key("tile_bytes").Int(static_cast<int64_t>(c.choice.tile_bytes));
    json->Key("time_us").Double(Micro(c.choice.seconds));
    json->Key("steps_us").Double(Micro(split.steps));
    json->Key("copies_us").Double(Micro(split.copies));
    json->Key("messages_us").Double(Micro(split.messages));
    json->Key("link_us").Double(Micro(split.link));
  }
  if (c.excluded != Exclusion::kNone) json->Key("excluded").String(ExclusionText(c.excluded));
  json->EndObject();
}

std::string AsJson(const Options& o, const Figures& f, const tune::Chooser& chooser, const tune::Query& query,
                   const tune::Decision& decision) {
  return JsonText([&](JsonWriter* json) {
    json->BeginObject();
    json->Key("collective").String(plan::KindName(o.contract.kind));
    json->Key("bytes").Int(static_cast<int64_t>(o.bytes));
    json->Key("ranks").Int(o.contract.ranks);
    json->Key("machines").Int(o.placement.machines());
    json->Key("block_bytes").Int(static_cast<int64_t>(query.block_bytes));
    json->Key("max_lanes").Int(MaxLanes(o));
    json->Key("figures").String(f.source);
    if (!o.placement.is_flat()) json->Key("network_figures").String(f.network_source);
    json->Key("candidates").BeginList();
    for (const size_t i : InOrder(decision.candidates)) WriteCandidate(chooser, query, decision.candidates[i], json);
    json->EndList();
    json->Key("chosen").BeginObject();
    json->Key("algorithm").String(std::string(decision.choice.algorithm));
    json->Key("lanes").Int(decision.choice.lanes);
    json->Key("tile_bytes").Int(static_cast<int64_t>(decision.choice.tile_bytes));
    json->Key("reason").String(ReasonName(decision.reason));
    json->Key("filter_ignored").Bool(decision.filter_ignored);
    json->EndObject();
  });
}

}  // namespace

Result<std::string> Explain(const Options& o) {
  // Whether the operation exists at all.
  const std::string_view any = algo::Algorithms(o.contract.kind, o.placement).front();
  AXCCL_RETURN_IF_ERROR(algo::Generate(o.contract, any, 1, o.placement).status());
  AXCCL_ASSIGN_OR_RETURN(const Figures figures, MachineFigures(o));
  const std::string filter = param::Get("NCCL_ALGO");
  const auto scratch = static_cast<uint64_t>(param::GetInt("AXCCL_SCRATCH_BYTES")) / plan::kRotation;
  AXCCL_ASSIGN_OR_RETURN(const auto chooser, tune::Chooser::Create(figures.machine, filter, scratch, MaxLanes(o)));
  const tune::Query query = QueryOf(o);
  const tune::Decision decision = chooser->Explain(query);
  if (o.json) return AsJson(o, figures, *chooser, query, decision);
  std::string out;
  PrintQuestion(o, query, filter, &out);
  PrintMachine(figures, &out);
  if (!o.placement.is_flat()) PrintNetwork(figures, &out);
  PrintTable(*chooser, query, decision, &out);
  PrintChoice(decision, &out);
  return out;
}

}  // namespace axccl::tools
