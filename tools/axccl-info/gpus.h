// The GPUs of this machine, as the CUDA driver names them.
//
// Loads the driver (libcuda.so.1) if it is there, and starts it: not before a fork, because a child cannot use a driver
// that its parent has started. Makes no context, so a GPU that is full can be asked, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.h"

namespace axccl_info {

struct GpuInfo {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  std::string address;       // on PCI: "0000:65:00.0"
  uint64_t bytes = 0;        // of its memory
  int major = 0, minor = 0;  // compute capability
};

struct Gpus {
  std::vector<GpuInfo> all;  // those that this process may use, by their numbers
  std::string error;         // why the driver that is there does not start; empty: it does, or there is none
};

Gpus FindGpus();

// Lines for people; none where there is neither GPU nor error.
void PrintGpus(const Gpus& gpus);
// The key "gpus" and its list.
void WriteGpus(const Gpus& gpus, axccl::JsonWriter* json);

}  // namespace axccl_info
