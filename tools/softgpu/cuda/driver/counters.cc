// Counters that no real driver has, for tests.
#include <cstdint>

#include "tools/softgpu/engine/engine.h"

// Bytes that kernels of this process have copied to global memory in bulk.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_bulk_bytes() { return softgpu::engine::BulkBytes(); }
