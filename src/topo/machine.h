// The parts of a machine that matter for placing ranks, their memory and their messages.
//
// A plain value. A machine has packages (sockets); a package has groups of cores that share a third-level cache and a
// NUMA node; network interfaces (NICs) and GPUs belong to a node. Nodes are listed beside the packages, because a node
// may span several packages, and some nodes have only memory. Processors are what the operating system schedules
// threads on, by its numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/processors.h"
#include "src/base/status.h"

namespace axccl::topo {

// The node of a part that is equally near to every node, or whose node is not known.
inline constexpr int kNowhere = -1;
inline constexpr int kMaxNumber = kMaxProcessor;  // the limit for nodes, too

struct Core {
  uint64_t l1 = 0, l2 = 0;  // bytes of the data caches of the core; 0: not known
  std::vector<int> processors;

  bool operator==(const Core&) const = default;
};

struct Group {
  int node = 0;
  uint64_t l3 = 0;  // bytes; 0: there is none, or it is not known
  std::vector<Core> cores;

  bool operator==(const Group&) const = default;
};

struct Package {
  std::vector<Group> groups;

  bool operator==(const Package&) const = default;
};

struct Node {
  int id = 0;  // the operating system's number
  uint64_t bytes = 0;

  bool operator==(const Node&) const = default;
};

// `kVirtual`: no hardware of its own (bridges, veth).
enum class NicKind : uint8_t { kEthernet, kInfiniband, kVirtual, kOther };
// "ethernet".
const char* Name(NicKind kind);
// Returns false when `name` is unknown.
bool FindNicKind(std::string_view name, NicKind* kind);

struct Nic {
  std::string name;  // the operating system's name: "eth0", "mlx5_0"
  NicKind kind = NicKind::kOther;
  uint64_t megabits = 0;  // per second; 0: not known
  int node = kNowhere;

  bool operator==(const Nic&) const = default;
};

struct Gpu {
  std::string address;  // on PCI: "0000:65:00.0"
  int node = kNowhere;
  uint64_t megabits = 0;  // per second, of its link to PCI; 0: not known

  bool operator==(const Gpu&) const = default;
};

struct Machine {
  std::string processor;  // model, one line of printable ASCII; may be empty
  std::vector<Node> nodes;
  std::vector<Package> packages;
  std::vector<Nic> nics;
  std::vector<Gpu> gpus;

  bool operator==(const Machine&) const = default;

  // The index of the first package that has cores of the node, or kNowhere.
  int PackageOf(int node) const;
  // The processors of all cores, ascending.
  std::vector<int> Processors() const;
};

// Returns kInvalidArgument unless there are nodes (ascending, no duplicates) and packages, no part is empty, every node
// that is mentioned is listed, no processor, NIC or GPU occurs twice, and names fit the text form (text.h).
Status Check(const Machine& machine);

// Ascending numbers as Linux writes sets of processors: "0-3,8".
std::string RangeText(const std::vector<int>& numbers);
// Parses such a text; the result is empty if it does not parse.
std::vector<int> ParseRanges(std::string_view text);

}  // namespace axccl::topo
