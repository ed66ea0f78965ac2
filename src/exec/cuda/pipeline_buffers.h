// The buffers of a part of a pipeline that ranks of other processes read: they stay exported for as long as this lives,
// so peers that have mapped them once find them in every start.
//
// A rank exports them before it publishes the area of the part's channel. So a peer that has found the area and looks
// for exports after that imports them, too. The rank's kernels start once all members have (CudaChannel::Meet).
//
// When a pipeline is destroyed, no peer reads its buffers any more: the last handshake of a plan ends a start after all
// reads. That is not so after a failure, but peers keep what they have mapped of a rank that has failed, until no
// kernel of theirs runs (cuda_ipc::Imports).
//
// Must be destroyed before the CudaBuffers. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "src/base/status.h"
#include "src/exec/channel/members.h"
#include "src/exec/cuda/buffers.h"
#include "src/exec/platform/pipeline.h"
#include "src/tensor/view.h"
#include "transports/cuda_ipc/exports.h"

namespace axccl::exec {

class PipelineBuffers {
 public:
  // `ranks` of the part, and this rank's position among them. kInvalidUsage if a buffer cannot be shared with `reader`,
  // one of the ranks.
  static Result<std::shared_ptr<const PipelineBuffers>> Share(CudaBuffers* buffers, const PipelinePart& part,
                                                              std::span<const int32_t> ranks, int position,
                                                              int32_t reader);
  ~PipelineBuffers();
  PipelineBuffers(const PipelineBuffers&) = delete;
  PipelineBuffers& operator=(const PipelineBuffers&) = delete;

  // Writes into the table of the part's operand (kernels::cuda::ViewTable) where the members find it.
  void PutPlaces(std::byte* table) const;
  // The position of a member that has not mapped all of them, -1 if there is none.
  int FindUnmapped(const Members& members) const;
  // Returns an error if the member cannot map them.
  Status CheckMappable(const Members& members, int position) const;

 private:
  struct Buffer {
    const std::byte* lowest = nullptr;  // null: the members read none
    uint64_t ahead = 0;                 // bytes from there to the first element
    cuda_ipc::Exports::Place place;
  };

  explicit PipelineBuffers(CudaBuffers* buffers) : buffers_(buffers) {}
  Status Hold(const char* name, const void* data, const tensor::View& view, int32_t reader, Buffer* buffer);

  CudaBuffers* const buffers_;
  Buffer in_, out_;
};

}  // namespace axccl::exec
