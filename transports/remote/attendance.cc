#include "transports/remote/attendance.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "src/base/log.h"
#include "src/base/processors.h"

namespace axccl::remote {
namespace {

// How long a message for which no thread waits may lie there (at most twice that): it grows while operations keep
// coming.
constexpr std::chrono::milliseconds kDoze(1), kLongestDoze(8);

[[noreturn]] void StayBehind(const char* name, const service::Fd& epoll) {
  AXCCL_WARN("%s", std::string(epoll.Lost(name).message()).c_str());
  for (;;) pause();
}

}  // namespace

void Attendance::Main(const char* name, const service::Fd& epoll) {
  BecomeOwnThread(name);
  uint32_t seen = 0;
  std::chrono::milliseconds doze = kDoze;
  bool dozing = false;
  {
    // Whoever polls when the first message can come need not leave it to this thread.
    std::lock_guard lock(mutex_);
    Listen();
    dozing = !listening_;
  }
  for (;;) {
    epoll_event event{};
    const int events = epoll_wait(epoll.get(), &event, 1, dozing ? static_cast<int>(doze.count()) : -1);
    if (events < 0 && errno != EINTR) StayBehind(name, epoll);
    const bool woken = events > 0;
    std::unique_lock lock(mutex_, std::defer_lock);
    if (woken) {
      lock.lock();
      listening_ = false;
    } else if (!lock.try_lock()) {
      continue;  // a thread is polling, and would have to wake this one
    }
    const uint32_t uses = uses_.load(std::memory_order_relaxed);
    const bool used = std::exchange(seen, uses) != uses;
    // If no thread polls, this thread handles the event.
    if (!polled() && (pressing() || (!listening_ && (woken || !used)))) Attend();
    dozing = !listening_ || pressing();
    doze = used && !pressing() ? std::min(2 * doze, kLongestDoze) : kDoze;
  }
}

void Attendance::LeaveToThread() {
  if (!polled() && !listening_) Listen();
}

void Attendance::ReceiveSoon() {
  if (polled()) return;
  const std::lock_guard lock(mutex_);
  LeaveToThread();
}

void Attendance::Progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) Drive();
}

void Attendance::BeginPolling() {
  polling_.fetch_add(1);
  uses_.fetch_add(1, std::memory_order_relaxed);
}

// The thread reads the count with the lock held. If it still counted on this one, it is notified now.
void Attendance::EndPolling(bool waiting) {
  polling_.fetch_sub(1);
  if (!waiting && unsent_.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(mutex_);
  LeaveToThread();
}

}  // namespace axccl::remote
