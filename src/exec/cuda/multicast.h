// Scratch of all ranks that the switch between their devices reaches (NVLink SHARP), for plans with slots of all ranks.
// A communicator has it if its ranks are on one machine, each on a device of its own, and all of them can use it.
//
// After Share, any thread may call the const functions. Peers may access the memory until all ranks have called Unmap,
// or agreed that it is of no use; the destructor must follow that, also if Share fails.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/call/call.h"
#include "src/exec/platform/platform.h"
#include "src/exec/platform/rank_device.h"
#include "transports/cuda_ipc/multicast.h"

namespace axccl::exec {

class CudaMulticast {
 public:
  CudaMulticast(const RankOptions& options, const device::cuda::Device& device)
      : options_(options),
        rank_(static_cast<size_t>(options.rank)),
        ranks_(static_cast<size_t>(options.ranks)),
        device_(device),
        memory_(device) {}

  // Collective over the ranks of a communicator, which must be on one machine, each on a device of its own. Returns
  // whether all can use it, and the data of each has arrived at the others; otherwise logs why not.
  Result<bool> Share(Setup* setup);

  // Whether the switch folds what the call folds, as the call wants it.
  static bool Folds(const Call& call);

  uint64_t bytes() const { return memory_.bytes(); }
  kernels::cuda::MulticastArea area() const;
  // No kernel here uses it any more. What peers use of it stays.
  void Unmap() { memory_.Unmap(); }

 private:
  // Returns why it cannot be used; empty if it can.
  Result<std::string> Try(Setup* setup);
  Status Allow() const;
  Status Prepare();
  Status Probe() const;
  Status Check() const;

  // Places in the memory, in units of kernels::cuda::MulticastProbe::kBytes: those of what each rank stores, then
  // these.
  enum Place : uint64_t { kNumbers, kSums, kPattern, kPlaces };
  uint64_t At(Place place) const { return (ranks_ + place) * kernels::cuda::MulticastProbe::kBytes; }

  const RankOptions options_;
  const size_t rank_, ranks_;
  const device::cuda::Device& device_;
  cuda_ipc::Multicast memory_;
};

}  // namespace axccl::exec
