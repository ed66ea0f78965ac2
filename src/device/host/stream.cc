#include "src/device/host/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/call_user.h"
#include "src/base/service_fd.h"
#include "src/device/host/current.h"
#include "src/device/host/workers.h"

namespace axccl::device::host {
namespace {

// A copy returns to the scheduler after this many bytes.
constexpr size_t kCopyStep = 1u << 20;

class Callback : public Work {
 public:
  Callback(void (*fn)(void*), void* argument, Workers::Lease lease)
      : fn_(fn), argument_(argument), lease_(std::move(lease)) {}
  Poll Progress() override {
    result_ = CallUser("a host function (axcclLaunchHostFunc)", [this] { fn_(argument_); });
    ForgetDevices();  // of the worker, which host functions of other streams share
    return Poll::kDone;
  }
  Status result() const override { return result_; }
  bool blocking() const override { return true; }

 private:
  void (*const fn_)(void*);
  void* const argument_;
  const Workers::Lease lease_;
  Status result_;
};

class MemoryCopy : public Work {
 public:
  MemoryCopy(void* dst, const void* src, size_t bytes)
      : dst_(static_cast<char*>(dst)), src_(static_cast<const char*>(src)), bytes_(bytes) {}
  Poll Progress() override {
    const size_t step = std::min(bytes_ - done_, kCopyStep);
    if (step != 0) std::memcpy(dst_ + done_, src_ + done_, step);
    done_ += step;
    return done_ == bytes_ ? Poll::kDone : Poll::kAgain;
  }

 private:
  char* const dst_;
  const char* const src_;
  const size_t bytes_;
  size_t done_ = 0;
};

// Takes a place in the order, and does nothing else.
class Nothing : public Work {
 public:
  Poll Progress() override { return Poll::kDone; }
};

}  // namespace

void Event::Record(Mark mark, Device* device) {
  std::lock_guard lock(mutex_);
  mark_ = std::move(mark);
  device_ = device;
}

Device* Event::device() const {
  std::lock_guard lock(mutex_);
  return device_;
}

Mark Event::mark() const {
  std::lock_guard lock(mutex_);
  return mark_;
}

Device::Device(int ordinal)
    : ordinal_(ordinal), queue_(Scheduler::Process().GetQueue(ordinal)), null_stream_(ordinal, true) {
  service::BindToProcess();  // the work in its streams does not survive a fork
}

namespace {
std::atomic<Device*> g_devices[kMaxDevices];
std::mutex g_devices_mutex;
std::mutex g_claims_mutex;
}  // namespace

Device* Device::Get(int ordinal) {
  Device* device = g_devices[ordinal].load(std::memory_order_acquire);
  if (device != nullptr) return device;
  std::lock_guard lock(g_devices_mutex);
  device = g_devices[ordinal].load(std::memory_order_acquire);
  if (device == nullptr) {
    device = new Device(ordinal);
    g_devices[ordinal].store(device, std::memory_order_release);
  }
  return device;
}

std::vector<Device*> Device::All() {
  std::vector<Device*> all;
  for (const std::atomic<Device*>& entry : g_devices) {
    if (Device* const device = entry.load(std::memory_order_acquire); device != nullptr) all.push_back(device);
  }
  return all;
}

DeviceHold Device::Hold() {
  holds_.fetch_add(1, std::memory_order_relaxed);
  return DeviceHold(this, LetGo);  // also if there is no memory for a hold
}

void Device::LetGo(Device* device) {
  std::lock_guard lock(g_claims_mutex);
  if (device->holds_.fetch_sub(1, std::memory_order_relaxed) == 1)
    device->claimed_.store(false, std::memory_order_relaxed);
}

Result<DeviceHold> Device::Claim() {
  std::unique_lock lock(g_claims_mutex);
  for (int ordinal = 0; ordinal < kMaxDevices; ++ordinal) {
    Device* const device = Get(ordinal);
    if (device->InUse()) continue;
    device->claimed_.store(true, std::memory_order_relaxed);
    (void)device->null_stream_.timeline()->TakeError();  // left by earlier users of the device
    device->holds_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();  // LetGo takes it
    return DeviceHold(device, LetGo);
  }
  return MakeStatus(
      Code::kInvalidUsage,
      "all %d host devices of the process are in use, and the calling thread has none: destroy "
      "communicators and streams, or end threads, that are no longer needed, or share a device on purpose with "
      "axcclHostSetDevice",
      kMaxDevices);
}

bool Device::InUse() {
  if (holds_.load(std::memory_order_relaxed) != 0 || !null_stream_.timeline()->Idle()) return true;
  std::lock_guard lock(mutex_);
  ForgetEndedStreams();
  return !streams_.empty();
}

void Device::ForgetEndedStreams() {
  std::erase_if(streams_, [](const Known& known) { return known.stream.expired() && known.timeline->Idle(); });
  const auto count = std::count_if(streams_.begin(), streams_.end(), [](const Known& known) { return known.blocking; });
  blocking_streams_.store(static_cast<int>(count), std::memory_order_release);
}

void Device::AddStream(const std::shared_ptr<Stream>& stream) {
  std::lock_guard lock(mutex_);
  streams_.push_back(Known{stream, stream->timeline(), stream->blocking()});
  ForgetEndedStreams();
}

void Device::AddLegacyMarks(const Stream* stream, std::vector<Mark>* marks) {
  const auto add = [marks](const TimelinePtr& timeline) {
    if (!timeline->Idle()) marks->push_back(Mark{timeline, timeline->issued()});
  };
  if (stream != &null_stream_) {
    if (stream->blocking()) add(null_stream_.timeline());
    return;
  }
  if (blocking_streams_.load(std::memory_order_acquire) == 0) return;
  std::lock_guard lock(mutex_);
  for (const Known& known : streams_) {
    if (known.blocking) add(known.timeline);
  }
}

bool Device::BlockingWorkPending() const {
  std::lock_guard lock(mutex_);
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Known& known) { return known.blocking && !known.timeline->Idle(); });
}

std::vector<Mark> Device::AllWork() {
  std::vector<Mark> marks{Mark{null_stream_.timeline(), null_stream_.timeline()->issued()}};
  std::lock_guard lock(mutex_);
  for (const Known& known : streams_) marks.push_back(Mark{known.timeline, known.timeline->issued()});
  return marks;
}

HandleTable<Event>& Events() {
  static auto* table = new HandleTable<Event>(0xae);
  return *table;
}

void Submit(Device* device, Stream* stream, std::shared_ptr<Work> work, std::vector<Mark> after) {
  auto item = std::make_unique<Item>();
  item->after = std::move(after);
  std::erase_if(item->after, [](const Mark& mark) { return mark.Reached(); });
  item->places.reserve(1);  // a ticket that is issued but never completed holds back its stream forever
  {
    std::lock_guard lock(device->submission());
    device->AddLegacyMarks(stream, &item->after);
    item->places.push_back(Place{stream->timeline(), stream->timeline()->Issue()});
  }
  item->work = std::move(work);
  device->queue()->Push(std::move(item));
  if (device->queue()->pending()) Scheduler::Process().LeftPending();
}

Mark RecordMark(Device* device, Stream* stream) {
  if (device->LegacyHolds(stream)) Submit(device, stream, MakeNothing());
  return Mark{stream->timeline(), stream->timeline()->issued()};
}

void WaitFor(Device* device, Stream* stream, Mark mark) {
  if (mark.timeline == nullptr) return;
  const bool waits = !mark.Reached() && mark.timeline != stream->timeline();
  // A wait on the NULL stream joins the blocking streams, whether or not the event has been reached.
  if (waits || device->LegacyHolds(stream)) Submit(device, stream, MakeNothing(), {std::move(mark)});
}

Mark Join(Device* device, std::vector<Mark> marks) {
  auto item = std::make_unique<Item>();
  item->work = MakeNothing();
  item->after = std::move(marks);
  const Mark joined{std::make_shared<Timeline>(), 1};
  item->places.push_back(Place{joined.timeline, joined.timeline->Issue()});
  device->queue()->Push(std::move(item));
  if (device->queue()->pending()) Scheduler::Process().LeftPending();
  return joined;
}

std::shared_ptr<Work> MakeNothing() { return std::make_shared<Nothing>(); }
Result<std::shared_ptr<Work>> MakeCallback(void (*fn)(void*), void* argument) {
  AXCCL_ASSIGN_OR_RETURN(Workers::Lease lease, Workers::Process().Take());
  return std::shared_ptr<Work>(std::make_shared<Callback>(fn, argument, std::move(lease)));
}
std::shared_ptr<Work> MakeCopy(void* dst, const void* src, size_t bytes) {
  return std::make_shared<MemoryCopy>(dst, src, bytes);
}

}  // namespace axccl::device::host
