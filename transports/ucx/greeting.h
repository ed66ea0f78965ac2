// What UCX's active messages are: messages and flushes of remote/wire.h, and greetings between processes.
#pragma once

#include <array>
#include <cstdint>

namespace axccl::ucx {

inline constexpr unsigned kMessage = 1, kControl = 2, kGreeting = 3;  // ids of active messages

// See endpoint.h.
struct WireGreeting {
  std::array<uint8_t, 16> process;  // the sender's
  uint32_t asks;                    // not 0: the sender has not been greeted yet
  uint32_t reserved;
};
static_assert(sizeof(WireGreeting) == 24);

}  // namespace axccl::ucx
