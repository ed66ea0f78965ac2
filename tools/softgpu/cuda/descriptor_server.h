// Passes file descriptors to other processes of the same user: a thread listens on an abstract Unix socket, whose name
// other processes find in a handle. Nothing remains in the file system, however a process ends. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>

namespace softgpu::cuda {

// The address of a server; a plain value that fits into a handle.
struct ServerAddress {
  uint32_t pid = 0;
  uint32_t padding = 0;
  uint64_t nonce = 0;

  bool operator==(const ServerAddress&) const = default;
};

// Returns the descriptor of a key, -1 if there is none (any more). The server keeps ownership.
using DescriptorLookup = std::function<int(uint64_t key)>;

// The first call starts the server of this process; later calls only return its address. Returns false if there are no
// sockets.
bool ServeDescriptors(const DescriptorLookup& lookup, ServerAddress* address);
// Returns a descriptor of another process, which the caller must close; -1 if that process is gone, belongs to another
// user, or does not know the key.
int FetchDescriptor(const ServerAddress& address, uint64_t key);

}  // namespace softgpu::cuda
