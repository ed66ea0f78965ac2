// One rank's end of a part of a pipeline, as the ranks of its process see it that want copy engines.
//
// Copy engines know no plans, and what is enqueued for them cannot be taken back. So ranks that use them have to know
// each other's buffers before they enqueue, and when one of them gives up, what was enqueued must be let go on all of
// them without harm: chunks that arrive from then on count as failed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/channel/start_stamps.h"
#include "src/exec/platform/pipeline.h"

namespace axccl::exec {

class CopyEnd {
 public:
  // A signal that the rank waits for: the value-th one of an endpoint, in a lane of a member.
  struct Signal {
    int from = 0;
    uint32_t lane = 0, endpoint = 0, value = 0;
    friend auto operator<=>(const Signal&, const Signal&) = default;
  };

  // `copies`: whether the rank wants copy engines. `signature`: of the call and its plan. `stamps` must outlive starts
  // of other ranks, until Close; `begun`: the first word of StartStamps::begun, as the device sees it.
  static Result<std::shared_ptr<CopyEnd>> Make(const device::cuda::Device& device, const PipelinePart& part,
                                               bool copies, uint32_t signature, const StartStamps& stamps,
                                               const uint32_t* begun);
  ~CopyEnd();
  CopyEnd(const CopyEnd&) = delete;

  bool copies() const { return copies_; }
  uint32_t signature() const { return signature_; }
  const Call& call() const { return call_; }
  int rank() const { return rank_; }

  // Words in memory of the host.
  // The number of the start in which a signal has come; null if the rank does not wait for it.
  uint32_t* FlagOf(const Signal& signal);
  // What becomes the word of a chunk that has come: Pipeline::kThere, until the end is broken.
  const uint32_t* truth() const { return words_ + kTruth; }
  // Streams note that the words of a start have been reset, and that it has ended, and wait for that, or until they are
  // let go. The host sees what they have noted.
  Status WriteBegun(uint32_t start, CUstream stream) { return WriteWord(begun_, start, stream); }
  Status AwaitBegun(uint32_t start, CUstream stream) { return AwaitWord(begun_, start, stream); }
  Status WriteEnded(uint32_t start, CUstream stream);
  Status AwaitEnded(uint32_t start, CUstream stream) { return AwaitWord(words_ + kEnded, start, stream); }
  bool has_begun(uint32_t start) const { return Reached(stamps_.begun(), start); }
  bool has_ended(uint32_t start) const { return Reached(words_ + kDone, start); }
  // The last start that has ended.
  uint32_t ended() const { return __atomic_load_n(words_ + kDone, __ATOMIC_ACQUIRE); }
  // The last start that copy engines have been told of.
  std::atomic<uint32_t> enqueued{0};

  // Words that count starts: streams store them and wait for them, and the host looks.
  static Status WriteWord(const uint32_t* word, uint32_t value, CUstream stream);
  static Status AwaitWord(const uint32_t* word, uint32_t value, CUstream stream);
  static bool Reached(const uint32_t* word, uint32_t value);

  // From now on, no chunk comes any more.
  void Break();
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // The last start in which a chunk came.
  uint32_t CameIn(size_t chunk) const;
  // Lets everything go on that waits for signals of starts up to `start`, or for their beginning, and, once the end is
  // idle, for the end of those that have not been enqueued. Must follow Break of all ends. Signals of earlier starts
  // may still come and overwrite what this stores, so it must be called again until the end is idle.
  void LetGo(uint32_t start);
  // Whether nothing that was enqueued runs any more.
  bool idle() const;

  // `reader` will read this rank's memory. Returns false if it must not, because the end is broken. What has ended in
  // order has no reads left.
  bool AddReader(const std::shared_ptr<CopyEnd>& reader);
  // Whether this rank's memory stays until a reader's start ends, which is in `enqueued` already.
  bool Admits(uint32_t start) const;
  // The rank's pipeline is about to go, in order: its starts have ended. Returns an error, and nothing has changed, if
  // a reader has begun another one.
  Status Leave();
  void Stay();  // after all
  // The rank's pipeline goes. Unless it does so in order, waits until nobody reads its memory: all readers have been
  // let go then, or soon will be.
  void Close();

 private:
  enum : size_t { kTruth, kEnded, kDone, kFlags };

  CopyEnd(const PipelinePart& part, bool copies, uint32_t signature, const StartStamps& stamps, const uint32_t* begun);
  Status CheckReaders() const;

  const bool copies_;
  const uint32_t signature_;
  const Call call_;
  const int rank_;
  const StartStamps stamps_;
  const uint32_t* const begun_;
  std::vector<Signal> signals_;                   // sorted
  const device::cuda::Device* device_ = nullptr;  // whose memory these are
  uint32_t* words_ = nullptr;                     // kTruth, ..., then a flag for each signal
  mutable std::mutex mutex_;                      // of Break and readers
  std::vector<std::weak_ptr<CopyEnd>> readers_;
  std::atomic<bool> broken_{false};
  // Whether the rank's pipeline is there; kLeft: all its starts have ended; kGone: not so.
  enum class State : uint8_t { kHere, kLeft, kGone };
  State state_ = State::kHere;
};

// The ends of all ranks of a part. They stay until the last rank has left, because a rank may be done before another
// one has looked for it. Thread-safe.
class CopyGroup {
 public:
  // The same for all ranks of a part, and for no other part of the process.
  using Key = std::pair<const void*, uint64_t>;
  static std::shared_ptr<CopyGroup> Join(const Key& key, size_t ranks, size_t position, std::shared_ptr<CopyEnd> end);
  ~CopyGroup();
  CopyGroup(const CopyGroup&) = delete;

  // In the order of the ranks; empty until all have joined.
  std::vector<std::shared_ptr<CopyEnd>> Ends() const;

 private:
  explicit CopyGroup(const Key& key) : key_(key) {}

  const Key key_;
  std::vector<std::shared_ptr<CopyEnd>> ends_;
};

}  // namespace axccl::exec
