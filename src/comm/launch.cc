#include "src/comm/launch.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "src/base/spin_lock.h"
#include "src/comm/lines.h"
#include "src/device/host/current.h"
#include "src/device/host/waiting.h"
#include "src/exec/host/local_copy.h"
#include "src/exec/host/operation.h"
#include "src/exec/host/standstill.h"

namespace axccl::comm {
namespace {

using device::host::Device;
using device::host::Item;
using device::host::Poll;
using device::host::Scheduler;
using device::host::Stream;
using device::host::Timeline;
using device::host::TimelinePtr;

// Looks a lone call gives its peers before it returns with the operation under way: peers that call at the same time
// are a fraction of a microsecond apart, and finishing here saves the hand-over to the queue. Messages take longer than
// that.
constexpr int kLooks = 48;

class Launch : public device::host::Work {
 public:
  void Add(StreamCall call) {
    AddHold(std::move(call.hold));
    if (call.local) {
      copies_.push_back(call.call);
    } else {
      lines_.Add(exec::Operation(call.channel, call.call));
    }
    comms_.push_back(std::move(call.comm));
  }
  void Add(std::shared_ptr<Communicator> comm, exec::Operation operation) {
    AddHold(operation.channel()->Hold());
    lines_.Add(std::move(operation));
    comms_.push_back(std::move(comm));
  }

  Poll Progress() override {
    for (const exec::Call& copy : copies_) exec::CopyLocally(copy);
    copies_.clear();
    const Poll poll = lines_.Progress();
    if (poll != Poll::kBlocked) return poll;
    // A look that there is no memory for is made again.
    bool stands_still = false;
    (void)CatchAll("looking for ranks that wait for each other",
                   [&] { return stands_still = StandsStill(), Status(); });
    return stands_still ? Poll::kAgain : Poll::kBlocked;
  }

  void Arm(int doorbell) override { lines_.Arm(doorbell); }
  Status result() const override { return lines_.result(); }

 private:
  void AddHold(std::shared_ptr<exec::Channel> hold) {
    if (hold != nullptr) holds_.push_back(std::move(hold));
  }

  // Whether nothing moves any more, because ranks wait for each other; the communicator has failed then.
  bool StandsStill() {
    bool asks = false;
    lines_.ForEach([&](exec::Operation& first, size_t) { asks |= first.TakeStandstill(); });
    if (!asks) return false;
    std::vector<exec::Standstill::Calls> left;
    lines_.ForEach(
        [&](exec::Operation& first, size_t count) { left.push_back(exec::Standstill::CallsOf(first, count)); });
    return standstill_.Check(left);
  }

  std::vector<std::shared_ptr<Communicator>> comms_;
  std::vector<std::shared_ptr<exec::Channel>> holds_;  // gone before their communicators
  std::vector<exec::Call> copies_;
  Lines<exec::Operation> lines_;
  exec::Standstill standstill_;
};

Stream* Effective(const Communicator& comm, Stream* stream) {
  return stream != nullptr ? stream : comm.device()->null_stream();
}

template <class T>
void AddOnce(std::vector<T*>* list, T* item) {
  if (std::find(list->begin(), list->end(), item) == list->end()) list->push_back(item);
}

// Whether work enqueued on one of two streams waits for work on the other.
bool Ordered(const Stream* a, const Stream* b) {
  const Device* const device = Device::Get(a->device());
  const Device* const other = Device::Get(b->device());
  const bool a_null = a == device->null_stream(), b_null = b == other->null_stream();
  if (device != other) return a_null && b_null && device::host::NullStreamsJoined(device, other);
  return a == b || ((a_null || b_null) && a->blocking() && b->blocking());
}

// Calls that share an order of launches or a stream, or whose streams order each other, directly or through others: if
// one waited for another, as they would enqueued one by one, a peer that meets them the other way round would wait for
// ever.
struct Cluster {
  std::vector<Communicator*> comms;
  std::vector<const TimelinePtr*> orders;
  std::vector<Stream*> streams;
  std::vector<StreamCall> calls;

  bool Touches(const TimelinePtr& order, const Stream* stream) const {
    return std::any_of(orders.begin(), orders.end(), [&](const TimelinePtr* o) { return *o == order; }) ||
           std::any_of(streams.begin(), streams.end(),
                       [&](const Stream* s) { return stream != nullptr && Ordered(s, stream); });
  }
  void Absorb(Cluster&& other) {
    for (Communicator* comm : other.comms) AddOnce(&comms, comm);
    orders.insert(orders.end(), other.orders.begin(), other.orders.end());
    streams.insert(streams.end(), other.streams.begin(), other.streams.end());
    std::move(other.calls.begin(), other.calls.end(), std::back_inserter(calls));
  }
};

std::vector<Cluster> MakeClusters(std::vector<StreamCall> calls) {
  std::vector<Cluster> clusters;
  for (StreamCall& call : calls) {
    Communicator* comm = call.comm.get();
    Stream* stream = Effective(*comm, call.stream.host);
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
    AddOnce(&home->comms, comm);
    if (!home->Touches(order, nullptr)) home->orders.push_back(&order);
    AddOnce(&home->streams, stream);
    home->calls.push_back(std::move(call));
  }
  return clusters;
}

// What may want for memory comes before tickets are taken: one that nobody completes holds back its stream for ever.
void Submit(Cluster cluster) {
  auto item = std::make_unique<Item>();
  auto launch = std::make_shared<Launch>();
  for (const StreamCall& call : cluster.calls) launch->Add(call);
  item->places.reserve(cluster.orders.size() + cluster.streams.size());
  std::vector<Device*> devices;
  for (Communicator* comm : cluster.comms) AddOnce(&devices, comm->device());
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

  device::host::Queue* queue = cluster.comms[0]->device()->queue();
  for (const StreamCall& call : cluster.calls) call.comm->CountOperation();
  item->work = std::move(launch);
  queue->Push(std::move(item));
  if (queue->pending()) Scheduler::Process().LeftPending();
}

// Takes both tickets if the call could start this instant. A stream of another device takes the general way.
bool IssueIdle(Communicator* comm, Timeline* order, Stream* stream, uint64_t* launch_ticket, uint64_t* stream_ticket) {
  Device* device = comm->device();
  if (stream->device() != device->ordinal()) return false;
  if (stream == device->null_stream() && device::host::OtherNullStreamsHold(device)) return false;
  std::lock_guard lock(device->submission());
  if (!order->Idle() || !device->EnqueueIdle(stream, stream_ticket)) return false;
  *launch_ticket = order->Issue();
  return true;
}

std::vector<exec::GpuCall> MakeGpuCalls(const std::vector<StreamCall>& calls) {
  std::vector<exec::GpuCall> made;
  for (const StreamCall& call : calls)
    made.push_back(exec::GpuCall{call.comm->gpu(), call.channel, call.call, call.local, call.stream.cuda});
  return made;
}

// Peers may be waiting for what could not be enqueued. `launched`: the same calls.
Status SubmitToGpus(const std::vector<StreamCall>& calls, const std::vector<exec::GpuCall>& launched) {
  for (const StreamCall& call : calls) call.comm->CountOperation();
  const Status status = exec::LaunchOnGpus(launched);
  for (const StreamCall& call : calls) {
    if (!status.ok()) call.comm->Fail(status);
  }
  return status;
}

}  // namespace

Status LaunchOne(const std::shared_ptr<Communicator>& comm, exec::Channel* channel, const exec::Call& call,
                 StreamRef stream) {
  if (comm->gpu() != nullptr) return LaunchGroup({StreamCall{comm, channel, call, stream, nullptr, channel->Hold()}});
  Stream* effective = Effective(*comm, stream.host);
  device::host::Queue* queue = comm->device()->queue();
  uint64_t launch_ticket, stream_ticket;
  if (!queue->TryEnterIdle()) return LaunchGroup({StreamCall{comm, channel, call, stream, nullptr, channel->Hold()}});
  const TimelinePtr& order = channel->order();
  if (!IssueIdle(comm.get(), order.get(), effective, &launch_ticket, &stream_ticket)) {
    queue->Leave();
    return LaunchGroup({StreamCall{comm, channel, call, stream, nullptr, channel->Hold()}});
  }
  comm->CountOperation();
  exec::Operation operation(channel, call);
  Poll poll = operation.Progress();
  if (poll == Poll::kBlocked) {
    const bool may_pay = channel->remote() == nullptr && device::host::SpinLooks() > kLooks;
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
    launch->Add(comm, std::move(operation));
    item->work = std::move(launch);
    return queue->AddStarted(std::move(item)), Status();
  });
  if (!added.ok()) {
    // It is under way, and nobody will go on with it. Ranks of this process are let out of their steps with the
    // buffers.
    comm->Fail(added);
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

Status LaunchGroup(std::vector<StreamCall> calls) {
  const auto on_gpus = std::stable_partition(calls.begin(), calls.end(),
                                             [](const StreamCall& call) { return call.comm->gpu() == nullptr; });
  std::vector<StreamCall> gpu_calls(std::make_move_iterator(on_gpus), std::make_move_iterator(calls.end()));
  calls.erase(on_gpus, calls.end());
  // A peer that has left before is the call's own error; a kernel would wait for it.
  for (const StreamCall& call : gpu_calls) {
    const Status status = call.channel->members().Check(-1);
    if (!status.ok()) call.comm->Fail(status);
    AXCCL_RETURN_IF_ERROR(status);
  }
  std::vector<exec::GpuCall> launched = MakeGpuCalls(gpu_calls);
  if (!launched.empty()) AXCCL_RETURN_IF_ERROR(exec::PrepareLaunch(&launched));
  for (Cluster& cluster : MakeClusters(std::move(calls))) Submit(std::move(cluster));
  return gpu_calls.empty() ? Status() : SubmitToGpus(gpu_calls, launched);
}

}  // namespace axccl::comm
