#include "threads.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace axccl::python {
namespace {

// An idle thread ends after this time.
constexpr std::chrono::seconds kIdle{5};

class Threads {
 public:
  bool Run(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    if (idle_ >= waiting_.size()) {
      changed_.notify_one();
      return true;
    }
    try {
      std::thread([this] { Serve(); }).detach();
    } catch (const std::system_error&) {
      waiting_.pop_back();
      return false;
    }
    return true;
  }

 private:
  void Serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (waiting_.empty()) {
        ++idle_;
        const bool more = changed_.wait_for(lock, kIdle, [this] { return !waiting_.empty(); });
        --idle_;
        if (!more) return;
      }
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  size_t idle_ = 0;
};

}  // namespace

bool RunApart(std::function<void()> work) {
  static auto* const threads = new Threads;  // its threads may outlive the end of main
  return threads->Run(std::move(work));
}

}  // namespace axccl::python
