#include "src/exec/cuda/pointers.h"

#include <array>
#include <bit>
#include <cstdint>

#include "src/base/hash.h"
#include "src/base/per_thread.h"

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;

// An allocation that kernels of `device` may use, and those of `peers`.
struct Known {
  const Device* device = nullptr;
  uint64_t begin = 0, end = 0;
  uint64_t peers = 0;

  bool Has(const Device& of, uint64_t address) const { return device == &of && address >= begin && address < end; }
};

// By address, in pieces of 2 MiB: allocations are in few of them.
using KnownAllocations = std::array<Known, 256>;
Known& PlaceFor(const Device& device, uint64_t address) {
  const uint64_t hash = Mix(Mix(kHashSeed, static_cast<uint64_t>(device.ordinal())), address >> 21);
  return PerThread<KnownAllocations>::Get()[hash % std::tuple_size_v<KnownAllocations>];
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
  if (driver.cuMemGetAddressRange(&base, &bytes, address) == CUDA_SUCCESS) *known = {&device, base, base + bytes, 0};
  return Status();
}

// Of memory of cuMemCreate, or of a pool; all other memory of a device can be accessed where peer access is enabled.
bool MayAccess(int ordinal, CUdeviceptr address) {
  const Driver& driver = Driver::Loaded();
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = ordinal;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  void* values[] = {&pool};
  if (driver.cuPointerGetAttributes(1, attributes, values, address) == CUDA_SUCCESS && pool != nullptr) {
    CUmemAccess_flags flags{};
    return driver.cuMemPoolGetAccess(&flags, pool, &location) != CUDA_SUCCESS ||
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  CUmemGenericAllocationHandle object = 0;
  if (driver.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(address)) != CUDA_SUCCESS) return true;
  driver.cuMemRelease(object);
  unsigned long long flags = 0;
  return driver.cuMemGetAccess(&flags, &location, address) != CUDA_SUCCESS ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

Status CheckPointer(const Device& device, const void* pointer, const char* name) {
  return CheckShared(device, pointer, 0, name);
}

Status CheckShared(const Device& device, const void* pointer, uint64_t peers, const char* name) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Known& known = PlaceFor(device, address);
  if (!known.Has(device, address)) AXCCL_RETURN_IF_ERROR(Ask(device, pointer, name, &known));
  if (!known.Has(device, address)) return Status();  // of the host, and not known to CUDA
  for (uint64_t left = peers & ~known.peers; left != 0; left &= left - 1) {
    const int ordinal = std::countr_zero(left);
    if (!MayAccess(ordinal, address))
      return MakeStatus(Code::kInvalidArgument,
                        "%s (%p) is memory that CUDA device %d, where another rank of the process is, may not access; "
                        "allow that (cudaMemPoolSetAccess, cuMemSetAccess), pass memory of cudaMalloc or ncclMemAlloc, "
                        "or set NCCL_P2P_DIRECT_DISABLE=1",
                        name, pointer, ordinal);
  }
  known.peers |= peers;
  return Status();
}

Status CheckViews(const Device& device, const ViewList& views, uint64_t peers, BuffersForOthers used) {
  const auto check = [&](const void* pointer, bool by_peers, const char* name) {
    return pointer == nullptr ? Status() : CheckShared(device, pointer, by_peers ? peers : 0, name);
  };
  for (const ViewOperand& operand : views.operands) {
    if (operand.block_bytes == 0) continue;
    AXCCL_RETURN_IF_ERROR(check(operand.input, used.input, "data of an input"));
    AXCCL_RETURN_IF_ERROR(check(operand.output, used.output, "data of an output"));
  }
  return Status();
}

}  // namespace axccl::exec
