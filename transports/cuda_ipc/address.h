// The addresses of device memory that processes send each other. Plain data, sent as bytes; builds without a CUDA
// toolkit.
#pragma once

#include <array>
#include <cstdint>

namespace axccl::cuda_ipc {

// An allocation of another process. Export makes it, Import uses it (handle.h).
struct Handle {
  enum Kind : uint32_t {
    kNone,
    kLegacy,  // of cuIpcGetMemHandle
    kFile,    // of virtual memory management: a file that the process offers while the exporter keeps it
    kFiles,   // several of these, mapped one behind the other: a file with their list
  };
  uint32_t kind = kNone;
  uint32_t pid = 0;
  uint64_t bytes = 0;
  std::array<uint8_t, 64> key{};  // a CUipcMemHandle, or an shm::FileAddress
};

// The address of a rank's block.
struct BlockAddress {
  Handle handle;                   // for other processes
  uint64_t pointer = 0;            // for its own
  uint64_t number = 0;             // random: the marks that peers must find are derived from it
  std::array<uint8_t, 16> uuid{};  // of the device
  int32_t device = 0;
  uint32_t declined = 0;  // or 1: its rank has been told not to reach others so
};

}  // namespace axccl::cuda_ipc
