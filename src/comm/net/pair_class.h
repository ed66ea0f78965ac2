// Groups pairs of machines that are alike, as far as can be known without sending anything: their network devices have
// the same names, speeds and MTUs, and both pairs are on one subnet, or both are not. Figures that are measured for one
// pair of a class count for all of it.
//
// Pairs consist of rank 0's machine and each other machine. All ranks find the same classes, because they hold the same
// descriptions, one of each rank. Stateless functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/boot/unique_id.h"

namespace axccl::comm {

// The network connection of a rank's machine. Plain data, printable text with a NUL at the end; sent to all ranks.
struct NetworkText {
  char devices[256];  // "eth0 10000 Mbit/s mtu 1500"; longer text is cut off
  char subnet[56];    // "10.77.0.0/24", "" if it is not known
  char address[56];   // "10.77.0.1"
};

// Describes this machine, and the devices through which ranks reach each other, the first at `address`. `networks`: the
// network of each device, if they form several rails, so that peers that share all of them differ from those that share
// some.
NetworkText DescribeNetwork(const std::vector<std::string>& devices, const boot::Address& address,
                            const std::vector<std::string>& networks = {});

struct PairClass {
  std::string name;  // "eth0 10000 Mbit/s mtu 1500 - eth0 10000 Mbit/s mtu 1500, subnet 10.77.0.0/24"
  int rank = 0;      // the first of the first machine of the class
};
// machine_of[rank]: as in plan::Placement. At most kMostClasses, in the order of ranks; the other pairs have no class
// of their own.
inline constexpr size_t kMostClasses = 4;
std::vector<PairClass> FindPairClasses(std::span<const int> machine_of, std::span<const NetworkText> networks);

}  // namespace axccl::comm
