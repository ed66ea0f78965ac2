// A part of a pipeline on copy engines: the plan's copies, signals and waits become operations of streams, one stream
// for each lane. None of them takes room on a multiprocessor.
//
// Used by one thread at a time, except where it says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/exec/channel/start_stamps.h"
#include "src/exec/cuda/copy_end.h"
#include "src/exec/cuda/planes.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

class CopyLanes {
 public:
  // What a lane waits for.
  struct Missing {
    int position = -1;   // the member whose signal is missing; the own one: `chunk` is not ready; -1: nothing
    uint32_t chunk = 0;  // of the input
  };

  // `words`: where the words of chunks and the stamps are, as the device sees them; `stamps`: as the host does.
  // kInvalidArgument if a chunk has too many pieces, as seen by this rank.
  static Result<std::unique_ptr<CopyLanes>> Make(const device::cuda::Device& device, const PipelinePart& part,
                                                 std::shared_ptr<CopyEnd> end, const StartStamps& stamps,
                                                 const kernels::cuda::Sliced& words);
  ~CopyLanes();
  CopyLanes(const CopyLanes&) = delete;

  CopyEnd& end() { return *end_; }
  // `ends` of all members, in their order, which this rank may read (CopyEnd::AddReader).
  Status Bind(std::vector<std::shared_ptr<CopyEnd>> ends);
  const std::vector<std::shared_ptr<CopyEnd>>& ends() const { return ends_; }
  // Returns an error if a member has destroyed its pipeline before this start. Must follow the store to enqueued.
  Status CheckPeers(uint32_t start) const;
  // Enqueues a start behind what is on `stream`, which then waits for the end of it, or of what the driver has taken.
  Status Enqueue(uint32_t start, CUstream stream);
  // What a lane waits for that waits: one of all of these, another one after some calls.
  Missing FindMissing(uint32_t start);

 private:
  enum class Kind : uint8_t { kWait, kSignal, kAwait, kCopy, kNotify };
  struct Op {
    Kind kind;
    int position = 0;                // kWait: of the member
    uint32_t chunk = 0;              // kAwait, kNotify
    const uint32_t* word = nullptr;  // a flag, or the word of a chunk
    Plane plane;                     // kCopy
  };
  struct Lane {
    CUstream stream = nullptr;
    CUevent end = nullptr;
    std::vector<Op> ops;
  };

  CopyLanes(const device::cuda::Device& device, const PipelinePart& part, std::shared_ptr<CopyEnd> end,
            const StartStamps& stamps, const kernels::cuda::Sliced& words)
      : device_(device), part_(part), stamps_(stamps), words_(words), end_(std::move(end)) {}
  Status MakeLanes();
  Status CheckPieces() const;
  Status CheckPieces(size_t pieces, int from, int to) const;  // ranks
  tensor::Shape ShapeOf(uint32_t slice) const;
  Place PlaceOf(const plan::Operand& operand, uint32_t slice) const;
  Status Translate(const Step& step, uint32_t lane, std::vector<Op>* ops) const;
  void AddSignal(const Step& step, uint32_t lane, std::vector<Op>* ops) const;
  Status AddCopies(const Step& step, std::vector<Op>* ops) const;
  Status AddCopy(const plan::Operand& to, const plan::Operand& from, uint32_t slice, std::vector<Op>* ops) const;
  Status Enqueue(const Lane& lane, uint32_t start) const;
  Status Enqueue(const Op& op, uint32_t start, CUstream stream) const;

  const device::cuda::Device& device_;
  const PipelinePart part_;
  const StartStamps stamps_;
  const kernels::cuda::Sliced words_;
  const std::shared_ptr<CopyEnd> end_;
  std::vector<std::shared_ptr<CopyEnd>> ends_;
  std::vector<Lane> lanes_;
  CUevent begin_ = nullptr;
  size_t looks_ = 0;
};

}  // namespace axccl::exec
