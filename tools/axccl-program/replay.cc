#include "tools/axccl-program/replay.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "src/program/facts.h"
#include "src/program/kinds.h"
#include "src/program/liveness.h"
#include "src/program/simulate/steps.h"
#include "src/program/text.h"
#include "tools/axccl-program/gpu_replay.h"
#include "tools/axccl-program/gpus.h"
#include "tools/axccl-program/rank_calls.h"
#include "tools/axccl-program/ranks.h"

namespace axccl::tools {

using program::Ints;
using program::Operation;
using program::OpKind;
using program::Part;
using program::Program;
using program::Tensor;
using program::TensorType;

namespace {

constexpr size_t kMostSteps = size_t{1} << 23, kMostCalls = size_t{1} << 22;
constexpr size_t kMostGroupText = 60;

// Steps are written out without their times.
class Timeless : public program::Model {
 public:
  double LocalSeconds(const Operation&, const std::vector<const TensorType*>&) const override { return 0; }
  Result<double> Seconds(const program::Transfer&) override { return 0.0; }
};

// Of a part; each rank leaves out what it does not take part in.
struct PartCalls {
  std::vector<CallSite> sites;  // in the order of their first calls
  std::vector<size_t> calls;    // sites
};

Result<PartCalls> CallsOf(const Part& part, const program::Liveness& liveness, const program::SimulateOptions& loops) {
  AXCCL_ASSIGN_OR_RETURN(const program::PartSteps steps,
                         program::WriteOut(part, liveness, Timeless(), loops, kMostSteps));
  const auto types = program::TypesOf(part.function);
  std::unordered_map<const Operation*, size_t> known;
  PartCalls calls;
  for (const program::SimulatedStep& step : steps.steps) {
    if (!program::IsCommunication(step.operation->kind)) continue;
    const auto [site, is_first] = known.emplace(step.operation, calls.sites.size());
    if (is_first) {
      calls.sites.push_back({step.operation, {}});
      for (const program::Id id : step.operation->operands) calls.sites.back().operands.push_back(*types.Find(id));
    }
    calls.calls.push_back(site->second);
  }
  return calls;
}

// `calls`: of the rank's part; null if it has none.
std::vector<const CallSite*> CallsOfRank(const PartCalls* calls, int rank) {
  std::vector<const CallSite*> sites;
  if (calls == nullptr) return sites;
  for (const size_t site : calls->calls) {
    if (TakesPart(*calls->sites[site].operation, rank)) sites.push_back(&calls->sites[site]);
  }
  return sites;
}

// A rank's rounds on the host.
class RankReplay : public RankTask {
 public:
  // `sites`: its calls of a round.
  RankReplay(int ranks, std::vector<const CallSite*> sites, int rounds, int rank, ncclComm_t comm, axcclStream_t stream)
      : rounds_(rounds), rank_(rank), sites_(std::move(sites)), calls_(ranks, rank, comm, stream) {}

  Result<RankResult> Run() override {
    const std::string call = "rank " + std::to_string(rank_);
    return CatchAll(call.c_str(), [this]() -> Result<RankResult> {
      for (int round = 0; round <= rounds_; ++round) {
        AXCCL_RETURN_IF_ERROR(calls_.Meet());
        events_.clear();
        for (const CallSite* site : sites_) AXCCL_RETURN_IF_ERROR(Call(*site));
        AXCCL_RETURN_IF_ERROR(calls_.Finish());
        if (round > 0) result_.events.insert(result_.events.end(), events_.begin(), events_.end());
      }
      return result_;
    });
  }

 private:
  using Shared = RankCalls::Shared;

  const Shared& OperandOf(const TensorType& type) {
    Shared& operand = operands_[{type.data_type, type.dims}];
    if (operand == nullptr) operand = std::make_shared<const Tensor>(Tensor::Zeros(type));
    return operand;
  }
  std::vector<Tensor>& ResultsOf(const Operation& operation) {
    std::vector<std::pair<DataType, Ints>> types;
    for (const program::Value& value : operation.results) types.emplace_back(value.type.data_type, value.type.dims);
    std::vector<Tensor>& results = results_[std::move(types)];
    if (results.empty()) {
      for (const program::Value& value : operation.results) results.push_back(Tensor::Zeros(value.type));
    }
    return results;
  }

  Status Call(const CallSite& site) {
    const Operation& operation = *site.operation;
    std::vector<Shared> operands;
    for (const TensorType& type : site.operands) operands.push_back(OperandOf(type));
    std::vector<Tensor>& results = ResultsOf(operation);
    RankEvent& event = events_.emplace_back();
    event.operation = operation.id;
    event.communication = true;
    event.begin = MonotonicNanoseconds();
    if (operation.kind == OpKind::kSend) return calls_.Send(operation, operands[0], &event);
    if (operation.kind == OpKind::kRecv) {
      AXCCL_ASSIGN_OR_RETURN(const Shared own, calls_.Receive(operation, results.data()));
      (void)own;
    } else {
      AXCCL_RETURN_IF_ERROR(calls_.Collect(operation, operands, &results));
    }
    event.end = MonotonicNanoseconds();
    return Status();
  }

  const int rounds_, rank_;
  const std::vector<const CallSite*> sites_;
  std::map<std::pair<DataType, Ints>, Shared> operands_;
  std::map<std::vector<std::pair<DataType, Ints>>, std::vector<Tensor>> results_;
  std::deque<RankEvent> events_;  // of the round
  RankResult result_;
  RankCalls calls_;
};

double MedianOf(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle))) / 2;
}

// "[[0,1],[2,3]]"; what is too long ends in "...".
std::string GroupsText(const Operation& operation) {
  const bool has_pairs = program::IsMessage(operation.kind) || operation.kind == OpKind::kCollectivePermute;
  std::string text = has_pairs ? "pairs=[" : "groups=[";
  const auto& groups =
      program::Get<program::Groups>(operation, has_pairs ? program::Attr::kPairs : program::Attr::kGroups);
  for (const Ints& group : groups) {
    text += text.back() == '[' ? "[" : ",[";
    for (const int64_t rank : group) {
      if (text.size() > kMostGroupText) return text + "...";
      text += (text.back() == '[' ? "" : ",") + std::to_string(rank);
    }
    text += "]";
  }
  return text + "]";
}

std::string SiteText(const CallSite& site) {
  const Operation& operation = *site.operation;
  std::string text = "%" + std::to_string(operation.id) + " " + std::string(program::InfoOf(operation.kind).name);
  for (const TensorType& type : site.operands) text += " " + program::Print(type);
  if (!operation.results.empty()) text += " ->";
  for (const program::Value& result : operation.results) text += " " + program::Print(result.type);
  return text + " " + GroupsText(operation);
}

using SiteTimes = std::map<int64_t, std::vector<double>>;  // [rank]: of all its calls, in microseconds

std::string PartText(const Part& part, const PartCalls& calls, const std::vector<RankResult>& results, int rounds) {
  std::unordered_map<program::Id, SiteTimes> times;
  for (const int64_t rank : part.ranks) {
    for (const RankEvent& event : results[static_cast<size_t>(rank)].events)
      times[event.operation][rank].push_back(static_cast<double>(event.end - event.begin) * 1e-3);
  }
  std::string text = "part " + part.function.name + "\n";
  for (const CallSite& site : calls.sites) {
    const auto found = times.find(site.operation->id);
    if (found == times.end()) continue;  // of none of its ranks
    const size_t in_round = found->second.begin()->second.size() / static_cast<size_t>(rounds);
    std::vector<double> medians;
    std::pair<double, int64_t> slowest{-1, 0};
    for (const auto& [rank, of_rank] : found->second) {
      medians.push_back(MedianOf(of_rank));
      slowest = std::max(slowest, {medians.back(), rank});
    }
    text += "  " + SiteText(site) +
            Format(": %zu %s, median %.4g us, slowest rank %lld %.4g us\n", in_round, in_round == 1 ? "call" : "calls",
                   MedianOf(medians), static_cast<long long>(slowest.second), slowest.first);
  }
  return text;
}

// Of the rounds, in microseconds.
double MedianOfRounds(const std::vector<RankResult>& results, int rounds) {
  std::vector<double> times;
  for (size_t round = 0; round < static_cast<size_t>(rounds); ++round) {
    uint64_t begin = ~uint64_t{0}, end = 0;
    for (const RankResult& result : results) {
      const size_t calls = result.events.size() / static_cast<size_t>(rounds);
      for (size_t i = round * calls; i < (round + 1) * calls; ++i) {
        begin = std::min(begin, result.events[i].begin);
        end = std::max(end, result.events[i].end);
      }
    }
    times.push_back(end == 0 ? 0 : static_cast<double>(end - begin) * 1e-3);
  }
  return MedianOf(times);
}

}  // namespace

Result<std::string> Replay(const Program& program, const ReplayOptions& options) {
  const program::Liveness liveness(program);
  std::vector<PartCalls> parts;
  std::vector<const PartCalls*> of_ranks(static_cast<size_t>(program.ranks));
  for (const Part& part : program.parts) {
    AXCCL_ASSIGN_OR_RETURN(PartCalls calls, CallsOf(part, liveness, options.loops));
    if (calls.calls.size() > kMostCalls / static_cast<size_t>(options.rounds))
      return MakeStatus(Code::kInvalidUsage,
                        "part %s: a rank has %zu calls in each of %d rounds, and %zu can be kept; "
                        "ask for fewer rounds (--repeat)",
                        part.function.name.c_str(), calls.calls.size(), options.rounds, kMostCalls);
    parts.push_back(std::move(calls));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const int64_t rank : program.parts[i].ranks) of_ranks[static_cast<size_t>(rank)] = &parts[i];
  }
  const MakeTask make = [&](int rank, ncclComm_t comm, axcclStream_t stream) -> std::unique_ptr<RankTask> {
    std::vector<const CallSite*> sites = CallsOfRank(of_ranks[static_cast<size_t>(rank)], rank);
    if (GpusWanted()) return std::make_unique<GpuReplay>(program.ranks, std::move(sites), options.rounds, rank, comm);
    return std::make_unique<RankReplay>(program.ranks, std::move(sites), options.rounds, rank, comm, stream);
  };
  AXCCL_ASSIGN_OR_RETURN(const std::vector<RankResult> results, options.start(program.ranks, make));
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) text += PartText(program.parts[i], parts[i], results, options.rounds);
  return text + Format("a round: %.4g us, the median of %d\n", MedianOfRounds(results, options.rounds), options.rounds);
}

}  // namespace axccl::tools
