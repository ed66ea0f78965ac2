#include "src/device/host/queue.h"

#include <algorithm>
#include <utility>

#include "src/device/host/scheduler.h"
#include "src/device/host/workers.h"

namespace axccl::device::host {
namespace {

// Items of other threads that a push gives a turn: few enough to cost nothing, and enough that a thread which enqueues
// all the time advances what it has enqueued.
constexpr size_t kTurns = 4;
// After it has started so many items, a thread leaves what has arrived meanwhile to others: a thread that enqueues all
// the time would keep it from its own work, and from other queues, for as long.
constexpr uint64_t kMostStarted = 256;

}  // namespace

void Item::GoOn(std::unique_ptr<Waiter> self) {
  Queue* const home = queue;
  home->TakeBack(std::unique_ptr<Item>(static_cast<Item*>(self.release())));
}

bool Item::Park(std::unique_ptr<Item>* self) {
  const Item& item = **self;
  const auto wait = [self](const TimelinePtr& timeline, uint64_t ticket) {
    if (timeline == nullptr || timeline->Reached(ticket)) return false;
    std::unique_ptr<Waiter> waiter = std::move(*self);
    // Once parked, the item may be started, finished and destroyed: do not touch `timeline` again.
    const TimelinePtr keep = timeline;
    if (keep->Park(ticket, &waiter)) return true;
    self->reset(static_cast<Item*>(waiter.release()));
    return false;
  };
  for (const Place& place : item.places) {
    if (wait(place.timeline, place.ticket)) return true;
  }
  for (const Mark& mark : item.after) {
    if (wait(mark.timeline, mark.ticket)) return true;
  }
  return wait(item.behind.timeline, item.behind.ticket);
}

void Item::Finish() {
  const Status status = work->result();
  for (const Place& place : places) {
    if (!status.ok()) place.timeline->SetError(status);
    place.timeline->Complete(place.ticket);
  }
}

void Queue::AddToInbox(std::unique_ptr<Item> item) {
  {
    std::lock_guard lock(inbox_mutex_);
    item->next = std::move(inbox_);
    inbox_ = std::move(item);
  }
  has_inbox_.store(true, std::memory_order_seq_cst);
}

void Queue::Push(std::unique_ptr<Item> item) {
  pending_.fetch_add(1, std::memory_order_seq_cst);
  item->queue = this;
  AddToInbox(std::move(item));
  Serve(kTurns);
}

void Queue::TakeBack(std::unique_ptr<Item> item) { AddToInbox(std::move(item)); }

bool Queue::TakeInbox() {
  if (!has_inbox_.load(std::memory_order_relaxed)) return false;
  has_inbox_.store(false, std::memory_order_seq_cst);
  std::unique_ptr<Item> taken;
  {
    std::lock_guard lock(inbox_mutex_);
    taken = std::move(inbox_);
  }
  std::unique_ptr<Item> ordered;
  while (taken != nullptr) {
    std::unique_ptr<Item> rest = std::move(taken->next);
    taken->next = std::move(ordered);
    ordered = std::exchange(taken, std::move(rest));
  }
  bool advanced = false;
  while (ordered != nullptr) {
    std::unique_ptr<Item> rest = std::move(ordered->next);
    advanced |= Start(std::exchange(ordered, std::move(rest)));
    CountLook();
  }
  return advanced;
}

// Starts what has arrived, or parks it. A start counts as an advance even if the work is blocked: it has not been
// armed, so sleepers must look again.
bool Queue::Start(std::unique_ptr<Item> item) {
  if (item->run_elsewhere) {
    End(item.get());
    ended_.Add(std::move(item));
    return true;
  }
  if (Item::Park(&item)) return false;
  bool advanced = false;
  if (item->work->blocking()) {
    RunOnWorker(std::move(item));
  } else if (PollItem(item.get(), &advanced)) {
    KeepStarted(std::move(item));
  } else {
    ended_.Add(std::move(item));
  }
  return true;
}

void Queue::KeepStarted(std::unique_ptr<Item> item) {
  item->next = std::move(started_);
  started_ = std::move(item);
  ++count_;
}

void Queue::RunOnWorker(std::unique_ptr<Item> item) {
  Workers::Process().Run([this, item = item.release()] {
    item->work->Progress();
    item->run_elsewhere = true;
    // The thread that drives now, or the next one that does, ends it.
    TakeBack(std::unique_ptr<Item>(item));
    Drive();
    Scheduler::Process().Notify();
    if (pending()) Scheduler::Process().LeftPending();
  });
}

void Queue::End(Item* item) {
  item->Finish();
  pending_.fetch_sub(1, std::memory_order_seq_cst);
}

bool Queue::PollItem(Item* item, bool* advanced) {
  const Poll poll = item->work->Progress();
  if (poll == Poll::kDone) End(item);
  *advanced |= poll != Poll::kBlocked;
  return poll != Poll::kDone;
}

bool Queue::PollStarted(size_t turns) {
  bool advanced = false;
  for (size_t left = std::min(turns, count_); left > 0; --left) {
    if (*turn_ == nullptr) turn_ = &started_;
    CountLook();
    if (PollItem(turn_->get(), &advanced)) {
      turn_ = &(*turn_)->next;
    } else {
      std::unique_ptr<Item> done = std::move(*turn_);
      *turn_ = std::move(done->next);
      --count_;
      ended_.Add(std::move(done));
    }
  }
  return advanced;
}

bool Queue::Serve(size_t turns) {
  EndedItems ended;
  bool advanced = false;
  uint64_t started = 0;
  while (TryEnter()) {
    bool now = PollStarted(turns);
    const uint64_t before = looks();
    now |= TakeInbox();
    advanced |= now;
    started += looks() - before;
    ended.TakeAll(&ended_);
    Exit(std::memory_order_seq_cst);
    if (now) Scheduler::Process().Notify();
    // Looks for items that arrived, or came back, while this thread held the lock: the threads that brought them rely
    // on it.
    if (!has_inbox_.load(std::memory_order_seq_cst)) break;
    if (started >= kMostStarted) {
      Scheduler::Process().LeftPending();
      break;
    }
    turns = std::min(turns, kTurns);
  }
  return advanced;
}

bool Queue::WatchStarted(int* looks) {
  if (count_ != 1) return false;
  const Awaited awaited = started_->work->awaited();
  if (awaited.counter == nullptr) return false;
  // Threads that bring an item rely on the holder of the run lock.
  while (*looks > 0 && !has_inbox_.load(std::memory_order_relaxed)) {
    --*looks;
    if (awaited.Reached()) return PollStarted(1);
    CpuRelax();
  }
  return false;
}

bool Queue::Watch(int* looks) {
  EndedItems ended;
  if (!TryEnter()) return false;
  bool advanced = PollStarted(SIZE_MAX);
  advanced |= TakeInbox();
  if (!advanced) advanced = WatchStarted(looks);
  ended.TakeAll(&ended_);
  Exit(std::memory_order_seq_cst);
  if (advanced) Scheduler::Notify();
  if (has_inbox_.load(std::memory_order_seq_cst)) advanced |= Drive();
  return advanced;
}

bool Queue::Arm(int doorbell) {
  EndedItems ended;
  // The driver may be about to leave, and would then not pass news on.
  if (!TryEnter()) return false;
  for (const Item* item = started_.get(); item != nullptr; item = item->next.get()) item->work->Arm(doorbell);
  bool advanced = PollStarted(SIZE_MAX);
  advanced |= TakeInbox();
  ended.TakeAll(&ended_);
  Exit(std::memory_order_seq_cst);
  if (advanced) Scheduler::Process().Notify();
  return !advanced && !has_inbox_.load(std::memory_order_seq_cst);
}

void Queue::Disarm() {
  if (!armed_for_another_.load(std::memory_order_relaxed) || !TryEnter()) return;
  armed_for_another_.store(false, std::memory_order_relaxed);
  for (const Item* item = started_.get(); item != nullptr; item = item->next.get()) item->work->Arm(Work::kNoDoorbell);
  Exit(std::memory_order_seq_cst);
  if (has_inbox_.load(std::memory_order_seq_cst)) Drive();
}

void Queue::AddStarted(std::unique_ptr<Item> item) {
  pending_.fetch_add(1, std::memory_order_seq_cst);
  item->queue = this;
  KeepStarted(std::move(item));
}

void Queue::Leave() {
  Exit(std::memory_order_seq_cst);
  if (has_inbox_.load(std::memory_order_seq_cst)) Drive();
}

}  // namespace axccl::device::host
