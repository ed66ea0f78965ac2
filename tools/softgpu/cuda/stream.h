// Streams, events and captures. One lock guards all of those of the process, because a call may concern several: the
// legacy stream orders all others of its context, an event joins streams of different devices, a capture spans streams.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/softgpu/cuda/context.h"
#include "tools/softgpu/cuda/graph.h"
#include "tools/softgpu/cuda/operation.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {

using StreamLock = std::unique_lock<std::mutex>;
StreamLock LockStreams();

class Stream;
using StreamPtr = std::shared_ptr<Stream>;

// A capture under way. A call that is not allowed invalidates it.
struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  GraphPtr graph;
  const Stream* origin = nullptr;
  bool own_graph = true;  // not one that the program has made
  bool invalid = false;
  std::vector<StreamPtr> streams;
};
using CapturePtr = std::shared_ptr<Capture>;

class Stream {
 public:
  Stream(ContextPtr context, unsigned flags, int priority);

  const ContextPtr context;
  const unsigned flags;
  const int priority;
  const uint64_t id;
  const uint64_t number;  // in its context
  bool legacy = false;
  bool destroyed = false;  // destroyed by the program; kept until its work is done

  TaskPtr last;                     // the end of the chain
  CapturePtr capture;               // null unless capturing
  std::vector<Node*> capture_tail;  // what the next node will depend on

  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
  CUstream handle() { return reinterpret_cast<CUstream>(this); }
};

// The state of an event that two processes share, in shared memory.
struct SharedEvent {
  std::atomic<uint64_t> recorded{0};
  std::atomic<uint64_t> completed{0};
};

struct Event {
  explicit Event(unsigned flags) : flags(flags) {}

  const unsigned flags;
  ContextPtr context;
  TaskPtr task;                     // of the last record; null if never recorded
  std::atomic<int64_t> time_ns{0};  // of the last completion
  std::weak_ptr<Capture> capture;   // of the last record, if that was captured
  std::vector<Node*> capture_nodes;
  bool captured = false;
  // With CU_EVENT_INTERPROCESS:
  SharedEvent* shared = nullptr;
  std::shared_ptr<void> shared_memory;
  uint64_t ipc_id = 0;
  int descriptor = -1;

  bool timed() const { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
  ~Event();
};
using EventPtr = std::shared_ptr<Event>;

// ---- streams of a context ----
StreamPtr CreateStream(const ContextPtr& context, unsigned flags, int priority);
StreamPtr LegacyStream(const ContextPtr& context);
StreamPtr PerThreadStream(const ContextPtr& context);
// All of these are called without the lock held.
CUresult Enqueue(const StreamPtr& stream, OperationPtr operation);
CUresult Synchronize(const StreamPtr& stream);
CUresult SynchronizeContext(const ContextPtr& context);
// Waits for all work of all devices of this process, if SOFTGPU_IMPLICIT_SYNC has that cause.
void SynchronizeFor(ImplicitSync cause);
CUresult Query(const StreamPtr& stream);
CUresult LaunchGraph(const StreamPtr& stream, const std::shared_ptr<GraphExec>& exec);

// ---- events ----
CUresult RecordEvent(const StreamPtr& stream, const EventPtr& event);
CUresult WaitEvent(const StreamPtr& stream, const EventPtr& event, unsigned flags);
CUresult QueryEvent(const EventPtr& event);
CUresult SynchronizeEvent(const EventPtr& event);
CUresult ElapsedTime(const EventPtr& start, const EventPtr& end, float* milliseconds);
OperationPtr RecordOperation(EventPtr event);
OperationPtr WaitOperation(ContextPtr context, EventPtr event);
// Makes what other processes need of the event (cuIpcGetEventHandle). Returns false if the system refuses.
bool MakeInterprocess(const EventPtr& event);

// ---- captures ----
CUresult BeginCapture(const StreamPtr& stream, CUstreamCaptureMode mode, GraphPtr graph, std::vector<Node*> after);
CUresult EndCapture(const StreamPtr& stream, GraphPtr* graph);
// For calls that cannot be captured and might disturb a capture: returns an error and invalidates the capture, unless
// the mode of the calling thread allows the call.
CUresult CheckUnsafeCall();
// For calls that wait for all work of a context: no mode allows them while any stream of it is captured.
CUresult CheckCapturesOf(const ContextPtr& context);
CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode);
// Under the lock: the state of the capture of `stream`. CUDA_SUCCESS if it does not capture, or does so validly.
CUresult CaptureState(const Stream& stream);
// Under the lock: adds an operation to a stream that captures.
CUresult AppendCaptured(Stream* stream, OperationPtr operation);
// Under the lock: makes `stream` part of the capture, after `nodes`.
CUresult JoinCapture(const StreamPtr& stream, const CapturePtr& capture, const std::vector<Node*>& nodes);
// Under the lock: an error for work on the legacy stream while a blocking stream of the context captures.
CUresult CheckLegacy(const Stream& stream);

}  // namespace softgpu::cuda
