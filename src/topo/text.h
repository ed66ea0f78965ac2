// The text form of a machine, which NCCL_TOPO_FILE reads and NCCL_TOPO_DUMP_FILE writes. docs/topology.md shows it to
// users. NCCL's own form is that of nccl_file.h.
//
// Each machine has one text, and each text one machine: Parse accepts exactly what Print writes, for machines that pass
// Check. Lines end in '\n', words are separated by one space, numbers are decimal without sign or leading zeros, sizes
// are in bytes, speeds in Mbit/s. Version 1:
//
//   axccl-topology 1                                  version of the form
//   processor AMD EPYC 9554                           model; left out if it is not known
//   node 0 bytes 67553771520                          NUMA nodes, ascending
//   package                                           then, of each package, its groups of cores:
//   l3 33554432 node 0                                cores that share a third-level cache (0: none) and a node
//   core l1 32768 l2 1048576 processors 0 64          data caches, left out if they are not known
//   core l1 32768 l2 1048576 processors 1 65
//   nic eth0 kind ethernet speed 25000 node 0         kind: ethernet, infiniband, virtual, other
//   nic veth1 kind virtual                            speed and node are left out if they are not known
//   gpu 0000:65:00.0 speed 252061 node 0              speed: of its PCI link
//
// Functions are pure and thread-safe. Parse accepts untrusted text: it allocates in proportion to the text only.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/topo/machine.h"

namespace axccl::topo {

inline constexpr int kTextVersion = 1;
inline constexpr size_t kMaxFileBytes = 16 << 20;

std::string Print(const Machine& machine);

// Returns kInvalidArgument with the line and column of the first character that does not fit, or with the error of
// Check.
Result<Machine> Parse(std::string_view text);

}  // namespace axccl::topo
