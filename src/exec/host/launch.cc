// Groups on the host: which calls of a group form one launch.
//
// Channels of a group are launched separately unless they share a stream, or one is on the NULL stream and another on a
// blocking stream of the same device.
#include <algorithm>
#include <memory>
#include <utility>

#include "src/base/add_once.h"
#include "src/device/host/current.h"
#include "src/exec/host/lines.h"
#include "src/exec/host/local_copy.h"
#include "src/exec/host/operation.h"
#include "src/exec/host/rank.h"
#include "src/exec/host/standstill.h"
#include "src/exec/host/submit.h"

namespace axccl::exec {
namespace {

using device::host::Device;
using device::host::Item;
using device::host::Poll;
using device::host::Stream;
using device::host::TimelinePtr;

// A call that waits for its turn in a launch.
struct WaitingCall {
  std::shared_ptr<ChannelOwner> owner;
  std::shared_ptr<Channel> hold;  // must be destroyed before its owner
  Channel* on;
  Call call;

  Channel* channel() const { return on; }
  Result<std::unique_ptr<Operation>> Begin() const {
    auto begun = CatchAll(plan::KindName(call.kind), [this]() -> Result<std::unique_ptr<Operation>> {
      return std::make_unique<Operation>(on, call);
    });
    if (!begun.ok()) owner->Fail(begun.status());
    return begun;
  }
};

class Launch : public device::host::Work {
 public:
  void Reserve(size_t calls) { lines_.Reserve(calls); }
  void Add(StreamCall&& call) {
    WaitingCall waiting{std::move(call.owner), std::move(call.hold), call.channel, std::move(call.call)};
    if (call.local) {
      copies_.push_back(std::move(waiting));
    } else {
      lines_.Add(std::move(waiting));
    }
  }
  Poll Progress() override {
    for (const WaitingCall& copy : copies_) {
      if (!copy.owner->failed()) {
        CopyLocally(copy.call);
      } else if (copied_.ok()) {
        copied_ = copy.owner->Failure();  // its buffers may be gone
      }
    }
    copies_.clear();
    Poll poll = lines_.Progress();
    if (poll == Poll::kBlocked && !std::exchange(waited_, true) && HandOver()) poll = Poll::kDone;
    if (poll != Poll::kBlocked) return poll;
    // If there is no memory for a look, it is repeated later.
    bool stands_still = false;
    (void)CatchAll("looking for ranks that wait for each other",
                   [&] { return stands_still = StandsStill(), Status(); });
    return stands_still ? Poll::kAgain : Poll::kBlocked;
  }

  void Arm(int doorbell) override { lines_.Arm(doorbell); }
  device::host::Awaited awaited() const override { return lines_.awaited(); }
  Status result() const override { return copied_.ok() ? lines_.result() : copied_; }

  // For Handover::Run.
  Turn TakeTurn() {
    bool ready = false;
    lines_.ForEach([&](const Operation& first, size_t) { ready |= first.MayContinue(); });
    if (!ready) return Turn::kWaits;
    const Poll poll = lines_.Progress();
    return poll == Poll::kDone ? Turn::kEnded : poll == Poll::kAgain ? Turn::kMoved : Turn::kWaits;
  }
  bool AwaitsNeighbour() {
    bool awaits = false;
    lines_.ForEach([&](const Operation& first, size_t) { awaits |= first.AwaitsNeighbour(); });
    return awaits;
  }

 private:
  // As a call outside of a group does, once: the thread that makes the calls is mostly the first to drive them.
  bool HandOver() {
    const Channel* main = nullptr;
    lines_.ForEach([&](const Operation& first, size_t) { main = first.channel()->main(); });
    return HostChannel::Of(*main)->handover().Run(main->members(), this);
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

  std::vector<WaitingCall> copies_;
  Status copied_;
  Lines<Operation, WaitingCall> lines_;
  bool waited_ = false;
  Standstill standstill_;
};

Device* DeviceOf(const StreamCall& call) { return static_cast<const HostRank*>(call.device)->device(); }

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
    Stream* const stream = device->Effective(call.stream.host);
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

Status LaunchCluster(Cluster cluster) {
  if (cluster.calls.size() == 1 && !cluster.calls[0].local) {
    const StreamCall& call = cluster.calls[0];
    return EnqueueCall(DeviceOf(call), call.owner.get(), call.channel, call.call, cluster.streams[0]);
  }
  auto item = std::make_unique<Item>();
  auto launch = std::make_shared<Launch>();
  launch->Reserve(cluster.calls.size());
  Device* const device = cluster.devices[0];
  for (const Stream* stream : cluster.streams) AddOnce(&cluster.devices, Device::Get(stream->device()));
  std::sort(cluster.devices.begin(), cluster.devices.end());
  for (StreamCall& call : cluster.calls) {
    call.owner->CountOperation();
    launch->Add(std::move(call));
  }
  item->work = std::move(launch);
  Submit(std::move(item), device->queue(), cluster.devices, cluster.orders, cluster.streams);
  return Status();
}

}  // namespace

Status LaunchOnHost(std::vector<StreamCall> calls) {
  // Since they were added to the group.
  for (const StreamCall& call : calls) {
    if (call.owner->failed()) return call.owner->Failure();
  }
  if (calls.size() == 1 && !calls[0].local) {
    const StreamCall& call = calls[0];
    return call.device->LaunchOne(call.owner.get(), call.channel, call.call, call.stream);
  }
  for (Cluster& cluster : MakeClusters(std::move(calls))) AXCCL_RETURN_IF_ERROR(LaunchCluster(std::move(cluster)));
  return Status();
}

}  // namespace axccl::exec
