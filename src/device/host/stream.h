// Host devices, their streams and events (the objects behind axccl.h's handles).
//
// A stream is a timeline; waiting for something is work on it like any other. The NULL stream of a device is a timeline
// of its own with CUDA's legacy rule: work enqueued on it waits for the blocking streams, and they wait for it. So a
// caller that asks about a stream (synchronises, queries, records an event) also asks about the work that the legacy
// rule makes the stream wait for.
//
// Thread-safe, like CUDA's streams: calls from several threads on one stream are legal and get some order.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/handle_table.h"
#include "src/base/spin_lock.h"
#include "src/base/status.h"
#include "src/device/host/scheduler.h"
#include "src/device/host/timeline.h"

namespace axccl::device::host {

inline constexpr int kMaxDevices = 1024;

class Device;
// Keeps a device's number from being claimed for another thread while it lives.
using DeviceHold = std::shared_ptr<Device>;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(int device, bool blocking) : device_(device), blocking_(blocking), timeline_(std::make_shared<Timeline>()) {}

  int device() const { return device_; }
  bool blocking() const { return blocking_; }
  const TimelinePtr& timeline() const { return timeline_; }

 private:
  const int device_;
  const bool blocking_;
  const TimelinePtr timeline_;
};

class Event {
 public:
  // `device`: on which the work is; null: on several.
  void Record(Mark mark, Device* device);
  Mark mark() const;
  Device* device() const;

 private:
  mutable std::mutex mutex_;
  Mark mark_;
  Device* device_ = nullptr;
};

// One host device: its queue, its NULL stream, and its blocking streams.
class Device {
 public:
  // The device `ordinal` in [0, kMaxDevices). Created at first use, lives as long as the process.
  static Device* Get(int ordinal);
  // All devices that have been used.
  static std::vector<Device*> All();
  // Claims the first device that nothing uses: no hold, no stream, no work.
  static Result<DeviceHold> Claim();
  DeviceHold Hold();
  // Whether the number was claimed, not chosen, by the holder.
  bool claimed() const { return claimed_.load(std::memory_order_relaxed); }

  int ordinal() const { return ordinal_; }
  Queue* queue() const { return queue_; }
  Stream* null_stream() { return &null_stream_; }
  const Stream* null_stream() const { return &null_stream_; }
  // The stream that a call is enqueued on; null stands for the NULL stream.
  Stream* Effective(Stream* stream) { return stream != nullptr ? stream : &null_stream_; }

  // Held while tickets of the device's streams, or of communicators on it, are issued. Lock several devices in the
  // order of their addresses.
  SpinLock& submission() { return submission_; }
  // Adds what the legacy rule makes new work on `stream` wait for, besides the stream's earlier work. To be called
  // under the submission lock, for all streams that the work joins before its first ticket is issued; otherwise the
  // work would wait for itself.
  void AddLegacyMarks(const Stream* stream, std::vector<Mark>* marks);
  // Issues the next ticket of a stream on which new work need not wait for anything; otherwise returns false and issues
  // none. Under the submission lock.
  bool EnqueueIdle(Stream* stream, uint64_t* ticket) {
    Timeline* timeline = stream->timeline().get();
    if (!timeline->Idle() || LegacyHolds(stream)) return false;
    *ticket = timeline->Issue();
    return true;
  }
  // Whether the legacy rule makes new work on `stream` wait for another stream of the device.
  bool LegacyHolds(const Stream* stream) const {
    if (stream == &null_stream_) return blocking_streams_.load(std::memory_order_acquire) != 0 && BlockingWorkPending();
    return stream->blocking() && !null_stream_.timeline()->Idle();
  }
  // Everything enqueued so far on all streams of the device.
  std::vector<Mark> AllWork();

  void AddStream(const std::shared_ptr<Stream>& stream);

 private:
  explicit Device(int ordinal);
  static void LetGo(Device* device);  // the deleter of DeviceHold
  bool BlockingWorkPending() const;
  void ForgetEndedStreams();  // with mutex_ held
  bool InUse();

  SpinLock submission_;
  const int ordinal_;
  Queue* const queue_;
  Stream null_stream_;
  mutable std::mutex mutex_;
  struct Known {
    std::weak_ptr<Stream> stream;
    TimelinePtr timeline;  // outlives the stream: work enqueued on a destroyed stream still counts
    bool blocking;
  };
  std::vector<Known> streams_;            // guarded by mutex_
  std::atomic<int> blocking_streams_{0};  // entries of streams_ that are blocking
  std::atomic<int> holds_{0};
  std::atomic<bool> claimed_{false};
};

namespace internal {
// Never destroyed: threads of the program may use streams while the process ends.
union StreamTable {
  HandleTable<Stream> streams{0xa5};
  constexpr StreamTable() {}  // NOLINT: the default initialiser does it
  ~StreamTable() {}           // NOLINT: nothing is destroyed
};
inline constinit StreamTable g_table;
}  // namespace internal
inline HandleTable<Stream>& Streams() { return internal::g_table.streams; }
HandleTable<Event>& Events();

// Enqueues work on a stream of `device`; the work also waits for `after`.
void Submit(Device* device, Stream* stream, std::shared_ptr<Work> work, std::vector<Mark> after = {});
// The event "all work of `stream` so far, and what the legacy rule would make the next work wait for".
Mark RecordMark(Device* device, Stream* stream);
// Makes work that is enqueued on `stream` from now on wait for `mark`, and also waits for the stream itself.
void WaitFor(Device* device, Stream* stream, Mark mark);
// The event "all of these".
Mark Join(Device* device, std::vector<Mark> marks);
// Whether a stream has finished everything that RecordMark would stand for.
inline bool Through(const Device* device, const Stream* stream) {
  return stream->timeline()->Idle() && !device->LegacyHolds(stream);
}
// Work that only has a place in the order, work that calls fn(argument) on a worker, and work that copies memory.
std::shared_ptr<Work> MakeNothing();
Result<std::shared_ptr<Work>> MakeCallback(void (*fn)(void*), void* argument);
std::shared_ptr<Work> MakeCopy(void* dst, const void* src, size_t bytes);

}  // namespace axccl::device::host
