// A receive from any rank: work that looks for a rank which has begun to send, and then receives from that one.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/device/host/waiting.h"
#include "src/exec/host/operation.h"
#include "src/exec/host/polling.h"
#include "src/exec/host/rank.h"
#include "src/exec/host/submit.h"
#include "src/exec/host/waited_time.h"

namespace axccl::exec {
namespace {

using Clock = std::chrono::steady_clock;
using device::host::Item;
using device::host::Poll;
using device::host::TimelinePtr;

class ReceiveFromAny final : public device::host::Work {
 public:
  ReceiveFromAny(ChannelOwner* owner, AnySource any) : owner_(owner->shared_from_this()), any_(std::move(any)) {
    for (const AnySource::Sender& sender : any_.from) holds_.push_back(sender.pair->Hold());
  }

  Poll Progress() override {
    if (operation_ == nullptr) {
      const Result<bool> found = CatchAll("receiving from any rank", [this] { return Find(); });
      if (!found.ok()) {
        polling_.End(false);
        owner_->Fail(result_ = found.status());
        return Poll::kDone;
      }
      if (!found.value()) return Poll::kBlocked;
    }
    const Poll poll = operation_->Progress();
    if (poll == Poll::kDone) result_ = operation_->status();
    return poll;
  }
  device::host::Awaited awaited() const override { return operation_ != nullptr ? operation_->awaited() : none_; }
  void Arm(int doorbell) override {
    if (operation_ != nullptr) return operation_->Arm(doorbell);
    any_.from[0].pair->own().header->waiter.store(static_cast<uint32_t>(doorbell) + 1, std::memory_order_seq_cst);
    if (doorbell == kNoDoorbell) return;
    polling_.End(true);
    last_look_ = true;
  }
  Status result() const override { return result_; }

 private:
  // Whether a rank has begun to send; then its message is the operation.
  Result<bool> Find() {
    if (owner_->failed()) return owner_->Failure();
    Listen();
    for (size_t i = 0; i < any_.from.size(); ++i) {
      const AnySource::Sender& sender = any_.from[i];
      AXCCL_ASSIGN_OR_RETURN(const bool sends, Sends(sender.pair));
      if (!sends) continue;
      operation_ = std::make_unique<Operation>(sender.pair, any_.call);
      polling_.End(false);
      if (any_.source != nullptr) *any_.source = sender.position;
      return true;
    }
    return CheckWait();
  }
  // Takes messages of other machines. (A process has one inbox.)
  void Listen() {
    for (const AnySource::Sender& sender : any_.from) {
      transport::Inbox* const inbox = sender.pair->members().inbox();
      if (inbox == nullptr) continue;
      if (!std::exchange(last_look_, false)) polling_.Begin(inbox);
      return inbox->Progress();
    }
  }
  // Whether the sender of the pair has begun the message that this rank would receive next.
  static Result<bool> Sends(Channel* pair) {
    if (pair->members().connector() != nullptr) {
      AXCCL_ASSIGN_OR_RETURN(const int missing, pair->members().Connect());
      if (missing >= 0) return false;
    }
    return pair->log().HasRecorded(1 - pair->self(), pair->log().next());
  }
  // Now and then: an error if a rank has failed, all have left, or this has lasted too long.
  Result<bool> CheckWait() {
    const auto now = Clock::now();
    const Clock::duration waited = waited_.At(now);
    if (now - checked_ < device::host::kCheckInterval) return false;
    checked_ = now;
    Status left;
    bool all_left = true;
    for (const AnySource::Sender& sender : any_.from) {
      const Members& members = sender.pair->members();
      AXCCL_RETURN_IF_ERROR(members.Check(-1));
      left = members.Check(1 - members.self());
      all_left = all_left && !left.ok();
    }
    // What a rank has sent before it left is there by now.
    for (const AnySource::Sender& sender : any_.from) {
      AXCCL_ASSIGN_OR_RETURN(const bool sends, Sends(sender.pair));
      if (sends) return false;
    }
    if (all_left) return left;
    return CheckTime(std::chrono::duration<double>(waited).count());
  }
  Result<bool> CheckTime(double waited) {
    const double own = any_.call.views->timeout_seconds;
    const Deadline limit = own > 0 ? Deadline{own, "of the call's options"} : owner_->deadline();
    const int rank = any_.from[0].pair->own().rank;
    const std::string what = "any rank in " + DescribeCall(any_.call) + " with tag " + std::to_string(any_.tag);
    if (limit.seconds > 0 && waited > limit.seconds)
      return MakeStatus(Code::kTimeout, "rank %d waited %.3g s for %s: deadline %s passed; no rank has sent one", rank,
                        limit.seconds, what.c_str(), limit.source);
    const double patience = owner_->notice_seconds();
    if (patience > 0 && waited > patience && !std::exchange(noticed_, true))
      log::WriteNotice("rank %d has waited %.3g s for %s; it goes on waiting (AXCCL_TIMEOUT, AXCCL_WAIT_NOTICE)", rank,
                       patience, what.c_str());
    return false;
  }

  const std::shared_ptr<ChannelOwner> owner_;
  const AnySource any_;
  std::vector<std::shared_ptr<Channel>> holds_;  // must be destroyed before their owner
  std::unique_ptr<Operation> operation_;
  const device::host::Awaited none_{};
  Polling polling_;
  bool last_look_ = false, noticed_ = false;
  WaitedTime waited_;
  Clock::time_point checked_{};
  Status result_;
};

}  // namespace

Status HostRank::ReceiveAny(ChannelOwner* owner, AnySource any, StreamRef stream) {
  auto item = std::make_unique<Item>();
  // It takes its place among the messages from each rank.
  std::vector<const TimelinePtr*> orders;
  for (const AnySource::Sender& sender : any.from) {
    const bool known = std::any_of(orders.begin(), orders.end(),
                                   [&](const TimelinePtr* order) { return *order == sender.pair->order(); });
    if (!known) orders.push_back(&sender.pair->order());
  }
  item->work = std::make_shared<ReceiveFromAny>(owner, std::move(any));
  owner->CountOperation();
  SubmitTo(device_->Effective(stream.host), std::move(item), device_, orders);
  return Status();
}

}  // namespace axccl::exec
