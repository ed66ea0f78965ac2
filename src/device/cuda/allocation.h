// Which allocation is at an address.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace axccl::device::cuda {

// Gives the number of the allocation there, which no other one of this process has, and 0 for what CUDA does not know.
// CUDA promises as much of its own number, CU_POINTER_ATTRIBUTE_BUFFER_ID, for "every memory allocation", and leaves
// open whether it is of the memory or of the reserved addresses where virtual memory management maps one object after
// another. So for such memory, the number of the object is mixed in (CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: "a
// process-wide unique id corresponding to the physical allocation"). One call of the driver, or two for such memory.
CUresult GetAllocationId(CUdeviceptr address, uint64_t* id);

}  // namespace axccl::device::cuda
