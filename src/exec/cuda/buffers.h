// The places at which peers in other processes find the buffers of a rank's calls, which they have mapped
// (transports/cuda_ipc). Used by one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/channel/members.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/cuda_ipc/imports.h"

namespace axccl::exec {

class CudaBuffers {
 public:
  // `tables` and `members` of all ranks; see CudaLinks::Share. Ranks on other machines have null.
  static Result<std::unique_ptr<CudaBuffers>> Create(const device::cuda::Device& device, size_t rank,
                                                     const std::vector<std::byte*>& tables,
                                                     const std::vector<Member>& members);

  // For calls: writes into `task` where the members find input and output of `call`; kUnmapped unless all have mapped
  // them by now. Offers new memory to the members, and imports what they have offered. `captured`: the task may run any
  // number of times.
  Status Place(const Call& call, const Members& members, bool captured, kernels::cuda::Task* task);
  // The same for a call on views, whose places are written into the operands of its table. Returns whether all members
  // have mapped all of them.
  Result<bool> PlaceViews(const Call& call, const Members& members, bool captured, kernels::cuda::ViewOperand* table);
  // Imports what the members have offered, and releases what they have freed.
  Status Look();

  // For pipelines (pipeline_buffers.h): offers the memory until it is released. An error says why it cannot be shared.
  Result<cuda_ipc::Exports::Place> Hold(const void* memory, uint64_t bytes);
  void Release(const cuda_ipc::Exports::Place& place) { exports_.Release(place); }
  // Whether the rank has mapped it, or never will.
  bool IsMapped(const cuda_ipc::Exports::Place& place, int rank) const {
    return exports_.Has(static_cast<size_t>(rank), place.number);
  }
  bool IsUnmappable(const cuda_ipc::Exports::Place& place, int rank) const {
    return exports_.Lacks(static_cast<size_t>(rank), place.number);
  }

  // For grown scratch: that this rank can have none, and whether a rank has said so.
  void Decline() { exports_.Decline(); }
  bool Declines(int rank) const { return exports_.Declines(static_cast<size_t>(rank)); }

  // The buffer will not be used soon, and no running work uses it.
  void LetGo(const void* buffer) { exports_.LetGo(reinterpret_cast<CUdeviceptr>(buffer)); }
  CUdeviceptr maps_of(size_t rank) const { return imports_->maps_of(rank); }

 private:
  CudaBuffers(const device::cuda::Device& device, size_t rank, std::vector<cuda_ipc::ExportTable*> tables)
      : device_(device), exports_(device, rank, std::move(tables)) {}
  uint32_t Find(const void* buffer, uint64_t bytes, const Members& members, bool captured, uint64_t* offset);
  // The memory of a view, from byte `begin` to `end` of where its first element is; and where the place of that goes.
  struct Viewed {
    CUdeviceptr data = 0;
    int64_t begin = 0, end = 0;
    uint32_t* map = nullptr;
    uint64_t* offset = nullptr;

    CUdeviceptr lowest() const { return data + static_cast<uint64_t>(begin); }
    uint64_t bytes() const { return static_cast<uint64_t>(end - begin); }
  };
  Result<bool> PlaceAll(const std::vector<Viewed>& all, const Members& members, bool captured);
  Result<bool> PlaceView(const Viewed& viewed, const Members& members, bool captured);
  // Has this rank's own map have the allocation at `base` under the number.
  Status MapOwn(uint32_t number, uint64_t base);

  const device::cuda::Device& device_;
  cuda_ipc::Exports exports_;
  std::unique_ptr<cuda_ipc::Imports> imports_;
  std::map<uint32_t, uint64_t>
      own_;  // the addresses of allocations with operands of this rank, as it finds them itself
};

}  // namespace axccl::exec
