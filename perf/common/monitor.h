// Watches a run from a thread of its own: ends the run when one wait lasts too long (-T), and prints a status line on a
// terminal when a row takes long.
//
// The thread exists only when it is needed, so that it does not disturb measurements otherwise. Each thread calls
// BeginWait and EndWait for itself; thread 0 calls Describe. These are relaxed stores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/base/sizes.h"

namespace axccl::perf {

class Monitor {
 public:
  // `timeout_seconds` 0: waits may last forever. `status_line`: write to stderr, which is a terminal.
  Monitor(int threads, int timeout_seconds, bool status_line);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  void BeginWait(int thread);
  void EndWait(int thread);
  // `phase` must be a literal.
  void Describe(size_t bytes, const char* phase);
  // Removes the status line, and counts the time of the next row; call before a row is printed.
  void EndRow();

 private:
  struct alignas(kCacheLine) Lane {
    std::atomic<int64_t> since{0};  // ns; 0 = not waiting
  };
  void Loop();
  void CheckTimeouts(int64_t now) const;
  void ShowStatus(int64_t now);

  const int timeout_seconds_;
  const bool status_line_;
  std::unique_ptr<Lane[]> lanes_;
  const int lane_count_;
  std::atomic<size_t> bytes_{0};
  std::atomic<const char*> phase_{"initialization"};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool line_shown_ = false;
  int64_t row_since_;  // ns; under the mutex
  std::thread thread_;
};

// Marks a wait of one thread for its lifetime.
class WatchedWait {
 public:
  WatchedWait(Monitor* monitor, int thread) : monitor_(monitor), thread_(thread) { monitor_->BeginWait(thread_); }
  ~WatchedWait() { monitor_->EndWait(thread_); }
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

 private:
  Monitor* monitor_;
  int thread_;
};

}  // namespace axccl::perf
