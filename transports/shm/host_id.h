// Which processes can share memory: those with equal host ids.
//
// The id is a hash of the kernel's boot id, the user, the network namespace (abstract sockets are per namespace), and
// NCCL_HOSTID, by which ranks of one machine may be told to behave as if they were on several.
// Equal ids are a promise that attaching is worth trying; Attach says so when it fails all the same.
#pragma once

#include <array>
#include <cstdint>

namespace axccl::shm {

using HostId = std::array<uint8_t, 16>;

// The id of this process as it is now. Where /proc is not mounted, the host name stands in for the boot id.
HostId CurrentHostId();

}  // namespace axccl::shm
