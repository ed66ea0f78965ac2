// The device's movers, as one block of fibers runs them.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/host/box.h"
#include "kernels/host/mover.h"
#include "tests/harness/fibers/fibers.h"

namespace axccl::kernels::cuda {

using Watch = std::function<void(uint32_t thread, const void* p, bool stores)>;  // fibers::Options::watch

// As kernels::Reduce. False when the block never ends.
bool ReduceOnFibers(const ReduceRequest& request, uint32_t threads, uint64_t seed,
                    fibers::Bulk bulk = fibers::Bulk::kBySeed);
// Likewise, where some operands are packed slots of rows that carry `flag` (kernels/cuda/launch.h): a bit of `rows` for
// each, destinations first.
bool ReduceRowsOnFibers(const ReduceRequest& request, uint32_t rows, uint64_t flag, uint32_t threads, uint64_t seed,
                        fibers::Bulk bulk = fibers::Bulk::kBySeed);
// As kernels::ReduceBox, and kernels::CopyBox where there is one source and nothing to compute. `tiles`: how many it
// was copied by.
bool MoveBoxOnFibers(const BoxReduceRequest& request, uint32_t threads, uint64_t seed, uint32_t* tiles = nullptr,
                     Watch watch = nullptr, fibers::Bulk bulk = fibers::Bulk::kBySeed);

}  // namespace axccl::kernels::cuda
