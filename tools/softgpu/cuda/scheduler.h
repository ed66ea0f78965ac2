// Runs the work of all devices of the process: a graph of tasks, each of which starts when its predecessors are done. A
// stream is a chain in that graph, an event a place in it, a launched CUDA graph a part of it.
//
// A few worker threads advance the ready tasks in turn, a slice at a time, so that kernels that wait for each other all
// make progress. When every task waits, workers yield and then sleep for growing times, at most a millisecond.
// Functions of the host run on one thread per device, because they may block.
//
// Thread-safe. Only the scheduler changes tasks after their submission.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace softgpu::cuda {

enum class Progress : uint8_t {
  kMore,     // advanced, there is more to do
  kWaiting,  // read memory that another task must write: run others first
  kDone,
};

// One piece of work under way. Used by one thread at a time.
class Work {
 public:
  virtual ~Work() = default;
  virtual Progress Advance() = 0;
  // The device whose host thread must run this, or -1 for any worker.
  virtual int host_thread() const { return -1; }
};

class Task;
using TaskPtr = std::shared_ptr<Task>;

class Scheduler {
 public:
  static Scheduler& Get();

  // `work` may be null: a task that only joins others. Null and finished tasks in `after` count as done.
  TaskPtr Submit(std::unique_ptr<Work> work, const std::vector<TaskPtr>& after);
  bool Done(const TaskPtr& task) const;
  void Wait(const TaskPtr& task);

 private:
  struct HostThread {
    std::deque<TaskPtr> queue;
    std::condition_variable wake;
  };

  explicit Scheduler(int workers);
  void MakeReady(TaskPtr task);
  void Finish(const TaskPtr& task);
  void RunWorker();
  void RunHostThread(HostThread* host);
  void BackOff(std::unique_lock<std::mutex>* lock);

  mutable std::mutex mutex_;
  std::condition_variable wake_workers_, finished_;
  std::deque<TaskPtr> ready_;
  size_t running_ = 0;      // tasks in the hands of workers
  size_t idle_streak_ = 0;  // tasks found waiting since the last one that advanced
  std::vector<std::unique_ptr<HostThread>> hosts_;
};

}  // namespace softgpu::cuda
