#include "src/exec/cuda/pointers.h"

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "src/base/hash.h"
#include "src/base/per_thread.h"
#include "src/device/cuda/allocation.h"

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Current;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::OnStream;

// An allocation that kernels of `device` may use, and those of `peers`. Memory of virtual memory management that was
// mapped at once is one.
struct Known {
  const Device* device = nullptr;
  uint64_t begin = 0, end = 0;
  uint64_t id = 0;  // no other one in this process has it
  uint64_t peers = 0;
  bool on_device = false;

  bool Has(const Device& of, uint64_t address) const { return device == &of && address >= begin && address < end; }
};

// By address, in pieces of 2 MiB: allocations are in few of them.
using KnownAllocations = std::array<Known, 256>;
Known& PlaceFor(const Device& device, uint64_t address) {
  const uint64_t hash = Mix(Mix(kHashSeed, static_cast<uint64_t>(device.ordinal())), address >> 21);
  return PerThread<KnownAllocations>::Get()[hash % std::tuple_size_v<KnownAllocations>];
}

// The allocation may have been freed since, and another one be there now.
bool IsStillThere(const Known& known, CUdeviceptr address) {
  uint64_t id = 0;
  const auto ask = [&] { return device::cuda::GetAllocationId(address, &id); };
  return OnStream(*known.device, ask) == CUDA_SUCCESS && id != 0 && id == known.id;
}

// The driver needs a context to name an allocation, and the calling thread may have none.
Status Ask(const Device& device, CUdeviceptr address, const char* name, Known* known) {
  const Driver& driver = Driver::Loaded();
  const Current current(device);
  void* const pointer = reinterpret_cast<void*>(address);
  *known = {};
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
  // Kernels use the address that the program passes (cuPointerGetAttribute: of write-combined memory, and of registered
  // memory where CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0, it is "an invalid unmapped device address").
  if (type == CU_MEMORYTYPE_HOST && seen != address)
    return MakeStatus(Code::kInvalidArgument,
                      "%s (%p) is memory of the host that CUDA device %d sees at another address (%p), as if it was "
                      "write-combined; pass that address, or memory without cudaHostAllocWriteCombined",
                      name, pointer, device.ordinal(), reinterpret_cast<void*>(seen));
  if (type == CU_MEMORYTYPE_DEVICE && managed == 0 && ordinal != device.ordinal())
    return MakeStatus(Code::kInvalidArgument,
                      "%s (%p) is memory of CUDA device %d, and the communicator's rank is on device %d; "
                      "pass memory of that",
                      name, pointer, ordinal, device.ordinal());
  CUdeviceptr base = 0;
  size_t bytes = 0;
  uint64_t id = 0;
  AXCCL_RETURN_IF_ERROR(Check(device::cuda::GetAllocationId(address, &id), "cuPointerGetAttributes"));
  if (driver.cuMemGetAddressRange(&base, &bytes, address) == CUDA_SUCCESS)
    *known = {&device, base, base + bytes, id, 0, type == CU_MEMORYTYPE_DEVICE};
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

// What errors call the buffers of a call.
struct Names {
  const char *input, *output;
};
constexpr Names kPlain = {"argument sendbuff", "argument recvbuff"};
constexpr Names kViewed = {"data of an input", "data of an output"};

// Several allocations may lie side by side.
Status CheckBytes(const Device& device, CUdeviceptr begin, CUdeviceptr end, uint64_t peers, const char* name) {
  for (CUdeviceptr at = begin; at < end;) {
    Known& known = PlaceFor(device, at);
    if (!known.Has(device, at) || !IsStillThere(known, at)) AXCCL_RETURN_IF_ERROR(Ask(device, at, name, &known));
    if (!known.Has(device, at)) return Status();  // of the host, and not known to CUDA
    for (uint64_t left = peers & ~known.peers; left != 0; left &= left - 1) {
      const int ordinal = std::countr_zero(left);
      if (!MayAccess(ordinal, at))
        return MakeStatus(
            Code::kInvalidArgument,
            "%s (%p) is memory that CUDA device %d, where another rank of the process is, may not access%s; "
            "allow that (cudaMemPoolSetAccess, cuMemSetAccess), pass memory of cudaMalloc or ncclMemAlloc, "
            "or set NCCL_P2P_DIRECT_DISABLE=1",
            name, reinterpret_cast<void*>(begin), ordinal,
            at == begin ? "" : (" from byte " + std::to_string(at - begin) + " on").c_str());
    }
    known.peers |= peers;
    at = known.end;
  }
  return Status();
}

}  // namespace

Status CheckPointer(const Device& device, const void* pointer, const char* name) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  Known& known = PlaceFor(device, address);
  return known.Has(device, address) ? Status() : Ask(device, address, name, &known);
}

bool IsOnDevice(const Device& device, const void* pointer) {
  if (!CheckPointer(device, pointer, "a buffer").ok()) return false;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const Known& known = PlaceFor(device, address);
  return known.Has(device, address) && known.on_device;
}

Status CheckPointers(const Device& device, const ViewList& views) {
  for (const ViewOperand& operand : views.operands) {
    if (operand.block_bytes == 0) continue;
    if (operand.input != nullptr) AXCCL_RETURN_IF_ERROR(CheckPointer(device, operand.input, kViewed.input));
    if (operand.output != nullptr) AXCCL_RETURN_IF_ERROR(CheckPointer(device, operand.output, kViewed.output));
  }
  return Status();
}

Status CheckShared(const Device& device, const Call& call, const BlocksForOthers& blocks, uint64_t peers) {
  if (call.views == nullptr) {
    const uint64_t bytes = call.count * ElementSize(call.type);
    const auto check = [&](const void* buffer, int count, const char* name) {
      const auto address = reinterpret_cast<CUdeviceptr>(buffer);
      return CheckBytes(device, address, address + bytes * static_cast<uint64_t>(count), peers, name);
    };
    AXCCL_RETURN_IF_ERROR(check(call.input, blocks.input, kPlain.input));
    return check(call.output, blocks.output, kPlain.output);
  }
  const auto check = [&](const void* data, const ViewOperand& operand, int dim, int count, const int64_t* strides,
                         const char* name) {
    if (count == 0 || data == nullptr) return Status();
    const tensor::Extent extent = tensor::ByteExtent(WholeView(operand, dim, count, strides));
    const auto address = reinterpret_cast<CUdeviceptr>(data);
    return CheckBytes(device, address + static_cast<uint64_t>(extent.begin),
                      address + static_cast<uint64_t>(extent.end), peers, name);
  };
  for (const ViewOperand& operand : call.views->operands) {
    if (operand.block_bytes == 0) continue;
    const BlockForm& form = operand.form;
    AXCCL_RETURN_IF_ERROR(
        check(operand.input, operand, form.split, blocks.input, operand.input_strides, kViewed.input));
    AXCCL_RETURN_IF_ERROR(
        check(operand.output, operand, form.concat, blocks.output, operand.output_strides, kViewed.output));
  }
  return Status();
}

}  // namespace axccl::exec
