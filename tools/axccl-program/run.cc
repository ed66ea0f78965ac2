#include "tools/axccl-program/run.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "tools/axccl-program/agreed_run.h"
#include "tools/axccl-program/rank_run.h"

namespace axccl::tools {

using program::Observer;
using program::Program;
using program::SimulatedEvent;
using program::Tensors;

namespace {

using Operations = std::unordered_map<program::Id, const program::Operation*>;

// Those of regions, too.
void AddOperations(const program::Function& function, Operations* operations) {
  for (const program::Operation& operation : function.operations) {
    (*operations)[operation.id] = &operation;
    for (const program::Function& region : operation.regions) AddOperations(region, operations);
  }
}

// `begin`: of the first event of all ranks.
void AddEvents(const program::Part& part, const std::vector<RankResult>& results, uint64_t begin, RunReport* report) {
  Operations operations;
  AddOperations(part.function, &operations);
  for (const int64_t rank : part.ranks) {
    for (const RankEvent& event : results[static_cast<size_t>(rank)].events) {
      const auto seconds = [&](uint64_t at) { return static_cast<double>(at - begin) * 1e-9; };
      report->events.push_back({operations.at(event.operation), static_cast<int>(rank), event.communication,
                                seconds(event.begin), seconds(event.end), event.live_bytes});
    }
  }
}

Result<std::vector<Tensors>> RunOn(const Start& start, const Program& program, const std::vector<Tensors>& inputs,
                                   const Observer& observer, RunReport* report, const RunOptions& options) {
  const program::Liveness liveness(program);
  const WholeRun whole{program, liveness, observer, options, report != nullptr && report->keeps_events};
  const MakeTask make = [&](int rank, ncclComm_t comm, axcclStream_t stream) -> std::unique_ptr<RankTask> {
    auto run = std::make_unique<RankRun>(whole, inputs[static_cast<size_t>(rank)], rank, comm, stream);
    if (options.comparison == nullptr) return run;
    return std::make_unique<AgreedRun>(std::move(run), options.comparison, program.ranks, rank, comm, stream);
  };
  AXCCL_ASSIGN_OR_RETURN(std::vector<RankResult> results, start(program.ranks, make));
  std::vector<Tensors> outputs;
  for (RankResult& result : results) outputs.push_back(std::move(result.outputs));
  if (report == nullptr) return outputs;
  uint64_t begin = ~uint64_t{0};
  for (const RankResult& result : results) {
    report->peaks.push_back(result.peak_bytes);
    if (report->verdict.empty()) report->verdict = result.verdict;  // of a rank that is here
    report->steps.resize(std::max(report->steps.size(), result.seconds.size()));
    for (size_t i = 0; i < result.seconds.size(); ++i) report->steps[i] = std::max(report->steps[i], result.seconds[i]);
    for (const RankEvent& event : result.events) begin = std::min(begin, event.begin);
  }
  for (const program::Part& part : program.parts) AddEvents(part, results, begin, report);
  return outputs;
}

}  // namespace

Result<std::vector<Tensors>> RunOnThreads(const Program& program, const std::vector<Tensors>& inputs,
                                          const Observer& observer, RunReport* report, const RunOptions& options) {
  return RunOn(RunRanksOnThreads, program, inputs, observer, report, options);
}

Result<std::vector<Tensors>> RunBy(const Start& start, const Program& program, const std::vector<Tensors>& inputs,
                                   RunReport* report, const RunOptions& options) {
  const Observer observer = options.comparison == nullptr ? Observer() : options.comparison->watch.observer();
  return RunOn(start, program, inputs, observer, report, options);
}

}  // namespace axccl::tools
