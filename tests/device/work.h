// Work for the scheduler whose every step the test decides.
#pragma once

#include <sched.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "src/device/host/scheduler.h"
#include "src/device/host/timeline.h"

namespace axccl::device::host {

// Polls `step`; records which thread polled and the doorbell it was armed with.
class TestWork : public Work {
 public:
  explicit TestWork(std::function<Poll()> step, Status result = Status())
      : step_(std::move(step)), result_(std::move(result)) {}

  Poll Progress() override {
    last_thread = std::this_thread::get_id();
    polls.fetch_add(1);
    const Poll poll = step_();
    if (poll == Poll::kDone) done.store(true);
    return poll;
  }
  void Arm(int doorbell) override { armed.store(doorbell); }
  Awaited awaited() const override { return waits_for; }
  Status result() const override { return result_; }

  Awaited waits_for;  // set it before the work is pushed
  std::thread::id last_thread;
  std::atomic<int> polls{0};
  std::atomic<int> armed{-1};
  std::atomic<bool> done{false};

 private:
  const std::function<Poll()> step_;
  const Status result_;
};

// Blocked until it is opened.
class GatedWork : public TestWork {
 public:
  GatedWork() : TestWork([this] { return open.load() ? Poll::kDone : Poll::kBlocked; }) {}
  std::atomic<bool> open{false};
};

inline std::unique_ptr<Item> MakeItem(std::shared_ptr<Work> work, std::vector<Place> places = {},
                                      std::vector<Mark> after = {}) {
  auto item = std::make_unique<Item>();
  item->work = std::move(work);
  item->places.reserve(places.size());
  for (Place& place : places) item->places.push_back(std::move(place));
  item->after = std::move(after);
  return item;
}

// Waits outside the library; the test's time limit is the only bound.
inline void AwaitTrue(const std::function<bool()>& condition) {
  while (!condition()) sched_yield();
}

inline bool WaitThrough(Queue* queue, const std::function<bool()>& done) {
  return Scheduler::Process().Wait(queue, done, [] { return false; });
}

// A device that only this test uses.
inline int NextDevice() {
  static std::atomic<int> next{100};
  return next.fetch_add(1);
}
inline Queue* NewQueue() { return Scheduler::Process().GetQueue(NextDevice()); }

}  // namespace axccl::device::host
