#include "tools/softgpu/cuda/scheduler.h"

#include <sched.h>

#include <algorithm>
#include <cfenv>
#include <chrono>

#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {

class Task {
 public:
  std::unique_ptr<Work> work;
  size_t unmet = 0;
  bool done = false;
  std::vector<TaskPtr> dependents;
};

Scheduler& Scheduler::Get() {
  static auto* const scheduler = new Scheduler(
      Knobs().workers > 0 ? Knobs().workers : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return *scheduler;
}

Scheduler::Scheduler(int workers) {
  for (int i = 0; i < workers; ++i) std::thread(&Scheduler::RunWorker, this).detach();
}

TaskPtr Scheduler::Submit(std::unique_ptr<Work> work, const std::vector<TaskPtr>& after) {
  auto task = std::make_shared<Task>();
  task->work = std::move(work);
  std::lock_guard lock(mutex_);
  for (const TaskPtr& before : after) {
    if (before == nullptr || before->done) continue;
    before->dependents.push_back(task);
    ++task->unmet;
  }
  if (task->unmet == 0) MakeReady(task);
  return task;
}

bool Scheduler::Done(const TaskPtr& task) const {
  std::lock_guard lock(mutex_);
  return task == nullptr || task->done;
}

void Scheduler::Wait(const TaskPtr& task) {
  std::unique_lock lock(mutex_);
  if (task != nullptr) finished_.wait(lock, [&] { return task->done; });
}

void Scheduler::MakeReady(TaskPtr task) {
  if (task->work == nullptr) return Finish(task);
  const int host = task->work->host_thread();
  if (host < 0) {
    ready_.push_back(std::move(task));
    idle_streak_ = 0;
    wake_workers_.notify_one();
    return;
  }
  if (hosts_.size() <= static_cast<size_t>(host)) hosts_.resize(host + 1);
  if (hosts_[host] == nullptr) {
    hosts_[host] = std::make_unique<HostThread>();
    std::thread(&Scheduler::RunHostThread, this, hosts_[host].get()).detach();
  }
  hosts_[host]->queue.push_back(std::move(task));
  hosts_[host]->wake.notify_one();
}

// Joins can depend on each other in long chains, so this uses a list instead of recursion.
void Scheduler::Finish(const TaskPtr& task) {
  std::vector<TaskPtr> finished = {task};
  while (!finished.empty()) {
    const TaskPtr next = std::move(finished.back());
    finished.pop_back();
    next->done = true;
    for (TaskPtr& dependent : next->dependents) {
      if (--dependent->unmet > 0) continue;
      if (dependent->work == nullptr) {
        finished.push_back(std::move(dependent));
      } else {
        MakeReady(std::move(dependent));
      }
    }
    next->dependents.clear();
  }
  finished_.notify_all();
}

void Scheduler::RunWorker() {
  std::fesetenv(FE_DFL_ENV);  // kernels do not compute in the mode of the thread that made this one
  std::unique_lock lock(mutex_);
  while (true) {
    wake_workers_.wait(lock, [&] { return !ready_.empty(); });
    TaskPtr task = std::move(ready_.front());
    ready_.pop_front();
    ++running_;
    lock.unlock();
    const Progress progress = task->work->Advance();
    // Objects that the work owns must not be destroyed under the lock.
    if (progress == Progress::kDone) task->work.reset();
    lock.lock();
    --running_;
    if (progress == Progress::kDone) {
      idle_streak_ = 0;
      Finish(task);
      continue;
    }
    ready_.push_back(std::move(task));
    if (progress == Progress::kMore) {
      idle_streak_ = 0;
      wake_workers_.notify_one();
    } else if (++idle_streak_ > ready_.size() + running_) {
      BackOff(&lock);
    }
  }
}

// Everything that is ready waits for another thread, another process, or for submissions of host code.
void Scheduler::BackOff(std::unique_lock<std::mutex>* lock) {
  constexpr size_t kYields = 16;
  const size_t rounds = idle_streak_ / (ready_.size() + running_ + 1);
  if (rounds <= kYields) {
    lock->unlock();
    sched_yield();
    lock->lock();
    return;
  }
  const auto pause = std::chrono::microseconds(10 << std::min<size_t>(rounds - kYields, 7));
  wake_workers_.wait_for(*lock, std::min<std::chrono::microseconds>(pause, std::chrono::milliseconds(1)));
}

void Scheduler::RunHostThread(HostThread* host) {
  std::unique_lock lock(mutex_);
  while (true) {
    host->wake.wait(lock, [&] { return !host->queue.empty(); });
    const TaskPtr task = std::move(host->queue.front());
    host->queue.pop_front();
    lock.unlock();
    while (task->work->Advance() != Progress::kDone) sched_yield();
    task->work.reset();
    lock.lock();
    Finish(task);
  }
}

}  // namespace softgpu::cuda
