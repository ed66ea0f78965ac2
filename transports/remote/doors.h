// Whether processes of other machines are there: where they listen for other processes (lines.h), nothing listens any
// more once they have ended, whereas a machine that is gone, or cut off, does not answer.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace axccl::remote {

enum class Door : uint8_t {
  kClosed,  // the process has ended
  kOpen,
  kSilent,  // no answer
};

// Calls at all addresses of each process until they answer, or the limit. A process that takes the call and hangs up at
// once may be about to end; it is called again.
std::vector<Door> LookAtDoors(std::span<const std::vector<sockaddr_storage>> processes,
                              std::chrono::steady_clock::time_point limit);

}  // namespace axccl::remote
