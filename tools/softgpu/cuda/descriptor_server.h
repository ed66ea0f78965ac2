// Hands file descriptors to other processes of the same user: a thread listens on an abstract Unix socket, whose name
// other processes find in a handle. Nothing is left in the file system, whatever way a process ends. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>

namespace softgpu::cuda {

// Where a server is; a plain value that can lie in a handle.
struct ServerAddress {
  uint32_t pid = 0;
  uint32_t padding = 0;
  uint64_t nonce = 0;

  bool operator==(const ServerAddress&) const = default;
};

// Tells the descriptor of a key, -1 when there is none (any more). It stays the server's.
using DescriptorLookup = std::function<int(uint64_t key)>;

// Starts the server of this process with the first call; later calls only return its address. False when there are no
// sockets here.
bool ServeDescriptors(const DescriptorLookup& lookup, ServerAddress* address);
// A descriptor of another process, to be closed by the caller; -1 when that process is gone, of another user, or does
// not know the key.
int FetchDescriptor(const ServerAddress& address, uint64_t key);

}  // namespace softgpu::cuda
