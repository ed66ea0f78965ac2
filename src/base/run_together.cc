#include "src/base/run_together.h"

#include <condition_variable>
#include <memory>
#include <mutex>

#include "src/base/detached_thread.h"

namespace axccl {
namespace {

enum class Gate { kClosed, kOpen, kCancelled };

struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  Gate gate = Gate::kClosed;
  size_t running = 0;  // other threads that have not finished

  void Set(Gate to) {
    std::lock_guard lock(mutex);
    gate = to;
    changed.notify_all();
  }
};

}  // namespace

Status RunTogether(const char* what, size_t count, const std::function<void(size_t index)>& fn) {
  std::shared_ptr<Meeting> meeting;
  AXCCL_RETURN_IF_ERROR(CatchAll(what, [&] { return meeting = std::make_shared<Meeting>(), Status(); }));
  meeting->running = count > 0 ? count - 1 : 0;
  for (size_t i = 1; i < count; ++i) {
    const Status started = StartDetached(what, [meeting, &fn, i] {
      {
        std::unique_lock lock(meeting->mutex);
        meeting->changed.wait(lock, [&] { return meeting->gate != Gate::kClosed; });
        if (meeting->gate == Gate::kCancelled) return;
      }
      fn(i);
      std::lock_guard lock(meeting->mutex);
      --meeting->running;
      meeting->changed.notify_all();
    });
    if (started.ok()) continue;
    meeting->Set(Gate::kCancelled);
    return started;
  }
  meeting->Set(Gate::kOpen);
  if (count > 0) fn(0);
  std::unique_lock lock(meeting->mutex);
  meeting->changed.wait(lock, [&] { return meeting->running == 0; });
  return Status();
}

}  // namespace axccl
