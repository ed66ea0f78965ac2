// Attaching to the heaps of other processes of the machine, and copying from their other memory.
//
// The service thread of each process (src/base/service.h; started at first use, asleep otherwise) sends the heap's
// descriptor to a client that connects to its abstract Unix socket as the same user, with the token of its
// ProcessAddress. It also holds the liveness mutex of the ProcessPage. Sizes and seals are checked before mapping;
// descriptors are close-on-exec and closed once mapped. /dev/shm is needed only where memfd_create is forbidden
// (heap_file.h). All functions are thread-safe; in a child forked after their first use they fail with kInvalidUsage.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

using Clock = std::chrono::steady_clock;

// Returns this process's address; creates the heap and starts the service. Constant until fork.
Result<transport::ProcessAddress> SelfAddress();

// Maps the start of the peer's heap (see PeerProcess), or returns the existing mapping. For the own address, returns
// the own heap. Waits until `deadline` at most, and gives up within 20 ms when *abort (may be null) becomes true or the
// peer is gone. kRemoteError: the peer is dead. kInvalidUsage: its host id differs (the text says how), its heap cannot
// be shared, or another program answered. kTimeout: it did not answer (stopped?).
Result<std::shared_ptr<transport::PeerProcess>> Attach(const transport::ProcessAddress& address,
                                                       Clock::time_point deadline, const std::atomic<bool>* abort);

// Whether process_vm_readv from the peer works: reads and compares a word that the peer alone is known to hold, since
// the id may be that of another process here, with the same addresses in use. `remote_probe` is the address, in the
// peer, of a uint64_t with value `expected`.
bool CanCallCopy(uint32_t pid, uint64_t remote_probe, uint64_t expected);

// Copies from plain memory of another process by system call. Loops over partial transfers. kRemoteError when the
// process is gone, kSystemError otherwise. A pid may be reused once its process is dead, so after a success the caller
// must check that the peer has not died meanwhile (PeerProcess::Died) before it uses the bytes.
Status CallRead(uint32_t pid, void* local, uint64_t remote, size_t bytes);

}  // namespace axccl::shm
