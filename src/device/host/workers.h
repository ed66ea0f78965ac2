// The threads that run work which may block: as many as host functions run at the same time, if they can be started.
//
// Work that needs a worker takes a lease before it is enqueued, which reserves the memory for enqueueing it, so Run
// cannot fail. While there are leases there is a worker, so enqueued work will run, one after the other if the system
// grants no more threads (as CUDA allows: host functions "may be serialized"). Workers without work end after a while,
// except for that one. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "src/base/status.h"

namespace axccl::device::host {

class Workers {
 public:
  static Workers& Process();

  // The right to one Run.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept : held_(std::exchange(other.held_, false)) {}
    Lease& operator=(Lease&& other) = delete;
    ~Lease();

   private:
    friend class Workers;
    explicit Lease(bool held) : held_(held) {}
    bool held_ = false;
  };
  // Returns an error if there is no worker and none can be started.
  Result<Lease> Take();

  // Runs fn on a worker. The caller must have a lease that lasts until fn has run.
  void Run(std::function<void()> fn) noexcept;
  // Tries again to start threads that could not be started before.
  void StartLacking() {
    if (lacking_.load(std::memory_order_relaxed)) Retry();
  }

  // Number of live workers (tests).
  int threads() const { return threads_.load(); }

 private:
  Workers() = default;
  Status Start();  // with mutex_ held
  void Retry();
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_, as the next two.
  std::list<std::function<void()>> queue_;
  std::list<std::function<void()>> places_;  // one for each lease whose work is not in the queue
  int idle_ = 0;
  std::atomic<int> threads_{0};  // written under mutex_
  std::atomic<bool> lacking_{false};
};

}  // namespace axccl::device::host
