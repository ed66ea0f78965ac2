#include "tools/softgpu/cuda/stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tools/softgpu/cuda/of_thread.h"

namespace softgpu::cuda {
namespace {

uint64_t NextStreamId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void ForgetFinished(Context* context) {
  std::erase_if(context->streams,
                [](const StreamPtr& stream) { return stream->destroyed && Scheduler::Get().Done(stream->last); });
}

// The end of the queue that the stream shares; null: it has its own. What is in a queue runs in the order in which it
// was submitted, whatever stream it is of.
TaskPtr* QueueOf(const Stream& stream) {
  const uint32_t queues = Knobs().queues;
  if (queues == 0) return nullptr;
  std::vector<TaskPtr>& ends = stream.context->queues;
  ends.resize(queues);
  return &ends[stream.number % queues];
}

void Submitted(Stream* stream, TaskPtr task) {
  if (TaskPtr* const queue = QueueOf(*stream); queue != nullptr) *queue = task;
  stream->last = std::move(task);
}

// The predecessors of the stream's next task.
std::vector<TaskPtr> TailOf(const Stream& stream) {
  std::vector<TaskPtr> after = {stream.last};
  if (const TaskPtr* const queue = QueueOf(stream); queue != nullptr) after.push_back(*queue);
  if (stream.legacy) {
    for (const StreamPtr& other : stream.context->streams) {
      if (other->blocking()) after.push_back(other->last);
    }
  } else if (stream.blocking() && stream.context->legacy_stream != nullptr) {
    after.push_back(stream.context->legacy_stream->last);
  }
  return after;
}

void SubmitTo(Stream* stream, const Operation& operation) {
  std::vector<TaskPtr> after = TailOf(*stream);
  operation.AddPrerequisites(&after);
  Submitted(stream, Scheduler::Get().Submit(operation.Begin(), after));
  operation.Submitted(stream->last);
}

}  // namespace

StreamLock LockStreams() {
  static auto* const mutex = new std::mutex;
  return StreamLock(*mutex);
}

Stream::Stream(ContextPtr context, unsigned flags, int priority)
    : context(std::move(context)),
      flags(flags),
      priority(priority),
      id(NextStreamId()),
      number(this->context->made_streams++) {}

StreamPtr CreateStream(const ContextPtr& context, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>(context, flags, priority);
  const StreamLock lock = LockStreams();
  ForgetFinished(context.get());
  context->streams.push_back(stream);
  return stream;
}

StreamPtr LegacyStream(const ContextPtr& context) {
  const StreamLock lock = LockStreams();
  if (context->legacy_stream == nullptr) {
    context->legacy_stream = std::make_shared<Stream>(context, 0, 0);
    context->legacy_stream->legacy = true;
  }
  return context->legacy_stream;
}

StreamPtr PerThreadStream(const ContextPtr& context) {
  // By the context's id, which is never used again.
  std::weak_ptr<Stream>& own = OfThread<std::map<uint64_t, std::weak_ptr<Stream>>>()[context->id()];
  StreamPtr stream = own.lock();
  if (stream == nullptr) {
    stream = CreateStream(context, 0, 0);
    own = stream;
  }
  return stream;
}

CUresult Enqueue(const StreamPtr& stream, OperationPtr operation) {
  const StreamLock lock = LockStreams();
  if (stream->capture != nullptr) return AppendCaptured(stream.get(), std::move(operation));
  if (const CUresult error = CheckLegacy(*stream); error != CUDA_SUCCESS) return error;
  SubmitTo(stream.get(), *operation);
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(const StreamPtr& stream, const std::shared_ptr<GraphExec>& exec) {
  const StreamLock lock = LockStreams();
  if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult error = CheckLegacy(*stream); error != CUDA_SUCCESS) return error;
  Submitted(stream.get(), exec->Launch(TailOf(*stream)));
  return CUDA_SUCCESS;
}

CUresult Synchronize(const StreamPtr& stream) {
  TaskPtr last;
  {
    const StreamLock lock = LockStreams();
    if (stream->capture != nullptr) {
      stream->capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (const CUresult error = CheckLegacy(*stream); error != CUDA_SUCCESS) return error;
    last = stream->legacy ? Scheduler::Get().Submit(nullptr, TailOf(*stream)) : stream->last;
  }
  Scheduler::Get().Wait(last);
  return stream->context->error();
}

CUresult Query(const StreamPtr& stream) {
  const StreamLock lock = LockStreams();
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult error = CheckLegacy(*stream); error != CUDA_SUCCESS) return error;
  if (stream->context->error() != CUDA_SUCCESS) return stream->context->error();
  std::vector<TaskPtr> tail = {stream->last};
  if (stream->legacy) tail = TailOf(*stream);
  const bool done =
      std::all_of(tail.begin(), tail.end(), [](const TaskPtr& task) { return Scheduler::Get().Done(task); });
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult SynchronizeContext(const ContextPtr& context) {
  std::vector<TaskPtr> tails;
  {
    const StreamLock lock = LockStreams();
    if (context->legacy_stream != nullptr) tails.push_back(context->legacy_stream->last);
    for (const StreamPtr& stream : context->streams) tails.push_back(stream->last);
  }
  for (const TaskPtr& tail : tails) Scheduler::Get().Wait(tail);
  return context->error();
}

void SynchronizeFor(ImplicitSync cause) {
  if ((Knobs().implicit_sync & cause) == 0) return;
  for (int ordinal = 0; Device* device = FindDevice(ordinal); ++ordinal) {
    if (const ContextPtr context = ActivePrimary(device)) SynchronizeContext(context);
  }
  if (const ContextPtr current = CurrentContext()) SynchronizeContext(current);
}

}  // namespace softgpu::cuda
