// An engine without PTX: kernels are C++ functions that the test registers by name. Its "PTX" only names the entries
// and the sizes of their parameters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softgpu::fake {

enum class Step : int { kMore, kWaiting, kDone, kFailed };

struct Launch {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  const std::byte* parameters;
  // Zero in the first call; the function's own.
  uint64_t state;
  // Returns whether the device may access that address.
  bool (*allowed)(const Launch& launch, uint64_t address);
  const void* map;
  // What is behind a multicast address: of each device, an address of its memory. Returns their number, 0 if the
  // address is none.
  int (*behind)(const Launch& launch, uint64_t address, uint64_t* copies, int most);
};

// Called repeatedly until it is done or has failed.
using Kernel = Step (*)(Launch* launch);
using RegisterKernel = void (*)(const char* name, Kernel kernel);

}  // namespace softgpu::fake

// Exported by the libcuda.so.1 that contains this engine.
extern "C" __attribute__((visibility("default"))) void softgpu_fake_kernel(const char* name,
                                                                           softgpu::fake::Kernel kernel);
