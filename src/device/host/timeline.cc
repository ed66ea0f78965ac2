#include "src/device/host/timeline.h"

#include <utility>

namespace axccl::device::host {

// ---- waiters ----

Waiters::Link Waiters::Meld(Link a, Link b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  if (b->ticket_ < a->ticket_) std::swap(a, b);
  b->beside_ = std::move(a->below_);
  a->below_ = std::move(b);
  return a;
}

void Waiters::Add(uint64_t ticket, std::unique_ptr<Waiter> waiter) {
  waiter->ticket_ = ticket;
  top_ = Meld(std::move(top_), std::move(waiter));
}

std::unique_ptr<Waiter> Waiters::Take() {
  Link taken = std::move(top_);
  // Merges in pairs first, and then the pairs one after the other, so that adding and removing many costs each its
  // logarithm.
  Link left = std::move(taken->below_), pairs;
  while (left != nullptr) {
    Link second = std::move(left->beside_);
    Link rest = second != nullptr ? std::move(second->beside_) : nullptr;
    Link pair = Meld(std::move(left), std::move(second));
    pair->beside_ = std::move(pairs);
    pairs = std::move(pair);
    left = std::move(rest);
  }
  while (pairs != nullptr) {
    Link rest = std::move(pairs->beside_);
    top_ = Meld(std::move(top_), std::move(pairs));
    pairs = std::move(rest);
  }
  return taken;
}

// ---- timelines ----

bool Timeline::Park(uint64_t ticket, std::unique_ptr<Waiter>* waiter) {
  std::lock_guard lock(waiters_mutex_);
  has_waiters_.store(true, std::memory_order_relaxed);
  // Of this thread and one that completes the ticket, at least one sees what the other has stored.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (Reached(ticket)) {
    has_waiters_.store(!waiters_.empty(), std::memory_order_relaxed);
    return false;
  }
  waiters_.Add(ticket, std::move(*waiter));
  return true;
}

void Timeline::LetWaitersGoOn() {
  Waiters reached;
  {
    std::lock_guard lock(waiters_mutex_);
    while (!waiters_.empty() && Reached(waiters_.lowest())) {
      const uint64_t ticket = waiters_.lowest();
      reached.Add(ticket, waiters_.Take());
    }
    has_waiters_.store(!waiters_.empty(), std::memory_order_relaxed);
  }
  while (!reached.empty()) {
    std::unique_ptr<Waiter> waiter = reached.Take();
    Waiter* const one = waiter.get();
    one->GoOn(std::move(waiter));
  }
}

void Timeline::SetError(Status status) {
  std::lock_guard lock(error_mutex_);
  if (!error_.ok()) return;
  error_ = std::move(status);
  has_error_.store(true, std::memory_order_release);
}

Status Timeline::TakeError() {
  if (!has_error_.load(std::memory_order_acquire)) return Status();
  std::lock_guard lock(error_mutex_);
  has_error_.store(false, std::memory_order_relaxed);
  return std::exchange(error_, Status());
}

}  // namespace axccl::device::host
