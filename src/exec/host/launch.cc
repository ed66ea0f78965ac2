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

class Launch : public device::host::Work {
 public:
  void Add(StreamCall call) {
    if (call.hold != nullptr) holds_.push_back(std::move(call.hold));
    if (call.local) {
      copies_.push_back(call.call);
    } else {
      lines_.Add(Operation(call.channel, call.call));
    }
    owners_.push_back(std::move(call.owner));
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
  device::host::Awaited awaited() const override { return lines_.awaited(); }
  Status result() const override { return lines_.result(); }

 private:
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

void LaunchCluster(const Cluster& cluster) {
  auto item = std::make_unique<Item>();
  auto launch = std::make_shared<Launch>();
  for (const StreamCall& call : cluster.calls) launch->Add(call);
  item->work = std::move(launch);
  std::vector<Device*> devices = cluster.devices;
  for (const Stream* stream : cluster.streams) AddOnce(&devices, Device::Get(stream->device()));
  std::sort(devices.begin(), devices.end());
  for (const StreamCall& call : cluster.calls) call.owner->CountOperation();
  Submit(std::move(item), cluster.devices[0]->queue(), devices, cluster.orders, cluster.streams);
}

}  // namespace

Status LaunchOnHost(std::vector<StreamCall> calls) {
  for (const Cluster& cluster : MakeClusters(std::move(calls))) LaunchCluster(cluster);
  return Status();
}

}  // namespace axccl::exec
