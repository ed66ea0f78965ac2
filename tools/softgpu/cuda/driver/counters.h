// What tests may ask (counters.cc) and the driver counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace softgpu::cuda {

extern std::atomic<uint64_t> last_blocks;

}  // namespace softgpu::cuda
