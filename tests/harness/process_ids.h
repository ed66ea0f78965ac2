// Ids for processes of transports, which have sockets of these names: no other test program that runs at the same time
// has them.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace axccl::harness {

inline const pid_t kProgram = getpid();  // before it forks its ranks

// They are in the order of the numbers.
inline std::array<uint8_t, 16> ProcessId(int number) {
  std::array<uint8_t, 16> id{};
  id[0] = static_cast<uint8_t>(number);
  std::memcpy(id.data() + 8, &kProgram, sizeof kProgram);
  return id;
}

}  // namespace axccl::harness
