// Chooses the addresses on which a process listens for its unique ids.
//
// It listens on the addresses (IPv4, then IPv6) of one interface, never of all: an id holds the address of its process,
// so processes on other networks have no reason to connect. Without NCCL_SOCKET_IFNAME, it is the first interface, in
// the system's order, that leads out of the machine: up, with carrier, not loopback, and not a bridge or virtual cable
// of containers or virtual machines (those have the same addresses on every machine). If there is none, it is loopback.
// With NCCL_SOCKET_IFNAME, it is the first that is up and matches: a comma-separated list of name prefixes; `=` in
// front requires exact names, `^` excludes those listed. NCCL_SOCKET_FAMILY=AF_INET or AF_INET6 keeps only one family.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/boot/unique_id.h"

namespace axccl::boot {

struct Interface {
  std::string name;
  bool loopback = false;
  std::vector<Address> addresses;  // ports 0
  bool up = true;
  bool carrier = true;
  std::vector<std::string> networks = {};  // of each address: "10.0.0.0/24"; "" if it is not known
};

// All interfaces, in the system's order, with their IPv4 and global IPv6 addresses.
Result<std::vector<Interface>> ListInterfaces();

// Selects at most two addresses by the rules above. If nothing matches: kInvalidUsage, with a list of the interfaces
// and why each was rejected.
Result<std::vector<Address>> SelectAddresses(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family);
// The network of one of an interface's addresses: "10.0.0.0/24"; empty if it is not known.
std::string NetworkOf(const Interface& interface, const Address& address);
// The names of all interfaces that data may use, not only the first, by the same rules.
Result<std::vector<std::string>> SelectNames(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family);

}  // namespace axccl::boot
