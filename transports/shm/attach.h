// Attaching to the heaps of other processes of the machine.
//
// A service thread of each process (started at first use, asleep in epoll otherwise) hands the heap's descriptor to whoever
// connects to its abstract Unix socket from the same user with the token of its ProcessAddress. It also holds the liveness
// mutex of the ProcessPage. Sizes and seals are checked before mapping; descriptors are close-on-exec and closed once mapped.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

using Clock = std::chrono::steady_clock;

// This process's address; starts the service. Constant until fork.
Result<transport::ProcessAddress> SelfAddress();

// Maps the peer's heap, or returns the mapping there already is. Own address: the own heap. Waits until `deadline` at
// most, and gives up within 20 ms when *abort becomes true or the peer is gone.
Result<std::shared_ptr<transport::PeerProcess>> Attach(const transport::ProcessAddress& address, Clock::time_point deadline,
                                                       const std::atomic<bool>* abort);

// Whether process_vm_readv/writev to the peer work: reads and compares a word the peer is known to hold.
// `remote_probe` is the address, in the peer, of a uint64_t with value `expected`.
bool CanCallCopy(uint32_t pid, uint64_t remote_probe, uint64_t expected);

// Copies between this process and plain memory of another by system call. Loops over partial transfers.
// kRemoteError when the process is gone, kSystemError otherwise.
Status CallRead(uint32_t pid, void* local, uint64_t remote, size_t bytes);
Status CallWrite(uint32_t pid, const void* local, uint64_t remote, size_t bytes);

}  // namespace axccl::shm
