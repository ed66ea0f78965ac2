
// Launches on the host: which calls of a group form one launch, and a lone call on the caller's thread.
//
// Channels of a group are launched separately unless they share a stream, or one is on the NULL stream and another on a
// blocking stream of the same device.
#include <sched.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "src/base/add_once.h"
#include "src/base/spin_lock.h"
#include "src/device/host/current.h"
#include "src/device/host/waiting.h"
#include "src/exec/host/lines.h"
#include "src/exec/host/local_copy.h"
#include "src/exec/host/operation.h"
#include "src/exec/host/rank.h"
#include "src/exec/host/standstill.h"

namespace axccl::exec {
namespace {

using device::host::Device;
using device::host::Item;
using device::host::Poll;
using device::host::Queue;
using device::host::Scheduler;
using device::host::Stream;
using device::host::Timeline;
using device::host::TimelinePtr;

// Looks for its peers that a lone call makes before it returns with a running operation: peers that call at the same
// time are a fraction of a microsecond apart, and finishing here saves the hand-over to the queue. Messages take longer
// than that.
constexpr int kLooks = 48;

class Launch : public device::host::Work {
 public:
  void Add(StreamCall call) {
    AddHold(std::move(call.hold));
    if (call.local) {
      copies_.push_back(call.call);
    } else {
      lines_.Add(Operation(call.channel, call.call));
    }
    owners_.push_back(std::move(call.owner));
  }
  void Add(std::shared_ptr<ChannelOwner> owner, Operation operation) {
    AddHold(operation.channel()->Hold());
    lines_.Add(std::move(operation));
    owners_.push_back(std::move(owner));
  }

  Poll Progress() override {
    for (const Call& copy : copies_) CopyLocally(copy);
    copies_.clear();
    const Poll poll = lines_.Progress();
    if (poll != Poll::kBlocked) return poll;
    // If there is no memory for a look, it is repeated later.
    bool stands_still = false;
    (void)CatchAll("looking for ranks that wait for each other",
                   [&] { return stands_still = StandsStill(), Status(); });
    return stands_still ? Poll::kAgain : Poll::kBlocked;
  }

  void Arm(int doorbell) override { lines_.Arm(doorbell); }
  Status result() const override { return lines_.result(); }

 private:
  void AddHold(std::shared_ptr<Channel> hold) {
    if (hold != nullptr) holds_.push_back(std::move(hold));
  }

  // Whether nothing moves any more because ranks wait for each other; the communicator has failed then.
  bool StandsStill() {
    bool asks = false;
    lines_.ForEach([&](Operation& first, size_t) { asks |= first.TakeStandstill(); });
    if (!asks) return false;
    std::vector<Standstill::Calls> left;
    lines_.ForEach([&](Operation& first, size_t count) { left.push_back(Standstill::CallsOf(first, count)); });
    return standstill_.Check(left);
  }

  std::vector<std::shared_ptr<ChannelOwner>> owners_;
  std::vector<std::shared_ptr<Channel>> holds_;  // must be destroyed before their owners
  std::vector<Call> copies_;
  Lines<Operation> lines_;
  Standstill standstill_;
};

Device* DeviceOf(const StreamCall& call) { return static_cast<const HostRank*>(call.device)->device(); }

Stream* Effective(Device* device, Stream* stream) { return stream != nullptr ? stream : device->null_stream(); }

// Whether work enqueued on one of two streams waits for work on the other.
bool Ordered(const Stream* a, const Stream* b) {
  const Device* const device = Device::Get(a->device());
  const Device* const other = Device::Get(b->device());
  const bool a_null = a == device->null_stream(), b_null = b == other->null_stream();
  if (device != other) return a_null && b_null && device::host::NullStreamsJoined(device, other);
  return a == b || ((a_null || b_null) && a->blocking() && b->blocking());
}

// Calls that share an order of launches or a stream, or whose streams order each other, directly or through others. If
// such calls were enqueued one by one, one would wait for another, and a peer that makes them in the other order would
// wait forever.
struct Cluster {
  std::vector<Device*> devices;
  std::vector<const TimelinePtr*> orders;
  std::vector<Stream*> streams;
  std::vector<StreamCall> calls;

  bool Touches(const TimelinePtr& order, const Stream* stream) const {
    return std::any_of(orders.begin(), orders.end(), [&](const TimelinePtr* o) { return *o == order; }) ||
           std::any_of(streams.begin(), streams.end(),
                       [&](const Stream* s) { return stream != nullptr && Ordered(s, stream); });
  }
  void Absorb(Cluster&& other) {
    for (Device* device : other.devices) AddOnce(&devices, device);
    orders.insert(orders.end(), other.orders.begin(), other.orders.end());
    streams.insert(streams.end(), other.streams.begin(), other.streams.end());
    std::move(other.calls.begin(), other.calls.end(), std::back_inserter(calls));
  }
};

std::vector<Cluster> MakeClusters(std::vector<StreamCall> calls) {
  std::vector<Cluster> clusters;
  for (StreamCall& call : calls) {
    Device* const device = DeviceOf(call);
    Stream* const stream = Effective(device, call.stream.host);
    const TimelinePtr& order = call.channel->order();
    Cluster* home = nullptr;
    for (size_t i = 0; i < clusters.size();) {
      if (!clusters[i].Touches(order, stream)) {
        ++i;
      } else if (home == nullptr) {
        home = &clusters[i++];
      } else {
        home->Absorb(std::move(clusters[i]));
        clusters.erase(clusters.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    if (home == nullptr) home = &clusters.emplace_back();
    AddOnce(&home->devices, device);
    if (!home->Touches(order, nullptr)) home->orders.push_back(&order);
    AddOnce(&home->streams, stream);
    home->calls.push_back(std::move(call));
  }
  return clusters;
}

// Everything that may run out of memory comes before tickets are issued: a ticket that is never completed holds back
// its stream forever.
void Submit(Cluster cluster) {
  auto item = std::make_unique<Item>();
  auto launch = std::make_shared<Launch>();
  for (const StreamCall& call : cluster.calls) launch->Add(call);
  item->places.reserve(cluster.orders.size() + cluster.streams.size());
  Queue* const queue = cluster.devices[0]->queue();
  std::vector<Device*> devices = cluster.devices;
  for (Stream* stream : cluster.streams) AddOnce(&devices, Device::Get(stream->device()));
  std::sort(devices.begin(), devices.end());
  std::vector<std::unique_lock<SpinLock>> locks;
  for (Device* device : devices) locks.emplace_back(device->submission());
  for (Stream* stream : cluster.streams) {
    Device* const device = Device::Get(stream->device());
    device->AddLegacyMarks(stream, &item->after);
    if (stream == device->null_stream()) device::host::AddOtherNullMarks(device, &item->after);
  }
  for (const TimelinePtr* order : cluster.orders)
    item->places.push_back(device::host::Place{*order, (*order)->Issue()});
  for (Stream* stream : cluster.streams) item->places.push_back({stream->timeline(), stream->timeline()->Issue()});
  locks.clear();

  for (const StreamCall& call : cluster.calls) call.owner->CountOperation();
  item->work = std::move(launch);
  queue->Push(std::move(item));
  if (queue->pending()) Scheduler::Process().LeftPending();
}

// Issues both tickets if the call could start at once. A stream of another device takes the general way.
bool IssueIdle(Device* device, Timeline* order, Stream* stream, uint64_t* launch_ticket, uint64_t* stream_ticket) {
  if (stream->device() != device->ordinal()) return false;
  if (stream == device->null_stream() && device::host::OtherNullStreamsHold(device)) return false;
  std::lock_guard lock(device->submission());
  if (!order->Idle() || !device->EnqueueIdle(stream, stream_ticket)) return false;
  *launch_ticket = order->Issue();
  return true;
}

}  // namespace

Status HostRank::LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) {
  const auto behind = [&] {
    return LaunchOnHost({StreamCall{owner->shared_from_this(), this, channel, call, stream, nullptr, channel->Hold()}});
  };
  Stream* const effective = Effective(device_, stream.host);
  Queue* const queue = device_->queue();
  uint64_t launch_ticket, stream_ticket;
  if (!queue->TryEnterIdle()) return behind();
  const TimelinePtr& order = channel->order();
  if (!IssueIdle(device_, order.get(), effective, &launch_ticket, &stream_ticket)) {
    queue->Leave();
    return behind();
  }
  owner->CountOperation();
  Operation operation(channel, call);
  Poll poll = operation.Progress();
  if (poll == Poll::kBlocked) {
    const bool may_pay = channel->members().inbox() == nullptr && device::host::SpinLooks() > kLooks;
    for (int looks = may_pay ? kLooks : 1; poll == Poll::kBlocked && looks > 0; --looks) {
      device::host::CpuRelax();
      poll = operation.Progress();
    }
  }
  if (poll == Poll::kDone) {
    if (!operation.status().ok()) effective->timeline()->SetError(operation.status());
    order->Done(launch_ticket);
    effective->timeline()->Done(stream_ticket);
    queue->LeaveAndNotify(order.get(), effective->timeline().get());
    // A peer that had left before is the call's own error.
    return operation.status().code() == Code::kRemoteError ? operation.status() : Status();
  }
  const Status added = CatchAll(plan::KindName(call.kind), [&] {
    auto launch = std::make_shared<Launch>();
    auto item = std::make_unique<Item>();
    item->places = {{order, launch_ticket}, {effective->timeline(), stream_ticket}};
    launch->Add(owner->shared_from_this(), std::move(operation));
    item->work = std::move(launch);
    return queue->AddStarted(std::move(item)), Status();
  });
  if (!added.ok()) {
    // The operation is running, and no thread will continue it. Ranks of this process leave their steps with its
    // buffers.
    owner->Fail(added);
    while (operation.Progress() != Poll::kDone) sched_yield();
    order->Done(launch_ticket);
    effective->timeline()->Done(stream_ticket);
    queue->LeaveAndNotify(order.get(), effective->timeline().get());
    return added;
  }
  queue->Leave();
  Scheduler::Process().LeftPending();
  return Status();
}

Status LaunchOnHost(std::vector<StreamCall> calls) {
  for (Cluster& cluster : MakeClusters(std::move(calls))) Submit(std::move(cluster));
  return Status();
}

}  // namespace axccl::exec
