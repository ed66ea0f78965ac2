// Timelines: in-order progress as a pair of counters.
//
// A stream is a timeline, the order of a communicator's launches is another. Enqueued work gets the next ticket of
// every timeline that it belongs to, starts when all its predecessors there are done, and completes its tickets when it
// is done itself. An event is just (timeline, ticket): recording or waiting for it enqueues nothing.
//
// Memory ordering: Complete() is a release store, Reached() an acquire load, so whatever happened before a ticket was
// completed is visible to a thread that has seen it reached. The thread that completes notifies sleepers afterwards
// (Scheduler::Notify has the fence). Issue() is called under the submission lock of the device that the timeline
// belongs to (stream.h), so of any two items that share two timelines, one is first on both.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace axccl::device::host {

// Something that continues once a timeline has reached a ticket. It contains its own links, because parking and
// releasing it must need no memory.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual void GoOn(std::unique_ptr<Waiter> self) = 0;

 private:
  friend class Waiters;
  uint64_t ticket_ = 0;
  std::unique_ptr<Waiter> below_, beside_;
};

// Waiters by ticket: a pairing heap. No waiter is above one with a lower ticket.
class Waiters {
 public:
  bool empty() const { return top_ == nullptr; }
  uint64_t lowest() const { return top_->ticket_; }
  void Add(uint64_t ticket, std::unique_ptr<Waiter> waiter);
  // Removes the waiter with the lowest ticket.
  std::unique_ptr<Waiter> Take();

 private:
  using Link = std::unique_ptr<Waiter>;
  static Link Meld(Link a, Link b);

  Link top_;
};

class Timeline {
 public:
  // Returns the next ticket: work with ticket t may start once Reached(t) and completes with Complete(t).
  uint64_t Issue() {
    const uint64_t ticket = issued_.load(std::memory_order_relaxed);
    issued_.store(ticket + 1, std::memory_order_release);
    return ticket;
  }
  // Whether all tickets below `ticket` are complete.
  bool Reached(uint64_t ticket) const { return completed_.load(std::memory_order_acquire) >= ticket; }
  // Completes a ticket and releases what waits for it.
  void Complete(uint64_t ticket) {
    Done(ticket);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    LetGoOn();
  }
  // The two halves of Complete, for callers that have a sequentially consistent fence between them anyway: without it a
  // waiter could be parked and forgotten.
  void Done(uint64_t ticket) { completed_.store(ticket + 1, std::memory_order_release); }
  void LetGoOn() {
    if (has_waiters_.load(std::memory_order_relaxed)) LetWaitersGoOn();
  }
  // Keeps *waiter until Reached(ticket), then calls its GoOn on the thread that completes. Returns false, without
  // taking it, if the ticket has been reached.
  bool Park(uint64_t ticket, std::unique_ptr<Waiter>* waiter);
  // The ticket that the next Issue() will return: Reached(issued()) means idle.
  uint64_t issued() const { return issued_.load(std::memory_order_acquire); }
  bool Idle() const { return Reached(issued()); }
  // Idle, and there is nothing for TakeError. In this order: an error is set before its ticket is completed.
  bool IdleWithoutError() const { return Idle() && !has_error_.load(std::memory_order_acquire); }

  // The first error of completed work that TakeError has not returned yet.
  void SetError(Status status);
  Status TakeError();

 private:
  void LetWaitersGoOn();

  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> has_waiters_{false};
  std::atomic<bool> has_error_{false};
  std::mutex waiters_mutex_;
  Waiters waiters_;
  std::mutex error_mutex_;
  Status error_;
};

using TimelinePtr = std::shared_ptr<Timeline>;

// "Everything of `timeline` below `ticket`." A null timeline always counts as reached.
struct Mark {
  TimelinePtr timeline;
  uint64_t ticket = 0;
  bool Reached() const { return timeline == nullptr || timeline->Reached(ticket); }
};

// A place on a timeline that an item of work occupies.
struct Place {
  TimelinePtr timeline;
  uint64_t ticket = 0;
};

// The places of an item: mostly two, which need no memory beside it.
class Places {
 public:
  // Makes room for so many; to be called first.
  void reserve(size_t count) {
    if (count > few_.size()) more_.resize(count);
  }
  void push_back(Place place) { begin()[size_++] = std::move(place); }
  Place* begin() { return more_.empty() ? few_.data() : more_.data(); }
  Place* end() { return begin() + size_; }
  const Place* begin() const { return more_.empty() ? few_.data() : more_.data(); }
  const Place* end() const { return begin() + size_; }

 private:
  std::array<Place, 2> few_;
  std::vector<Place> more_;
  size_t size_ = 0;
};

}  // namespace axccl::device::host
