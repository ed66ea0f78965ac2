#include "perf/common/monitor.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "perf/common/fail.h"

namespace axccl::perf {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kQuietTime = 2 * kSecond;  // shorter rows need no status line

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Monitor::Monitor(int threads, int timeout_seconds, bool status_line)
    : timeout_seconds_(timeout_seconds),
      status_line_(status_line),
      lanes_(new Lane[static_cast<size_t>(threads)]),
      lane_count_(threads),
      row_since_(Now()) {
  if (timeout_seconds_ > 0 || status_line_) thread_ = std::thread([this] { Loop(); });
}

Monitor::~Monitor() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  EndRow();
}

void Monitor::BeginWait(int thread) {
  // Reading the clock costs as much as a tenth of a small operation.
  if (timeout_seconds_ > 0) lanes_[static_cast<size_t>(thread)].since.store(Now(), std::memory_order_relaxed);
}

void Monitor::EndWait(int thread) {
  if (timeout_seconds_ > 0) lanes_[static_cast<size_t>(thread)].since.store(0, std::memory_order_relaxed);
}

void Monitor::Describe(size_t bytes, const char* phase) {
  bytes_.store(bytes, std::memory_order_relaxed);
  phase_.store(phase, std::memory_order_relaxed);
}

void Monitor::EndRow() {
  if (!status_line_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  row_since_ = Now();
  if (!line_shown_) return;
  std::fputs("\r\033[K", stderr);
  line_shown_ = false;
}

void Monitor::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, std::chrono::milliseconds(250));
    int64_t now = Now();
    CheckTimeouts(now);
    if (status_line_ && !stop_) ShowStatus(now);
  }
}

void Monitor::CheckTimeouts(int64_t now) const {
  if (timeout_seconds_ == 0) return;
  for (int i = 0; i < lane_count_; ++i) {
    int64_t since = lanes_[static_cast<size_t>(i)].since.load(std::memory_order_relaxed);
    if (since == 0 || now - since < timeout_seconds_ * kSecond) continue;
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    Fail(kExitTimeout, "%s: Test timeout (%ds): thread %d waits since %.1f s (%zu bytes, %s)", host, timeout_seconds_,
         i, static_cast<double>(now - since) / kSecond, bytes_.load(std::memory_order_relaxed),
         phase_.load(std::memory_order_relaxed));
  }
}

void Monitor::ShowStatus(int64_t now) {
  int64_t lasted = now - row_since_;
  if (lasted < kQuietTime) return;
  std::fprintf(stderr, "\r\033[K# %zu bytes for %.0f s: %s", bytes_.load(std::memory_order_relaxed),
               static_cast<double>(lasted) / kSecond, phase_.load(std::memory_order_relaxed));
  line_shown_ = true;
}

}  // namespace axccl::perf
