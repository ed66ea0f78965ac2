#include "src/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <utility>

#include "src/algo/algo.h"

namespace axccl::sim {

using plan::Contract;
using plan::Kind;
using plan::Placement;
using plan::Schedule;

namespace {

constexpr double kMostHeld = 8e6;    // operations of a schedule, of about 200 bytes each
constexpr double kMostChunks = 1e6;  // of all ranks, if each exchanges blocks with each
constexpr double kMostRun = 1e10;    // operations in all turns
constexpr size_t kMostCompared = 2'000'000;

Status Refuse(const Request& q, Code code, const std::string& why) {
  return MakeStatus(code, "Simulate(%s %s of %d ranks): %s", q.algorithm.c_str(), plan::KindName(q.contract.kind),
                    q.contract.ranks, why.c_str());
}

std::string Rough(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

// Whether the bytes of nccl-tests are those of a block for each rank.
bool HasBlockForEach(Kind kind) {
  return kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kAllToAll || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

// Converts the bytes of nccl-tests to a number of blocks.
double BlocksOf(const Contract& c) { return HasBlockForEach(c.kind) ? c.ranks : 1; }

// Bytes that count for the bus bandwidth, per byte of the size.
double BusFactor(const Contract& c) {
  const double others = (c.ranks - 1.0) / c.ranks;
  if (c.kind == Kind::kBarrier) return 0;
  if (c.kind == Kind::kAllReduce) return 2 * others;
  return HasBlockForEach(c.kind) ? others : 1;
}

size_t CountOps(const Schedule& s, int rank) {
  size_t count = 0;
  for (const plan::Lane& lane : s.program[static_cast<size_t>(rank)]) count += lane.ops.size();
  return count;
}

bool HasAll(const Schedule& s) {
  for (int r = 0; r < s.contract.ranks; ++r) {
    if (CountOps(s, r) == 0) return false;
  }
  return true;
}

std::string NameOf(size_t resource) {
  static constexpr const char* kNames[kNumResources] = {"memory", "link out", "link in", "NIC out", "NIC in"};
  return std::string(kNames[resource % kNumResources]) + " of rank " + std::to_string(resource / kNumResources);
}

Result<Report> Run(const Program& program, const Schedule& s, const Request& q) {
  // With slices, every lane names parts of whole blocks.
  const double span = static_cast<double>(q.bytes) / BlocksOf(q.contract) / (s.slices != 0 ? 1 : s.lanes);
  const double turns = q.tile_bytes == 0 || plan::MovesAllInOneTurn(s)
                           ? 1
                           : std::max(1.0, std::ceil(span / static_cast<double>(q.tile_bytes)));
  const double operations = turns * static_cast<double>(program.steps.size());
  if (operations > kMostRun)
    return Refuse(q, Code::kInvalidUsage,
                  Rough(operations) + " operations in " + Rough(turns) +
                      " turns are more than can be simulated; take a larger tile");
  Report report;
  report.turns = static_cast<uint64_t>(turns);
  report.ranks = static_cast<int>(program.ranks);
  report.lanes = static_cast<int>(program.lanes);
  AXCCL_ASSIGN_OR_RETURN(Outcome outcome, Execute(program, q.fabric, span / turns / s.parts, report.turns, q.caller));
  report.seconds = outcome.seconds;
  const double bus_bytes = static_cast<double>(q.bytes) * BusFactor(q.contract);
  if (outcome.seconds > 0) report.bus_bytes_per_second = bus_bytes / outcome.seconds;
  report.limit_bytes_per_second = LinkLimit(q.contract, q.placement, q.fabric);
  const auto busiest = std::max_element(outcome.busy.begin(), outcome.busy.end());
  report.busiest = NameOf(static_cast<size_t>(busiest - outcome.busy.begin()));
  if (outcome.seconds > 0) report.busiest_share = *busiest / outcome.seconds;
  report.sent = std::move(outcome.sent);
  report.received = std::move(outcome.received);
  report.operations = outcome.operations;
  report.messages = outcome.messages;
  return report;
}

Status CheckRequest(const Request& q) {
  AXCCL_RETURN_IF_ERROR(Check(q.fabric));
  if (!q.placement.is_flat() && q.placement.ranks() != q.contract.ranks)
    return Refuse(q, Code::kInvalidArgument,
                  "machines of " + std::to_string(q.placement.ranks()) + " ranks; must be of all");
  if (q.slices == 0) return Status();
  if (q.placement.machines() > 1)
    return Refuse(q, Code::kInvalidUsage, "a plan with slices is of one machine; its ranks share memory");
  const double chunks = 1.0 * q.contract.ranks * q.contract.ranks * q.slices;
  if (chunks > kMostChunks)
    return Refuse(q, Code::kInvalidUsage,
                  Rough(chunks) + " chunks of all ranks are more than can be held; take fewer slices");
  return Status();
}

// Machine 0 and others: all, or as many as the bound on operations allows, evenly spread and including the last.
std::vector<int> MachinesToCompare(int machines, size_t operations_each) {
  const size_t most = std::max(size_t{4}, kMostCompared / std::max(size_t{1}, operations_each));
  const int count = static_cast<int>(std::min(most, static_cast<size_t>(machines - 1)));
  std::set<int> some = {1};
  for (int i = 1; i <= count; ++i) some.insert(static_cast<int>(int64_t{machines - 1} * i / count));
  return {some.begin(), some.end()};
}

Result<Schedule> Generate(const Request& q, const std::vector<int>& only) {
  return algo::Generate(q.contract, q.algorithm, q.lanes, q.placement, only);
}

// The program of machine 0, if all machines do the same; `schedule` has the programs of at least that machine.
Result<Program> StandsForAll(const Request& q, const Schedule& schedule) {
  AXCCL_ASSIGN_OR_RETURN(Program first, CompileOne(schedule, q.placement, 0, q.in_place));
  const bool has_all = HasAll(schedule);
  for (const int machine : MachinesToCompare(q.placement.machines(), first.steps.size())) {
    Schedule there;
    if (!has_all) {
      AXCCL_ASSIGN_OR_RETURN(there, Generate(q, q.placement.RanksOf(machine)));
    }
    AXCCL_ASSIGN_OR_RETURN(const Program other,
                           CompileOne(has_all ? schedule : there, q.placement, machine, q.in_place));
    if (other != first)
      return Refuse(q, Code::kInvalidUsage, "machine " + std::to_string(machine) + " does not do what machine 0 does");
  }
  return first;
}

}  // namespace

double LinkLimit(const Contract& c, const Placement& placement, const Fabric& fabric) {
  const double n = c.ranks, h = placement.machines(), factor = BusFactor(c);
  double limit = std::numeric_limits<double>::infinity();
  // For each byte of the size: how much has to cross, and how many NICs can carry it at the same time.
  const auto cross = [&](double bytes, double nics) {
    if (bytes > 0) limit = std::min(limit, factor / bytes * nics * fabric.nic_bytes_per_second);
  };
  for (int m = 0; m < placement.machines() && h > 1; ++m) {
    const double here = static_cast<double>(placement.RanksOf(m).size());
    if (c.kind == Kind::kAllReduce) {
      cross(2 * (h - 1), n);  // over all machines
    } else if (c.kind == Kind::kAllToAll) {
      cross(here * (n - here) / n, here);
    } else if (c.kind == Kind::kGather || c.kind == Kind::kScatter) {
      cross((m == placement.MachineOf(c.root) ? n - here : here) / n, here);
    } else {
      cross(HasBlockForEach(c.kind) ? (n - here) / n : 1, here);
    }
  }
  const double link = placement.Most(c.ranks) > 1 ? fabric.link_bytes_per_second : 0;
  return c.ranks > 1 ? std::min(limit, link + (h > 1 ? fabric.nic_bytes_per_second : 0)) : 0;
}

Result<Report> SimulateAll(const Schedule& schedule, const Request& q) {
  AXCCL_RETURN_IF_ERROR(CheckRequest(q));
  AXCCL_ASSIGN_OR_RETURN(const Program program, CompileAll(schedule, q.placement, q.in_place));
  return Run(program, schedule, q);
}

Result<Report> Simulate(const Request& q) {
  AXCCL_RETURN_IF_ERROR(CheckRequest(q));
  if (q.slices != 0) {
    AXCCL_ASSIGN_OR_RETURN(const Schedule chunked,
                           algo::GenerateChunked(q.contract, q.algorithm, {q.slices, q.produced, q.order}));
    return SimulateAll(chunked, q);
  }
  const bool alike = AreAlike(q.placement) && !plan::HasRoot(q.contract.kind);
  AXCCL_ASSIGN_OR_RETURN(Schedule schedule, Generate(q, alike ? q.placement.RanksOf(0) : std::vector<int>{0}));
  std::string differ = "there is no other machine like the first";
  if (alike) {
    const Result<Program> one = StandsForAll(q, schedule);
    if (one.ok()) return Run(one.value(), schedule, q);
    differ = one.status().message();
  }
  if (HasAll(schedule)) return SimulateAll(schedule, q);
  const double operations = static_cast<double>(CountOps(schedule, 0)) * q.contract.ranks;
  if (operations > kMostHeld)
    return Refuse(q, Code::kInvalidUsage,
                  Rough(operations) +
                      " operations are more than can be held, and "
                      "no machine stands for all (that takes a kind without root, and as many ranks on each, in "
                      "ascending order): " +
                      differ);
  AXCCL_ASSIGN_OR_RETURN(schedule, Generate(q, {}));
  return SimulateAll(schedule, q);
}

}  // namespace axccl::sim
