// What a machine is made of, as far as it matters where ranks, their memory and their messages go.
//
// A plain value. A machine has packages (sockets); a package has groups of cores that share a third-level cache and a
// NUMA node; network interfaces (NICs) and GPUs hang off a node. Nodes are listed beside the packages, since one may
// span several of these, and some have memory only. Processors are what the operating system schedules threads on, by
// its numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/processors.h"
#include "src/base/status.h"

namespace axccl::topo {

inline constexpr int kNowhere = -1;               // node of what is as near to every node, or where that is not known
inline constexpr int kMaxNumber = kMaxProcessor;  // of a node, too

struct Core {
  uint64_t l1 = 0, l2 = 0;  // bytes of the data caches that serve it; 0: not known
  std::vector<int> processors;

  bool operator==(const Core&) const = default;
};

struct Group {
  int node = 0;
  uint64_t l3 = 0;  // bytes; 0: there is none, or not known
  std::vector<Core> cores;

  bool operator==(const Group&) const = default;
};

struct Package {
  std::vector<Group> groups;

  bool operator==(const Package&) const = default;
};

struct Node {
  int id = 0;  // the operating system's
  uint64_t bytes = 0;

  bool operator==(const Node&) const = default;
};

// `kVirtual`: no hardware of its own (bridges, veth).
enum class NicKind : uint8_t { kEthernet, kInfiniband, kVirtual, kOther };
// "ethernet".
const char* Name(NicKind kind);
// False when `name` is none.
bool FindNicKind(std::string_view name, NicKind* kind);

struct Nic {
  std::string name;  // as the operating system's: "eth0", "mlx5_0"
  NicKind kind = NicKind::kOther;
  uint64_t megabits = 0;  // per second; 0: not known
  int node = kNowhere;

  bool operator==(const Nic&) const = default;
};

struct Gpu {
  std::string address;  // on PCI: "0000:65:00.0"
  int node = kNowhere;

  bool operator==(const Gpu&) const = default;
};

struct Machine {
  std::string processor;  // model, one line of printable ASCII; may be empty
  std::vector<Node> nodes;
  std::vector<Package> packages;
  std::vector<Nic> nics;
  std::vector<Gpu> gpus;

  bool operator==(const Machine&) const = default;

  // The index of the first package with cores of the node, kNowhere where it has none.
  int PackageOf(int node) const;
  // Of all cores, ascending.
  std::vector<int> Processors() const;
};

// kInvalidArgument unless: there are nodes (ascending, none twice) and packages, no part is empty, every node that is
// mentioned is listed, no processor, NIC or GPU is there twice, and names are fit for the text form (text.h).
Status Check(const Machine& machine);

// "0-3,8": ascending numbers, as Linux writes sets of processors.
std::string RangeText(const std::vector<int>& numbers);
// The numbers of such a text; empty where it is none.
std::vector<int> ParseRanges(std::string_view text);

}  // namespace axccl::topo
