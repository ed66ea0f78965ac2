// A pipeline on one rank: a collective that is bound to its buffers, and started again and again. The caller waits for
// chunks of its output and declares chunks of its input ready (plan::Schedule).
//
// The layers above make sure that calls come in an order that makes sense: a start, then anything else, then a finish.
// Thread-safe apart from that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/channel/channel.h"
#include "src/exec/platform/stream_call.h"
#include "src/plan/region.h"

namespace axccl::exec {

struct Program;
class PipelineBuffers;  // of a GPU rank

// A collective of a pipeline, on a channel of its own. Most pipelines have one; a permute has one for each message.
struct PipelinePart {
  Channel* channel = nullptr;  // null: the output of the call becomes zeros; the last part
  Call call;                   // on one view with slices
  std::shared_ptr<const Program> program;
  plan::Slicing slicing;
  bool outputs_are_read = false;                   // by other ranks
  bool copies = false;                             // the rank wants copy engines for it
  std::shared_ptr<const PipelineBuffers> buffers;  // see RankDevice::ShareBuffers
};

class Pipeline {
 public:
  enum Side : uint8_t { kIn, kOut };
  using Word = std::atomic<uint32_t>;
  // The values of a word.
  static constexpr uint32_t kNotYet = 0, kThere = 1, kFailed = 2;
  // Loops on words must end soon: those that are 0 become 2.
  static void Fail(Word* words, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      uint32_t not_yet = kNotYet;
      words[i].compare_exchange_strong(not_yet, kFailed, std::memory_order_acq_rel);
    }
  }

  virtual ~Pipeline() = default;

  // Returns an error if ranks are known to have created different pipelines. Called before the first start. Host ranks
  // compare when a start begins, and while it stands still; they wait for no rank for it.
  using Comparison = std::function<Status()>;
  void SetComparison(Comparison comparison) { comparison_ = std::move(comparison); }

  virtual Status Start(StreamRef stream) = 0;
  virtual Status Finish(StreamRef stream) = 0;
  virtual Status Wait(int64_t chunk) = 0;
  // Whether the chunk is there; an error if it never will be.
  virtual Result<bool> Test(int64_t chunk) = 0;
  virtual Status StreamWait(int64_t chunk, StreamRef stream) = 0;
  virtual void Ready(int64_t chunk) = 0;
  virtual Status StreamReady(int64_t chunk, StreamRef stream) = 0;
  // Whether the last start is part of a graph, so threads cannot wait for its chunks or declare some ready.
  virtual bool is_captured() const { return false; }
  // Whether it is part of a capture that has ended before a finish, so nothing will come of it.
  virtual bool is_abandoned() const { return false; }
  // Waits until nothing of it runs any more. It does not know of launches of graphs.
  virtual void WaitIdle() = 0;
  // It will be destroyed, and is idle. Returns an error, and nothing has changed, if another rank is known to need it.
  virtual Status Leave() { return Status(); }

  // The words of one side, and from now on a program may write those of the input.
  virtual Word* Expose(Side side) = 0;
  virtual size_t scratch_bytes() const = 0;
  virtual size_t memory_bytes() const = 0;
  // Of the device, that a start's kernel has.
  virtual int blocks() const { return 0; }
  // Whether copy engines move the data. It may become false in the first start, because all ranks must want them.
  virtual bool copies() const { return false; }

 protected:
  Comparison comparison_;
};

}  // namespace axccl::exec
