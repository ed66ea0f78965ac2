#include "src/base/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace axccl {
namespace {

using Lookup = std::function<const char*(const char*)>;

const char* FirstOf(const Lookup& get, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = get(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

std::string TextOf(const Lookup& get, std::initializer_list<const char*> names) {
  const char* value = FirstOf(get, names);
  return value ? value : "";
}

Result<int> NumberOf(const Lookup& get, std::initializer_list<const char*> names, int fallback) {
  for (const char* name : names) {
    const char* value = get(name);
    if (value == nullptr || *value == '\0') continue;
    char* end = nullptr;
    long number = std::strtol(value, &end, 10);
    if (end != value && *end == '\0' && number >= 0 && number <= INT_MAX) return static_cast<int>(number);
    return MakeStatus(Code::kInvalidUsage, "the launcher's variable %s is '%s', not a number", name, value);
  }
  return fallback;
}

// The parent's id replaces the job if the launcher provides none: its processes on one machine share the parent.
std::string KeyOf(const Lookup& get, const char* launcher, std::initializer_list<const char*> names) {
  std::string key = launcher;
  bool any = false;
  for (const char* name : names) {
    const char* value = get(name);
    any |= value != nullptr;
    key += std::string("-") + (value ? value : "");
  }
  return any ? key : key + std::to_string(getppid());
}

// torchrun itself listens on MASTER_PORT; the next port is ours.
Result<std::string> Coordinator(const Lookup& get) {
  const char* address = get("MASTER_ADDR");
  if (address == nullptr || get("MASTER_PORT") == nullptr) return std::string();
  AXCCL_ASSIGN_OR_RETURN(int port, PortFrom(get, "MASTER_PORT"));
  return std::string(address) + ":" + std::to_string(port + 1);
}

struct Variables {
  const char* launcher;
  const char* present;  // the variable that identifies the launcher
  std::initializer_list<const char*> rank, size, local_size, key;
};

// The order matters: srun with a PMI plugin sets PMI_* too, and SLURM_* alone are also set in a batch script that srun
// did not start, so the step's variable is required.
const Variables kLaunchers[] = {
    {"torchrun",
     "MASTER_PORT",
     {"RANK"},
     {"WORLD_SIZE"},
     {"LOCAL_WORLD_SIZE"},
     {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    {"srun",
     "SLURM_STEP_ID",
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"PMI", "PMI_SIZE", {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALNRANKS"}, {"PMI_JOBID", "PMIX_NAMESPACE"}},
    {"MVAPICH",
     "MV2_COMM_WORLD_SIZE",
     {"MV2_COMM_WORLD_RANK"},
     {"MV2_COMM_WORLD_SIZE"},
     {"MV2_COMM_WORLD_LOCAL_SIZE"},
     {}},
};

// The first of "n[07-09,12]-ib,m3": n07-ib.
std::string FirstOfHosts(const std::string& list) {
  std::string first;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      first += list[at];
      continue;
    }
    first += list.substr(at + 1, list.find_first_of("-,]", at) - at - 1);
    at = std::min(list.find(']', at), list.size() - 1);
  }
  return first;
}

// The number at `index` of "2(x3),1": 2, 2, 2, 1. 0 if there is none.
int NumberAt(const std::string& list, int index) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    const size_t times = item.find("(x");
    index -= times == std::string::npos ? 1 : std::atoi(item.c_str() + times + 2);
    if (index < 0) return std::atoi(item.c_str());
    at = end + 1;
  }
  return 0;
}

// srun provides the number of processes of every machine, and the machines' names. It opens no port, so one is derived
// from what only this job step has.
void FindSlurmMachines(const Lookup& get, Launched* found) {
  const std::string machines = TextOf(get, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  if (machines == "1") found->local_size = found->size;
  if (machines.empty() || machines == "1") return;
  const int machine = std::atoi(TextOf(get, {"SLURM_NODEID"}).c_str());
  found->local_size = NumberAt(TextOf(get, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}), machine);
  const std::string first = FirstOfHosts(TextOf(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
  const long job = std::atol(TextOf(get, {"SLURM_JOB_ID"}).c_str()),
             step = std::atol(TextOf(get, {"SLURM_STEP_ID"}).c_str());
  if (!first.empty() && found->coordinator.empty())
    found->coordinator = first + ":" + std::to_string(20000 + (job * 64 + step) % 10000);
}

bool HasPlace(const Lookup& get, const Variables& v) {
  return FirstOf(get, v.rank) != nullptr && FirstOf(get, v.size) != nullptr;
}

Result<Launched> PlaceOf(const Lookup& get, const Variables& v) {
  Launched found;
  found.launcher = v.launcher;
  AXCCL_ASSIGN_OR_RETURN(found.rank, NumberOf(get, v.rank, 0));
  AXCCL_ASSIGN_OR_RETURN(found.size, NumberOf(get, v.size, 1));
  return found;
}

Status CheckPlace(const Launched& found) {
  if (found.rank < found.size && found.local_size <= found.size) return Status();
  return MakeStatus(Code::kInvalidUsage, "%s's variables say rank %d of %d (%d on this machine)",
                    found.launcher.c_str(), found.rank, found.size, found.local_size);
}

// Variables of which a launcher sets both.
constexpr std::pair<const char*, const char*> kPartners[] = {{"RANK", "WORLD_SIZE"},
                                                             {"MASTER_ADDR", "MASTER_PORT"},
                                                             {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                             {"PMI_RANK", "PMI_SIZE"}};

Status Incomplete(const char* set, const char* missing) {
  return MakeStatus(Code::kInvalidUsage,
                    "%s is set without %s; start the processes by torchrun, mpirun or srun, set both, or unset %s", set,
                    missing, set);
}

}  // namespace

Status CheckLauncherComplete(const std::function<const char*(const char*)>& get) {
  const auto is_set = [&](const char* name) {
    const char* const value = get(name);
    return value != nullptr && *value != '\0';
  };
  for (const auto& [one, other] : kPartners) {
    if (is_set(one) && !is_set(other)) return Incomplete(one, other);
    if (is_set(other) && !is_set(one)) return Incomplete(other, one);
  }
  if (is_set("RANK") && !is_set("MASTER_PORT")) return Incomplete("RANK", "MASTER_ADDR and MASTER_PORT");
  // Batch scripts have these, too. Only a step has a number.
  if (is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID") && !is_set("SLURM_NTASKS") && !is_set("SLURM_STEP_NUM_TASKS"))
    return Incomplete("SLURM_PROCID", "SLURM_NTASKS");
  return Status();
}

Result<std::optional<Launched>> DetectPlace(const std::function<const char*(const char*)>& get) {
  AXCCL_ASSIGN_OR_RETURN(std::optional<Launched> found, DetectLauncher(get));
  for (const Variables& v : kLaunchers) {
    if (found.has_value()) break;
    if (!HasPlace(get, v)) continue;
    AXCCL_ASSIGN_OR_RETURN(found, PlaceOf(get, v));
    AXCCL_RETURN_IF_ERROR(CheckPlace(*found));
  }
  return found;
}

Result<int> PortFrom(const std::function<const char*(const char*)>& get, const char* name) {
  AXCCL_ASSIGN_OR_RETURN(const int port, NumberOf(get, {name}, 0));
  if (port < 1 || port > 65534) return MakeStatus(Code::kInvalidUsage, "%s %d is not in 1..65534", name, port);
  return port;
}

Result<std::optional<Launched>> DetectLauncher(const std::function<const char*(const char*)>& get) {
  for (const Variables& v : kLaunchers) {
    if (get(v.present) == nullptr || !HasPlace(get, v)) continue;
    AXCCL_ASSIGN_OR_RETURN(Launched found, PlaceOf(get, v));
    AXCCL_ASSIGN_OR_RETURN(found.local_size, NumberOf(get, v.local_size, 0));
    AXCCL_ASSIGN_OR_RETURN(found.coordinator, Coordinator(get));
    if (found.launcher == "srun") FindSlurmMachines(get, &found);
    AXCCL_RETURN_IF_ERROR(CheckPlace(found));
    found.key = KeyOf(get, v.launcher, v.key);
    return std::optional<Launched>(found);
  }
  return std::optional<Launched>();
}

}  // namespace axccl
