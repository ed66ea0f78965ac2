#include "src/device/host/timeline.h"

#include <algorithm>
#include <utility>

namespace axccl::device::host {

bool Timeline::Park(uint64_t ticket, std::unique_ptr<Waiter>* waiter) {
  std::lock_guard lock(waiters_mutex_);
  has_waiters_.store(true, std::memory_order_relaxed);
  // Of this thread and one that completes the ticket, one sees what the other has stored.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (Reached(ticket)) {
    has_waiters_.store(!waiters_.empty(), std::memory_order_relaxed);
    return false;
  }
  waiters_.push_back(Parked{ticket, std::move(*waiter)});
  std::push_heap(waiters_.begin(), waiters_.end());
  return true;
}

void Timeline::LetWaitersGoOn() {
  std::vector<std::unique_ptr<Waiter>> reached;
  {
    std::lock_guard lock(waiters_mutex_);
    while (!waiters_.empty() && Reached(waiters_.front().ticket)) {
      std::pop_heap(waiters_.begin(), waiters_.end());
      reached.push_back(std::move(waiters_.back().waiter));
      waiters_.pop_back();
    }
    has_waiters_.store(!waiters_.empty(), std::memory_order_relaxed);
  }
  for (std::unique_ptr<Waiter>& waiter : reached) {
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
