// Calls outside of a group, or alone in one: on the caller's thread as far as they go without waiting for long, and
// then as work of the device's queue. A call allocates nothing once there have been some like it.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "src/base/backoff.h"
#include "src/base/recycled.h"
#include "src/device/host/current.h"
#include "src/device/host/waiting.h"
#include "src/exec/host/operation.h"
#include "src/exec/host/plain_call.h"
#include "src/exec/host/rank.h"
#include "src/exec/host/standstill.h"
#include "src/exec/host/submit.h"

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

// Looks for its peers that a call makes before it returns with a running operation: peers that call at the same time
// are a fraction of a microsecond apart, and finishing here saves the hand-over to the queue. Messages take longer than
// that.
constexpr int kLooks = 64;

// An operation under way in the queue.
struct Running final : Recycled<Running> {
  explicit Running(Operation&& moved) : operation(std::move(moved)) {}
  Operation operation;
  Standstill standstill;
};

// A call that is not done at once. Its operation is made when the call starts, so that a call that waits for others
// needs little memory.
class LoneCall final : public Item, public device::host::Work, public Recycled<LoneCall> {
 public:
  LoneCall(ChannelOwner* owner, Channel* channel, const Call& call)
      : owner_(owner->shared_from_this()), hold_(channel->Hold()), channel_(channel), call_(call) {
    work = std::shared_ptr<device::host::Work>(std::shared_ptr<void>(), this);  // the item lives as long as it
    places.reserve(2);
  }
  // Takes over an operation that has begun.
  void Begin(Operation&& operation) { running_ = std::make_unique<Running>(std::move(operation)); }

  Poll Progress() override {
    const char* const name = plan::KindName(call_.kind);
    if (running_ == nullptr) {
      result_ = CatchAll(name, [this] { return Begin(Operation(channel_, call_)), Status(); });
      if (!result_.ok()) return owner_->Fail(result_), Poll::kDone;
    }
    Operation& operation = running_->operation;
    const Poll poll = operation.Progress();
    if (poll == Poll::kDone) result_ = operation.status();
    if (poll != Poll::kBlocked || !operation.TakeStandstill()) return poll;
    // If there is no memory for a look, it is repeated later.
    bool stands_still = false;
    (void)CatchAll(name, [&] {
      const std::array<Standstill::Calls, 1> left{Standstill::CallsOf(operation, 1)};
      return stands_still = running_->standstill.Check(left), Status();
    });
    return stands_still ? Poll::kAgain : Poll::kBlocked;
  }
  device::host::Awaited awaited() const override { return running_->operation.awaited(); }
  void Arm(int doorbell) override { running_->operation.Arm(doorbell); }
  Status result() const override { return result_; }

 private:
  const std::shared_ptr<ChannelOwner> owner_;
  const std::shared_ptr<Channel> hold_;  // must be destroyed before its owner
  Channel* const channel_;
  const Call call_;
  std::unique_ptr<Running> running_;
  Status result_;
};

// A call that has the run lock of the rank's queue, and its places in the order.
struct Started {
  ChannelOwner* owner;
  Queue* queue;
  const TimelinePtr* order;
  const TimelinePtr* stream;
  uint64_t order_ticket, stream_ticket;

  void Leave() const {
    (*order)->Done(order_ticket);
    (*stream)->Done(stream_ticket);
    queue->LeaveAndNotify(order->get(), stream->get());
  }
};

// Issues both tickets if the call could start at once. A stream of another device takes the general way. Throws
// nothing.
bool IssueIdle(Device* device, Timeline* order, Stream* stream, uint64_t* order_ticket, uint64_t* stream_ticket) {
  if (stream->device() != device->ordinal()) return false;
  const std::lock_guard lock(device->submission());
  if (!order->Idle() || !device->EnqueueIdle(stream, stream_ticket)) return false;
  *order_ticket = order->Issue();
  return true;
}

// The number of looks at what a call waits for: few if they have not paid lately.
int Looks(const Channel& channel) {
  return channel.members().inbox() == nullptr && device::host::SpinLooks() > kLooks ? kLooks : 1;
}

// Waits a little longer where ranks share cores. Call: as Handover::Run wants it.
template <class Call>
bool HandOver(const Channel& channel, Call* call) {
  return HostChannel::Of(channel)->handover().Run(channel.members(), call);
}

// Runs an operation as far as it goes, and leaves the rest to the queue. `looks`: 0 if it has waited already.
Status Continue(const Started& started, Operation operation, int looks) {
  const bool waits = looks > 0;
  Poll poll = operation.Progress();
  for (; poll == Poll::kBlocked && looks > 0; --looks) {
    device::host::CpuRelax();
    poll = operation.Progress();
  }
  if (poll == Poll::kBlocked && waits && HandOver(*operation.channel(), &operation))
    poll = operation.finished() ? Poll::kDone : Poll::kAgain;
  if (poll == Poll::kDone) {
    if (!operation.status().ok()) (*started.stream)->SetError(operation.status());
    started.Leave();
    // A peer that had left before is the call's own error.
    return operation.status().code() == Code::kRemoteError ? operation.status() : Status();
  }
  const Status added = CatchAll(plan::KindName(operation.call().kind), [&] {
    auto item = std::make_unique<LoneCall>(started.owner, operation.channel(), operation.call());
    item->Begin(std::move(operation));
    item->places.push_back({*started.order, started.order_ticket});
    item->places.push_back({*started.stream, started.stream_ticket});
    return started.queue->AddStarted(std::move(item)), Status();
  });
  if (!added.ok()) {
    // The operation is running, and no thread will continue it. Ranks of this process leave their steps with its
    // buffers.
    started.owner->Fail(added);
    for (Backoff backoff; operation.Progress() != Poll::kDone;) backoff.Wait();
    started.Leave();
    return added;
  }
  started.queue->Leave();
  Scheduler::Process().LeftPending();
  return Status();
}

// These get copies, so that what the caller has stays in registers.
[[gnu::noinline]] Status RunOperation(Started started, Channel* channel, const Call& call) {
  return Continue(started, Operation(channel, call), Looks(*channel));
}

[[gnu::noinline]] Status RunRest(Started started, Channel* channel, const Call& call, PlainCall begun) {
  bool ended = false;
  for (int looks = Looks(*channel); looks > 0 && !ended; --looks) {
    device::host::CpuRelax();
    ended = begun.TakeTurn() == Turn::kEnded;
  }
  if (ended || HandOver(*channel, &begun)) {
    begun.End();
    started.Leave();
    return Status();
  }
  return Continue(started, Operation(channel, call, begun), 0);
}

}  // namespace

[[gnu::noinline]] Status EnqueueCall(Device* device, ChannelOwner* owner, Channel* channel, const Call& call,
                                     Stream* stream) {
  auto item = std::make_unique<LoneCall>(owner, channel, call);
  const std::array<const TimelinePtr*, 1> orders{&channel->order()};
  owner->CountOperation();
  SubmitTo(stream, std::move(item), device, orders);
  return Status();
}

Status HostRank::LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef ref) {
  Stream* const stream = device_->Effective(ref.host);
  Queue* const queue = device_->queue();
  if (device::host::OtherNullStreamsHold(device_, stream) || !queue->TryEnterIdle())
    return EnqueueCall(device_, owner, channel, call, stream);
  Started started{owner, queue, &channel->order(), &stream->timeline(), 0, 0};
  if (!IssueIdle(device_, channel->order().get(), stream, &started.order_ticket, &started.stream_ticket)) {
    queue->Leave();
    return EnqueueCall(device_, owner, channel, call, stream);
  }
  // An abort waits for those that have entered the queue.
  if (owner->failed()) [[unlikely]] {
    started.Leave();
    return owner->Failure();
  }
  owner->CountOperation();
  PlainCall plain;
  if (!plain.Begin(channel, call)) return RunOperation(started, channel, call);
  if (!plain.Run()) return RunRest(started, channel, call, plain);
  plain.End();
  started.Leave();
  return Status();
}

}  // namespace axccl::exec
