// Which addresses a process listens on for its unique ids.
//
// Without NCCL_SOCKET_IFNAME: loopback. With it: the addresses (IPv4, then IPv6) of the first interface that is up and
// matches; the value is a comma-separated list of name prefixes, `=` in front asks for exact names, `^` excludes those
// listed. NCCL_SOCKET_FAMILY=AF_INET or AF_INET6 keeps only one family. Thread-safe.
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
};

// The interfaces that are up, in the system's order, with their IPv4 and global IPv6 addresses.
Result<std::vector<Interface>> ListInterfaces();

// At most two addresses out of `interfaces` by the rules above. kInvalidUsage, listing what there is, when nothing
// matches.
Result<std::vector<Address>> SelectAddresses(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family);
// The names of all interfaces that data may go over by the same rules. Where nothing is asked for: those that lead out of the
// machine and belong to no containers or virtual machines, else loopback.
Result<std::vector<std::string>> SelectNames(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family);

}  // namespace axccl::boot
