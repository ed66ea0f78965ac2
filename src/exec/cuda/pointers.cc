#include "src/exec/cuda/pointers.h"

#include <array>
#include <cstdint>

#include "src/base/hash.h"
#include "src/base/per_thread.h"

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;

// An allocation that kernels of `device` may use.
struct Known {
  const Device* device = nullptr;
  uint64_t begin = 0, end = 0;
};

// By address, in pieces of 2 MiB: allocations are in few of them.
using KnownAllocations = std::array<Known, 64>;
Known& PlaceFor(uint64_t address) {
  return PerThread<KnownAllocations>::Get()[Mix(kHashSeed, address >> 21) % std::tuple_size_v<KnownAllocations>];
}

Status Ask(const Device& device, const void* pointer, const char* name, Known* known) {
  const Driver& driver = Driver::Loaded();
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUmemorytype type{};
  int ordinal = -1;
  unsigned managed = 0;
  CUdeviceptr seen = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&type, &ordinal, &managed, &seen};
  AXCCL_RETURN_IF_ERROR(Check(driver.cuPointerGetAttributes(4, attributes, values, address), "cuPointerGetAttributes"));
  if (type == CUmemorytype{} || (type == CU_MEMORYTYPE_HOST && seen == 0))
    return device.sees_host_memory()
               ? Status()
               : MakeStatus(Code::kInvalidArgument,
                            "%s (%p) is not memory that CUDA device %d sees; pass device memory (cudaMalloc, "
                            "ncclMemAlloc), or set AXCCL_DEVICE=host",
                            name, pointer, device.ordinal());
  if (type == CU_MEMORYTYPE_DEVICE && managed == 0 && ordinal != device.ordinal())
    return MakeStatus(Code::kInvalidArgument,
                      "%s (%p) is memory of CUDA device %d, and the communicator's rank is on device %d; "
                      "pass memory of that",
                      name, pointer, ordinal, device.ordinal());
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (driver.cuMemGetAddressRange(&base, &bytes, address) == CUDA_SUCCESS) *known = {&device, base, base + bytes};
  return Status();
}

}  // namespace

Status CheckPointer(const Device& device, const void* pointer, const char* name) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Known& known = PlaceFor(address);
  if (known.device == &device && address >= known.begin && address < known.end) return Status();
  return Ask(device, pointer, name, &known);
}

}  // namespace axccl::exec
