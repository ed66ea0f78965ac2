#include "src/comm/net/placement.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "src/base/files.h"
#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/processors.h"
#include "src/topo/discover.h"
#include "src/topo/place.h"
#include "src/topo/text.h"

namespace axccl::comm {
namespace {

std::string Message(const Status& status) { return std::string(status.message()); }

// A file that cannot be used is not an error: images of systems set the variable, for all programs.
Result<topo::Machine> Look() {
  Result<topo::Found> found = topo::FileOrDiscover(topo::FileUse::kPlace);
  if (found.ok()) {
    if (!found->remark.empty()) AXCCL_WARN("NCCL_TOPO_FILE: %s", found->remark.c_str());
    return std::move(found->machine);
  }
  if (param::Get("NCCL_TOPO_FILE").empty()) return found.status();
  AXCCL_WARN("NCCL_TOPO_FILE is not used: %s", Message(found.status()).c_str());
  return topo::Discover();
}

// Returns null if nothing could be found out.
const topo::Machine* ThisMachine() {
  static const auto* const machine = new Result<topo::Machine>(Look());
  if (!machine->ok()) AXCCL_INFO(kGraph, "topology: %s", Message(machine->status()).c_str());
  return machine->ok() ? &machine->value() : nullptr;
}

bool Wanted() { return param::GetInt("AXCCL_PLACE") != 0; }

std::vector<int> Allowed() {
  return param::GetInt("NCCL_IGNORE_CPU_AFFINITY") != 0 ? std::vector<int>() : AllowedProcessors();
}

topo::PlaceOptions Options(const LocalRanks& local, const std::vector<int>& allowed) {
  topo::PlaceOptions options;
  options.ranks = local.count;
  options.allowed = allowed;
  return options;
}

int PlaceDevice(const LocalRanks& local) {
  const topo::Machine* const machine = ThisMachine();
  if (machine == nullptr || machine->nodes.size() < 2) return topo::kNowhere;
  const std::vector<topo::Seat> seats = topo::Place(*machine, Options(local, Allowed()));
  const topo::Seat& seat = seats[static_cast<size_t>(local.self)];
  const bool threads = AllowOwnThreads(seat.processors);
  AXCCL_INFO(kInit, "placement: rank %d of %d on this machine: processors %s, node %s%s", local.self, local.count,
             topo::RangeText(seat.processors).c_str(), topo::RangeText(seat.nodes).c_str(),
             threads ? "" : "; the system refuses them to the library's threads");
  return seat.nodes.size() == 1 ? seat.nodes[0] : topo::kNowhere;
}

}  // namespace

int PlaceRank(int device, const LocalRanks& local) {
  if (!Wanted() || (param::Get("NCCL_TOPO_FILE").empty() && !topo::HasSeveralNodes())) return topo::kNowhere;
  static auto* const mutex = new std::mutex;
  static auto* const nodes = new std::map<int, int>;  // by device
  std::lock_guard lock(*mutex);
  const auto [entry, first] = nodes->emplace(device, topo::kNowhere);
  if (first) entry->second = PlaceDevice(local);
  return entry->second;
}

std::vector<std::string> NearInterfaces(const topo::Machine& machine, const LocalRanks& local,
                                        const std::vector<int>& allowed, const std::vector<boot::Interface>& interfaces,
                                        std::vector<std::string> names) {
  using Sort = std::tuple<std::set<std::string>, topo::NicKind, uint64_t>;
  std::map<Sort, std::vector<const topo::Nic*>> alike;
  for (const boot::Interface& interface : interfaces) {
    const auto nic = std::find_if(machine.nics.begin(), machine.nics.end(),
                                  [&](const topo::Nic& known) { return known.name == interface.name; });
    const bool named = std::find(names.begin(), names.end(), interface.name) != names.end();
    const std::set<std::string> networks(interface.networks.begin(), interface.networks.end());
    if (networks.empty() || networks.contains("")) continue;  // it is unknown which peers it leads to
    if (!named || nic == machine.nics.end() || nic->node == topo::kNowhere) continue;
    alike[{networks, nic->kind, nic->megabits}].push_back(&*nic);
  }
  for (const auto& [sort, nics] : alike) {
    if (nics.size() < 2 || static_cast<size_t>(local.count) < nics.size()) continue;
    topo::PlaceOptions options = Options(local, allowed);
    for (const topo::Nic* nic : nics) options.nics.push_back(nic->name);
    const std::vector<topo::Seat> seats = topo::Place(machine, options);
    std::set<std::string> own;
    for (const int rank : local.of_process) {
      const topo::Seat& seat = seats[static_cast<size_t>(rank)];
      own.insert(machine.nics[static_cast<size_t>(seat.nic)].name);
    }
    std::erase_if(names, [&](const std::string& name) {
      return std::find(options.nics.begin(), options.nics.end(), name) != options.nics.end() && !own.contains(name);
    });
  }
  return names;
}

std::vector<std::string> PlaceInterfaces(const LocalRanks& local, const std::vector<boot::Interface>& interfaces,
                                         std::vector<std::string> names) {
  if (!Wanted() || names.size() < 2 || local.count < 2) return names;
  const topo::Machine* const machine = ThisMachine();
  if (machine == nullptr) return names;
  const std::vector<std::string> near = NearInterfaces(*machine, local, Allowed(), interfaces, names);
  if (near.size() < names.size())
    AXCCL_INFO(kNet, "placement: of %s this process uses %s, as near as any that leads to the same peers",
               Join(names, ",").c_str(), Join(near, ",").c_str());
  return near;
}

std::vector<uint64_t> SpeedsOf(const std::vector<std::string>& names) {
  const topo::Machine* const machine = param::Get("NCCL_TOPO_FILE").empty() ? nullptr : ThisMachine();
  const std::vector<topo::Nic> nics = machine != nullptr ? machine->nics : topo::KernelNics();
  std::vector<uint64_t> speeds;
  for (const std::string& name : names) {
    const auto known = std::find_if(nics.begin(), nics.end(), [&](const topo::Nic& nic) { return nic.name == name; });
    speeds.push_back(known != nics.end() ? known->megabits : 0);
  }
  return speeds;
}

void DumpTopology(int rank) {
  const std::string path = param::Get("NCCL_TOPO_DUMP_FILE");
  if (path.empty() || rank != param::GetInt("NCCL_TOPO_DUMP_FILE_RANK")) return;
  const topo::Machine* const machine = ThisMachine();
  const Status status = machine == nullptr ? MakeStatus(Code::kSystemError, "nothing is known of this machine")
                                           : WriteWholeFile(path, topo::Print(*machine));
  if (!status.ok()) AXCCL_WARN("NCCL_TOPO_DUMP_FILE: %s", Message(status).c_str());
}

}  // namespace axccl::comm
