// Pipelines of host ranks: starts, and what waits for them, as work of the rank's queue.
//
// A start is an item on two timelines: the order of the channel, and the pipeline's own. It begins once the caller's
// stream has reset the words, which is another item, on that stream, unless the stream is idle. If nothing has to be
// waited for, both happen in the call. Between start and end the queue is attended (scheduler.h). All of these are
// recycled items that point to this object, so a start allocates nothing once there have been some like it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/spin_lock.h"
#include "src/device/host/stream.h"
#include "src/exec/host/sliced_run.h"
#include "src/exec/host/standstill.h"
#include "src/exec/platform/pipeline.h"

namespace axccl::exec {

class HostPipeline final : public Pipeline, public std::enable_shared_from_this<HostPipeline> {
 public:
  // As RankDevice::MakePipeline.
  static Result<std::shared_ptr<Pipeline>> Make(device::host::Device* device, const Channel& on,
                                                std::vector<PipelinePart> parts);
  ~HostPipeline() override;

  Status Start(StreamRef stream) override;
  Status Finish(StreamRef stream) override;
  Status Wait(int64_t chunk) override;
  Result<bool> Test(int64_t chunk) override;
  Status StreamWait(int64_t chunk, StreamRef stream) override;
  void Ready(int64_t chunk) override;
  Status StreamReady(int64_t chunk, StreamRef stream) override;
  void WaitIdle() override;
  Word* Expose(Side side) override;
  size_t scratch_bytes() const override;
  size_t memory_bytes() const override;

 private:
  class Reset;
  class Run;
  class Ending;
  class ChunkWait;
  class ChunkReady;
  friend class PipelineItem;

  HostPipeline(device::host::Device* device, const Channel& on)
      : device_(device), owner_(on.owner()), order_(on.order()) {}
  Status MakeRuns(std::vector<PipelinePart> parts);
  // Returns whether it has ended.
  static bool RunStart(Run* run);
  // Returns false, and does nothing, if the start has to wait for earlier work.
  bool StartAtOnce(device::host::Stream* stream, std::unique_ptr<Run>* run);
  bool IssueIdle(device::host::Stream* stream, uint64_t* order, uint64_t* own);
  bool IsAtStart(device::host::Stream* stream, uint64_t start) const;
  void ResetWords(uint64_t start);
  device::host::Poll Progress(uint64_t start);
  void CountReady(const Word& word);
  void NoteFailure(Status status);
  void FillZeros();
  bool Differs();
  bool StandsStill();
  void Arm(int doorbell);
  device::host::Awaited awaited() const { return runs_.size() == 1 ? runs_[0]->awaited() : device::host::Awaited(); }
  void End(uint64_t start);
  // Whether the chunk's state in that start is known: its word is not 0, or a later start, which begins behind it, has
  // reset the words.
  bool Said(const Word& word, uint64_t start) const {
    const uint64_t reset = reset_.load(std::memory_order_acquire);
    return reset > start || (reset == start && word.load(std::memory_order_acquire) != kNotYet);
  }
  // Why chunks do not come.
  Status Failure() const;
  Status ResultOf(const Word& word) const {
    return word.load(std::memory_order_acquire) == kThere ? Status() : Failure();
  }

  device::host::Device* const device_;
  ChannelOwner* const owner_;  // alive while the communicator is
  const device::host::TimelinePtr timeline_ = std::make_shared<device::host::Timeline>();
  const device::host::TimelinePtr order_;  // of the channel
  size_t chunks_[2] = {};
  std::unique_ptr<Word[]> words_;  // of the input, then of the output
  std::vector<std::unique_ptr<SlicedRun>> runs_;
  std::vector<Call> zeros_;     // outputs that get nothing
  Word* zero_words_ = nullptr;  // and their words: the last ones
  std::vector<bool> run_ended_;
  Standstill standstill_;  // of a start that stands still
  std::atomic<uint64_t> starts_{0};
  std::atomic<uint64_t> reset_{0}, ended_{0};  // the last start for which that has happened
  // For the thread that drives.
  uint64_t begun_ = 0;
  bool only_looks_ = false;
  SpinLock ready_lock_;
  std::vector<uint32_t> ready_early_;  // input chunks that were declared ready before the words were reset
  std::atomic<bool> exposed_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Status failure_;
};

}  // namespace axccl::exec
