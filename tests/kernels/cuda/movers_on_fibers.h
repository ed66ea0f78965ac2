// The device's movers, run by one block of fibers.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/host/box.h"
#include "kernels/host/mover.h"
#include "tests/harness/fibers/fibers.h"

namespace axccl::kernels::cuda {

using Watch = std::function<void(uint32_t thread, const void* p, bool stores)>;  // fibers::Options::watch

// Like kernels::Reduce. Returns false if the block never ends.
bool ReduceOnFibers(const ReduceRequest& request, uint32_t threads, uint64_t seed,
                    fibers::Bulk bulk = fibers::Bulk::kBySeed);
// Likewise, but some operands are packed slots of rows that carry `flag` (kernels/cuda/launch.h): `rows` has a bit for
// each operand, destinations first.
bool ReduceRowsOnFibers(const ReduceRequest& request, uint32_t rows, uint64_t flag, uint32_t threads, uint64_t seed,
                        fibers::Bulk bulk = fibers::Bulk::kBySeed);
// Like kernels::ReduceBox, and like kernels::CopyBox if there is one source and nothing to compute. Sets `tiles` to the
// number of tiles that were used.
bool MoveBoxOnFibers(const BoxReduceRequest& request, uint32_t threads, uint64_t seed, uint32_t* tiles = nullptr,
                     Watch watch = nullptr, fibers::Bulk bulk = fibers::Bulk::kBySeed);

}  // namespace axccl::kernels::cuda
