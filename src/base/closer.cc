#include "src/base/closer.h"

#include <utility>

#include "src/base/detached_thread.h"

namespace axccl {

Closer& Closer::Process() {
  static Closer* const closer = new Closer;
  return *closer;
}

void Closer::Add(std::function<void()> close) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(close));
  (void)Start();
}

bool Closer::Await(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!waiting_.empty() && !Start()) {
    running_ = true;
    lock.unlock();
    Run();
    lock.lock();
  }
  return ended_.wait_for(lock, patience, [this] { return !running_; });
}

// With the lock held. False when there is no thread, and none to be had.
bool Closer::Start() {
  if (running_) return true;
  running_ = StartDetached("closing", [this] { Run(); }).ok();
  return running_;
}

void Closer::Run() {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    std::function<void()> close = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    close();
    close = nullptr;  // without the lock, as what it holds ends here
    lock.lock();
  }
  running_ = false;
  ended_.notify_all();
}

}  // namespace axccl
