// The events of stream.h.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "tools/softgpu/cuda/stream.h"

namespace softgpu::cuda {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class RecordWork : public Work {
 public:
  RecordWork(EventPtr event, uint64_t number) : event_(std::move(event)), number_(number) {}
  Progress Advance() override {
    event_->time_ns.store(NowNs(), std::memory_order_relaxed);
    if (event_->shared != nullptr) event_->shared->completed.store(number_, std::memory_order_release);
    return Progress::kDone;
  }

 private:
  EventPtr event_;
  uint64_t number_;
};

class EventRecord : public Operation {
 public:
  explicit EventRecord(EventPtr event) : event_(std::move(event)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
  std::unique_ptr<Work> Begin() const override {
    const uint64_t number = event_->shared == nullptr ? 0 : event_->shared->recorded.fetch_add(1) + 1;
    return std::make_unique<RecordWork>(event_, number);
  }
  void Submitted(const TaskPtr& task) const override {
    event_->task = task;
    event_->captured = false;
    event_->capture.reset();
    event_->capture_nodes.clear();
  }

 private:
  EventPtr event_;
};

// Waits for another process's record.
class SharedEventWork : public Work {
 public:
  SharedEventWork(ContextPtr context, EventPtr event)
      : context_(std::move(context)), event_(std::move(event)), number_(event_->shared->recorded.load()) {}
  Progress Advance() override {
    const bool done = event_->shared->completed.load(std::memory_order_acquire) >= number_;
    return done || context_->error() != CUDA_SUCCESS ? Progress::kDone : Progress::kWaiting;
  }

 private:
  ContextPtr context_;
  EventPtr event_;
  uint64_t number_;
};

class EventWait : public Operation {
 public:
  EventWait(ContextPtr context, EventPtr event) : context_(std::move(context)), event_(std::move(event)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
  std::unique_ptr<Work> Begin() const override {
    return event_->shared == nullptr ? nullptr : std::make_unique<SharedEventWork>(context_, event_);
  }
  void AddPrerequisites(std::vector<TaskPtr>* after) const override {
    if (event_->shared == nullptr) after->push_back(event_->task);
  }

 private:
  ContextPtr context_;
  EventPtr event_;
};

bool SharedDone(const Event& event) {
  return event.shared->completed.load(std::memory_order_acquire) >= event.shared->recorded.load();
}

}  // namespace

Event::~Event() {
  if (descriptor >= 0) close(descriptor);
}

OperationPtr RecordOperation(EventPtr event) { return std::make_shared<EventRecord>(std::move(event)); }

OperationPtr WaitOperation(ContextPtr context, EventPtr event) {
  return std::make_shared<EventWait>(std::move(context), std::move(event));
}

CUresult RecordEvent(const StreamPtr& stream, const EventPtr& event) {
  if (event->context != nullptr && &event->context->device() != &stream->context->device())
    return CUDA_ERROR_INVALID_HANDLE;
  StreamLock lock = LockStreams();
  if (stream->capture == nullptr) {
    lock.unlock();
    return Enqueue(stream, RecordOperation(event));
  }
  if (const CUresult error = CaptureState(*stream); error != CUDA_SUCCESS) return error;
  event->captured = true;
  event->capture = stream->capture;
  event->capture_nodes = stream->capture_tail;
  return CUDA_SUCCESS;
}

CUresult WaitEvent(const StreamPtr& stream, const EventPtr& event, unsigned flags) {
  StreamLock lock = LockStreams();
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0 && stream->capture != nullptr)
    return AppendCaptured(stream.get(), WaitOperation(stream->context, event));
  if (event->captured) {
    const CapturePtr capture = event->capture.lock();
    // The capture has ended: there is nothing to wait for.
    if (capture == nullptr || capture->graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return JoinCapture(stream, capture, event->capture_nodes);
  }
  if (stream->capture != nullptr) {
    if (event->task == nullptr && event->shared == nullptr) return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  lock.unlock();
  return Enqueue(stream, WaitOperation(stream->context, event));
}

CUresult QueryEvent(const EventPtr& event) {
  const StreamLock lock = LockStreams();
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (event->context != nullptr && event->context->error() != CUDA_SUCCESS) return event->context->error();
  const bool done = event->shared != nullptr ? SharedDone(*event) : Scheduler::Get().Done(event->task);
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult SynchronizeEvent(const EventPtr& event) {
  TaskPtr task;
  {
    const StreamLock lock = LockStreams();
    if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
    task = event->task;
    // Another process completes it, so the scheduler must poll.
    if (event->shared != nullptr) task = Scheduler::Get().Submit(WaitOperation(event->context, event)->Begin(), {});
  }
  Scheduler::Get().Wait(task);
  return event->context == nullptr ? CUDA_SUCCESS : event->context->error();
}

CUresult ElapsedTime(const EventPtr& start, const EventPtr& end, float* milliseconds) {
  const StreamLock lock = LockStreams();
  if (!start->timed() || !end->timed()) return CUDA_ERROR_INVALID_HANDLE;
  if (start->captured || end->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (start->task == nullptr || end->task == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!Scheduler::Get().Done(start->task) || !Scheduler::Get().Done(end->task)) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(end->time_ns - start->time_ns) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace softgpu::cuda
