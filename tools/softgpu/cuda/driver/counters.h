// What tests may ask (counters.cc) and the driver counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace softgpu::cuda {

extern std::atomic<uint64_t> last_blocks, last_dynamic_shared, last_blocks_together;

}  // namespace softgpu::cuda
