// Which pairs of machines are alike, as far as can be known without sending anything: those whose network devices have
// the same names, speeds and MTUs, and that are on one subnet, or not. What is measured between one pair of a class is
// taken for all of it.
//
// Pairs are those of rank 0's machine and each other one. All ranks find the same classes, as they hold the same
// descriptions, one of each rank. Stateless functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/boot/unique_id.h"

namespace axccl::comm {

// How a rank's machine is connected. Plain data, printable text with a NUL at the end; told to all ranks.
struct NetworkText {
  char devices[256];  // "eth0 10000 Mbit/s mtu 1500"; what is too long is cut off
  char subnet[56];    // "10.77.0.0/24", "" where it is not known
  char address[56];   // "10.77.0.1"
};

// Of this machine, and the devices by which ranks are to reach each other, the first at `address`. `networks`: of each
// device, where they are of several, so that peers that share all of them are told from those that share some.
NetworkText DescribeNetwork(const std::vector<std::string>& devices, const boot::Address& address,
                            const std::vector<std::string>& networks = {});

struct PairClass {
  std::string name;  // "eth0 10000 Mbit/s mtu 1500 - eth0 10000 Mbit/s mtu 1500, subnet 10.77.0.0/24"
  int rank = 0;      // the first of the first machine of the class
};
// machine_of[rank]: as of plan::Placement. At most kMostClasses, in the order of ranks; what there is beyond that stays
// without a class of its own.
inline constexpr size_t kMostClasses = 4;
std::vector<PairClass> FindPairClasses(std::span<const int> machine_of, std::span<const NetworkText> networks);

}  // namespace axccl::comm
