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

// Called with the lock held. Returns false when no closing thread runs and none can be started.
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
    close = nullptr;  // without the lock, because what the closure owns is destroyed here
    lock.lock();
  }
  running_ = false;
  ended_.notify_all();
}

}  // namespace axccl
