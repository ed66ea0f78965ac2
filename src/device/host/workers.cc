#include "src/device/host/workers.h"

#include <pthread.h>

#include <chrono>

#include "src/base/detached_thread.h"

namespace axccl::device::host {
namespace {

// A worker without work ends after this long.
constexpr std::chrono::seconds kIdle{2};

}  // namespace

Workers& Workers::Process() {
  static auto* const workers = new Workers;  // outlives every thread
  return *workers;
}

Workers::Lease::~Lease() {
  if (!held_) return;
  std::lock_guard lock(Process().mutex_);
  Process().places_.pop_front();
}

Status Workers::Start() {
  AXCCL_RETURN_IF_ERROR(StartDetached("host functions", [this] { Loop(); }));
  threads_.fetch_add(1);
  return Status();
}

Result<Workers::Lease> Workers::Take() {
  std::lock_guard lock(mutex_);
  if (threads_.load() == 0) AXCCL_RETURN_IF_ERROR(Start());
  places_.emplace_back();
  return Lease(true);
}

void Workers::Run(std::function<void()> fn) noexcept {
  std::lock_guard lock(mutex_);
  places_.front() = std::move(fn);
  queue_.splice(queue_.end(), places_, places_.begin());
  if (static_cast<int>(queue_.size()) <= idle_) {
    wake_.notify_one();
  } else if (!Start().ok()) {
    lacking_.store(true, std::memory_order_relaxed);
  }
}

void Workers::Retry() {
  std::lock_guard lock(mutex_);
  const bool enough = static_cast<int>(queue_.size()) <= idle_ || Start().ok();
  lacking_.store(!enough, std::memory_order_relaxed);
}

void Workers::Loop() {
  pthread_setname_np(pthread_self(), "axccl-worker");
  std::unique_lock lock(mutex_);
  for (;;) {
    while (queue_.empty()) {
      ++idle_;
      const bool woken = wake_.wait_for(lock, kIdle, [&] { return !queue_.empty(); });
      --idle_;
      if (!woken && (threads_.load() > 1 || places_.empty())) {
        threads_.fetch_sub(1);
        return;
      }
    }
    auto fn = std::exchange(queue_.front(), nullptr);
    places_.splice(places_.end(), queue_, queue_.begin());
    lock.unlock();
    fn();
    fn = nullptr;
    lock.lock();
  }
}

}  // namespace axccl::device::host
