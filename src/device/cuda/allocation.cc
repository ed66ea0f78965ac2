#include "src/device/cuda/allocation.h"

#include <iterator>

#include "src/base/hash.h"
#include "src/device/cuda/driver.h"

namespace axccl::device::cuda {
namespace {

// CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, which headers of CUDA 12 may lack.
constexpr auto kMemoryBlockId = static_cast<CUpointer_attribute>(20);

// Of the object that is mapped there; 0 if that is none, or the driver does not know the attribute.
uint64_t ObjectAt(CUdeviceptr address) {
  unsigned long long block = 0;
  const CUresult result = Driver::Loaded().cuPointerGetAttribute(&block, kMemoryBlockId, address);
  return result == CUDA_SUCCESS ? block : 0;
}

}  // namespace

CUresult GetAllocationId(CUdeviceptr address, uint64_t* id) {
  unsigned long long number = 0;
  CUmemorytype type{};
  unsigned managed = 0, legacy = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&number, &type, &managed, &legacy};
  const CUresult result = Driver::Loaded().cuPointerGetAttributes(std::size(attributes), attributes, values, address);
  *id = result == CUDA_SUCCESS ? number : 0;
  // What cuMemAlloc and cuMemAllocManaged have made is never in such a place.
  if (*id != 0 && type == CU_MEMORYTYPE_DEVICE && managed == 0 && legacy == 0)
    *id = Mix(Mix(kHashSeed, number), ObjectAt(address));
  return result;
}

}  // namespace axccl::device::cuda
