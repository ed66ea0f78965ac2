// Pipelines of GPU ranks: each start is a launch of the interpreter on a stream of the pipeline's own, of the highest
// priority. The application's stream resets the words, then the pipeline's stream goes on from there, behind what was
// launched before in the order of the channel. What else the application's streams do is ordered by events and by the
// words, which are in memory of the device. The kernel also stores into host memory which chunks have come
// (StartStamps), so threads look there, and so do monitors of any process of the machine.
//
// A start on a stream that is being captured becomes part of that graph, in which all of this is the same in every
// launch. What other streams do for it joins the capture.
//
// Where all ranks of a part want that and are in one process, copy engines move its data instead (copy_lanes.h). They
// must know each other then: a start waits in the host until they do, and is enqueued by whoever looks next (Attend).
//
// The ranks of a pipeline read each other's memory, that of other processes as pipeline_buffers.h says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/exec/channel/start_stamps.h"
#include "src/exec/cuda/copy_lanes.h"
#include "src/exec/cuda/interpreter.h"
#include "src/exec/cuda/planes.h"
#include "src/exec/cuda/rank.h"
#include "src/exec/cuda/shared_memory.h"
#include "src/exec/platform/pipeline.h"

namespace axccl::exec {

class CudaPipeline final : public Pipeline {
 public:
  // As RankDevice::MakePipeline. The rank must live as long as its communicator.
  static Result<std::shared_ptr<Pipeline>> Make(CudaRank* rank, Channel* on, std::vector<PipelinePart> parts);
  ~CudaPipeline() override;

  Status Start(StreamRef stream) override;
  Status Finish(StreamRef stream) override;
  Status Wait(int64_t chunk) override;
  Result<bool> Test(int64_t chunk) override;
  Status StreamWait(int64_t chunk, StreamRef stream) override;
  void Ready(int64_t chunk) override;
  Status StreamReady(int64_t chunk, StreamRef stream) override;
  bool is_captured() const override { return capture_.load(std::memory_order_acquire) != 0; }
  bool is_abandoned() const override;
  void WaitIdle() override;
  Status Leave() override;
  Word* Expose(Side side) override;
  size_t scratch_bytes() const override { return 0; }
  size_t memory_bytes() const override { return bytes_; }
  int blocks() const override;
  bool copies() const override;

  // For the rank that attends to it. Enqueues what could not be enqueued so far, and reports what copy engines wait
  // for. The rank's launching() is held.
  Status Attend();
  // Ends everything that copy engines wait for; their chunks that have not come have failed. To be called again and
  // again while something runs (CopyEnd::LetGo). Any thread may call it.
  void Break();

 private:
  struct Part {
    Channel* channel;  // alive while the communicator is
    Call call;
    const char* algorithm;
    StartStamps stamps;
    kernels::cuda::Task task;
    std::shared_ptr<CopyEnd> end;
    std::shared_ptr<CopyGroup> group;  // null: ranks of other processes belong to it
    std::unique_ptr<CopyLanes> lanes;  // null: it has a kernel
  };
  // The offsets of what a part has in the memory on the device, and in that which is shared.
  struct Layout {
    size_t sliced, table, stamps;
    size_t first[2], num[2];  // its words of each side, counted from the side's first one
  };

  CudaPipeline(CudaRank* rank, const Channel& on)
      : rank_(rank), device_(rank->device()), owner_(on.owner()), order_(on.order()), attended_(rank->attended()) {}
  Status CheckPart(const PipelinePart& part) const;
  std::vector<Layout> LayOut(const std::vector<PipelinePart>& parts, size_t* shared_bytes);
  StartStamps StampsOf(const Layout& layout);
  Status MakeStreams();
  size_t num_words() const { return chunks_[kIn] + chunks_[kOut]; }
  Status MakeParts(const std::vector<PipelinePart>& parts);
  Status MakePart(const PipelinePart& part, const Layout& layout, std::byte* image);
  Status MakeLanes(const PipelinePart& part, const kernels::cuda::Sliced& sliced, Part* made);
  void MakeZeros(const PipelinePart& part, const Layout& layout);
  // Of starts: when the words are reset, and the end.
  struct Events {
    CUevent reset = nullptr, done = nullptr;
  };

  // Whether the stream may have a part in the last start.
  Status CheckStream(CUstream stream) const;
  // `capture`: of the stream, 0: none.
  Status Enqueue(CUstream stream, uint64_t capture);
  Status Record(uint32_t stamp, bool captured);
  Status Advance();
  Status Reserve(uint32_t start);
  Status TakeTurn(const OrderedStream& own);
  Result<bool> Bind();
  Result<bool> BindPart(Part* part);
  Status Run(uint32_t stamp, bool captured);
  Status Copy(uint32_t stamp);
  Status FillZeros(uint32_t stamp);
  Status Launch(uint32_t stamp, bool captured);
  Status FollowEnd(CUstream stream, bool captured);
  Status ResetWords(CUstream stream);
  Status CheckBroken() const;
  bool IsBroken() const;
  bool IsIdle() const;
  Status FailWords();
  bool wants_copies() const { return out_end_ != nullptr || copying_ != nullptr; }
  Status Use(CUstream stream, const char* what, CUresult (*enqueue)(CUstream, CUdeviceptr), CUdeviceptr word);
  Status NoteUser(CUstream stream);
  Status DeclareReady(CUdeviceptr word);
  bool HasCome(int64_t chunk) const {
    const auto at = static_cast<size_t>(chunk);
    const uint32_t came = out_end_ != nullptr ? out_end_->CameIn(at) : __atomic_load_n(&came_[at], __ATOMIC_ACQUIRE);
    return came == starts_.load(std::memory_order_relaxed);
  }
  CUdeviceptr WordOf(Side side, int64_t chunk) const {
    return memory_ + ((side == kIn ? 0 : chunks_[kIn]) + static_cast<size_t>(chunk)) * sizeof(uint32_t);
  }

  CudaRank* const rank_;
  const device::cuda::Device* const device_;
  ChannelOwner* const owner_;
  const device::host::TimelinePtr order_;  // of the channel
  size_t chunks_[2] = {};
  size_t bytes_ = 0;
  CUdeviceptr memory_ = 0;  // the words, then what tasks refer to
  const uint64_t identity_ = StartStamps::NewIdentity();
  std::unique_ptr<SharedMemory> shared_;  // the stamps of all parts
  uint32_t* came_ = nullptr;              // those of the output, which one part has
  // If copy engines are wanted: what all words become when they are reset. In memory of the host, so that starts that
  // are enqueued already have failed once the pipeline is broken. Then as much room to read the words.
  uint32_t* initial_ = nullptr;
  std::vector<Part> parts_;
  const CopyEnd* out_end_ = nullptr;  // of the part whose output it is, if copy engines are wanted
  CopyEnd* copying_ = nullptr;        // any part's, if they are
  static constexpr size_t kNoZeros = SIZE_MAX;
  size_t first_zero_ = kNoZeros;  // the first word of an output that gets nothing
  std::vector<Plane> zeros_;      // its memory
  const std::shared_ptr<CudaAttended> attended_;
  const CudaInterpreter* interpreter_ = nullptr;
  unsigned lanes_ = 1, blocks_ = 1;
  uint64_t most_bytes_ = 0;  // of a strand
  const Events& events() const { return events_[is_captured()]; }

  CUstream stream_ = nullptr;
  Events events_[2];                  // of the last start outside of captures, and inside
  std::atomic<uint64_t> capture_{0};  // that the last start is part of; 0: none
  std::atomic<uint32_t> starts_{0};   // outside of captures
  // Of these, those that have been enqueued; apart from the application's stream, for all of them the words are reset.
  std::atomic<uint32_t> enqueued_{0};
  // Of starts that are not enqueued, but have their place in the channel's order: what is before them.
  std::deque<CUevent> before_;
  CUstream turn_ = nullptr;    // on which those places are
  mutable std::mutex mutex_;   // guards what follows, and the lanes of parts
  bool bound_ = true;          // every part has found out who moves its data
  uint32_t settled_ = 0;       // the start up to which nothing was left to break
  CUstream relief_ = nullptr;  // for Break
  CUstream ready_ = nullptr;   // on which threads declare chunks ready
  uint32_t ready_for_ = 0;     // the start whose reset it has waited for
  // The streams that wait for words or write them, by id, and when they have done so for the last time.
  std::vector<std::pair<unsigned long long, CUevent>> users_;
};

}  // namespace axccl::exec
