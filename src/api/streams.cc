// axccl.h: host devices, streams and events.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "axccl/axccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/device/host/current.h"
#include "src/device/host/find_stream.h"
#include "src/device/host/stream.h"

using namespace axccl;                // NOLINT: the C entry points
using namespace axccl::api;           // NOLINT
using namespace axccl::device::host;  // NOLINT

namespace {

using EventPin = HandleTable<Event>::Pin;
using StreamPin = HandleTable<Stream>::Pin;

// A stream argument with the device that it belongs to; both are null if the thread's NULL refers to several streams.
struct Target {
  Device* device = nullptr;
  Stream* stream = nullptr;
  std::shared_ptr<Stream> hold = nullptr;  // another thread may destroy the stream meanwhile
};

Result<Target> FindTarget(axcclStream_t handle, const char* call) {
  Target target;
  if (const StreamPin pin = Streams().Get(handle)) target.hold = pin->shared_from_this();
  target.stream = target.hold.get();
  if (target.stream == nullptr) AXCCL_RETURN_IF_ERROR(device::host::FindStream(handle, call, &target.stream));
  target.device = target.stream != nullptr ? Device::Get(target.stream->device()) : OnlyNullDevice();
  if (target.stream == nullptr && target.device != nullptr) target.stream = target.device->null_stream();
  return target;
}

// The streams behind a target.
std::vector<Target> Parts(const Target& target) {
  if (target.stream != nullptr) return {target};
  std::vector<Target> parts;
  for (Device* device : NullDevices()) parts.push_back({device, device->null_stream()});
  return parts;
}

bool IsNull(const Target& target) { return target.stream == nullptr || target.stream == target.device->null_stream(); }

// Submits work of the caller that is not a call of a rank. On NULL, the thread's ranks on other devices also wait for
// it.
Status SubmitTo(const char* call, const Target& target, Result<std::shared_ptr<Work>> work) {
  Status status = Scheduler::Process().StartProgress();
  if (status.ok()) status = work.status();
  if (!status.ok()) return Prefixed(call, status);
  if (IsNull(target)) {
    SubmitToNull(std::move(work).value());
  } else {
    Submit(target.device, target.stream, std::move(work).value());
  }
  return Status();
}

Result<EventPin> FindEvent(axcclEvent_t handle, const char* call) {
  EventPin pin = Events().Get(handle);
  if (pin) return pin;
  return InvalidArgument("%s: argument event (%p) is not a live event; create one with axcclEventCreate", call,
                         static_cast<void*>(handle));
}

// What an event stands for. Another thread may destroy the event meanwhile.
struct Recorded {
  Device* device;  // null: none, or several
  Mark mark;
};

Result<Recorded> FindRecorded(axcclEvent_t handle, const char* call) {
  AXCCL_ASSIGN_OR_RETURN(const EventPin event, FindEvent(handle, call));
  return Recorded{event->device(), event->mark()};
}

using Clock = std::chrono::steady_clock;

// Returns false if the mark is not reached by `deadline`.
bool WaitUntil(Device* device, const Mark& mark, Clock::time_point deadline) {
  const bool ends = deadline != Clock::time_point::max();
  return Scheduler::Process().Wait(
      device->queue(), [&] { return mark.Reached(); }, [&] { return ends && Clock::now() >= deadline; });
}

void WaitFor(Device* device, const Mark& mark) { (void)WaitUntil(device, mark, Clock::time_point::max()); }

// A query is a good opportunity to drive the queue.
void Help(const Device* device) {
  if (device->queue()->pending()) device->queue()->Drive();
}

Status Query(const Target& target) {
  const std::vector<Target> parts = Parts(target);
  for (const Target& part : parts) {
    Help(part.device);
    if (!Through(part.device, part.stream)) return Status::WithoutText(Code::kInProgress);
  }
  Status error;
  for (const Target& part : parts) {
    if (error.ok()) error = part.stream->timeline()->TakeError();
  }
  return error;
}

// Waits for one stream; returns false if its work is not done by `deadline`. Enqueues nothing for that: a Nothing
// there, as RecordMark enqueues, would hold back the blocking streams.
bool WaitThrough(const Target& target, Clock::time_point deadline) {
  const Mark own{target.stream->timeline(), target.stream->timeline()->issued()};
  std::vector<Mark> others;
  target.device->AddLegacyMarks(target.stream, &others);
  if (!WaitUntil(target.device, own, deadline)) return false;
  return std::all_of(others.begin(), others.end(),
                     [&](const Mark& mark) { return WaitUntil(target.device, mark, deadline); });
}

Status Synchronize(const Target& target, Clock::time_point deadline) {
  if (target.stream != nullptr) {
    if (!Through(target.device, target.stream) && !WaitThrough(target, deadline))
      return Status::WithoutText(Code::kInProgress);
    return target.stream->timeline()->TakeError();
  }
  const std::vector<Target> parts = Parts(target);
  for (const Target& part : parts) {
    if (!WaitThrough(part, deadline)) return Status::WithoutText(Code::kInProgress);
  }
  // An error is returned once, so it stays where it is until all are done.
  Status error;
  for (const Target& part : parts) {
    const Status status = part.stream->timeline()->TakeError();
    if (error.ok()) error = status;
  }
  return error;
}

// Whether the stream is live and its work done, without an error. False also means that it takes longer to find out.
bool IsDone(axcclStream_t handle) {
  const StreamPin stream = Streams().Get(handle);
  if (!stream || stream->blocking()) return false;
  return stream->timeline()->IdleWithoutError();
}

[[gnu::noinline]] Status SynchronizeAny(const char* call, axcclStream_t handle, Clock::time_point deadline) {
  AXCCL_ASSIGN_OR_RETURN(const Target target, FindTarget(handle, call));
  return Synchronize(target, deadline);
}

// Helps to do the work of the device that the event was recorded on.
Status SynchronizeEvent(const char* call, axcclEvent_t handle, Clock::time_point deadline) {
  AXCCL_ASSIGN_OR_RETURN(const Recorded event, FindRecorded(handle, call));
  Device* const device = event.device != nullptr ? event.device : Device::Get(CurrentDevice());
  return WaitUntil(device, event.mark, deadline) ? Status() : Status::WithoutText(Code::kInProgress);
}

Clock::time_point After(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years; the clock has nanoseconds in 64 bits
  if (seconds >= kLongest) return Clock::time_point::max();
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

AXCCL_API ncclResult_t axcclHostSetDevice(int device) {
  return Entry("axcclHostSetDevice", [&](const char* call) -> Status {
    if (device < 0 || device >= kMaxDevices)
      return InvalidArgument("%s: argument device is %d; pass 0..%d", call, device, kMaxDevices - 1);
    ChooseDevice(device);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclHostGetDevice(int* device) {
  return Entry("axcclHostGetDevice", [&](const char* call) -> Status {
    if (device == nullptr) return InvalidArgument("%s: argument device is NULL", call);
    *device = CurrentDevice();
    return Status();
  });
}

AXCCL_API ncclResult_t axcclHostDeviceSynchronize() {
  return Entry("axcclHostDeviceSynchronize", [&](const char*) -> Status {
    Status error;
    for (Device* device : NullDevices()) {
      for (const Mark& mark : device->AllWork()) {
        WaitFor(device, mark);
        if (error.ok()) error = mark.timeline->TakeError();
      }
    }
    return error;
  });
}

AXCCL_API ncclResult_t axcclStreamCreate(axcclStream_t* stream, unsigned int flags) {
  return Entry("axcclStreamCreate", [&](const char* call) -> Status {
    if (stream == nullptr) return InvalidArgument("%s: argument stream is NULL; pass where to put the stream", call);
    *stream = nullptr;
    if ((flags & ~axcclStreamNonBlocking) != 0)
      return InvalidArgument("%s: argument flags is 0x%x; pass axcclStreamDefault or axcclStreamNonBlocking", call,
                             flags);
    const int device = CurrentDevice();
    auto made = std::make_shared<Stream>(device, (flags & axcclStreamNonBlocking) == 0);
    Device::Get(device)->AddStream(made);
    return Insert(&Streams(), call, "streams", std::move(made), stream);
  });
}

AXCCL_API ncclResult_t axcclStreamDestroy(axcclStream_t stream) {
  return Entry("axcclStreamDestroy", [&](const char* call) -> Status {
    if (stream != nullptr && Streams().Remove(stream) != nullptr) return Status();
    return InvalidArgument("%s: argument stream (%p) is not a live host stream", call, static_cast<void*>(stream));
  });
}

AXCCL_API ncclResult_t axcclStreamSynchronize(axcclStream_t handle) {
  return Entry("axcclStreamSynchronize", [&](const char* call) -> Status {
    return IsDone(handle) ? Status() : SynchronizeAny(call, handle, Clock::time_point::max());
  });
}

AXCCL_API ncclResult_t axcclStreamSynchronizeFor(axcclStream_t handle, double seconds) {
  return Entry("axcclStreamSynchronizeFor", [&](const char* call) -> Status {
    if (!(seconds >= 0))
      return InvalidArgument("%s: argument seconds is %g; pass 0 or a positive number", call, seconds);
    return IsDone(handle) ? Status() : SynchronizeAny(call, handle, After(seconds));
  });
}

AXCCL_API ncclResult_t axcclStreamQuery(axcclStream_t handle) {
  return Entry("axcclStreamQuery", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const Target target, FindTarget(handle, call));
    return Query(target);
  });
}

AXCCL_API ncclResult_t axcclStreamWaitEvent(axcclStream_t handle, axcclEvent_t event_handle) {
  return Entry("axcclStreamWaitEvent", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const Target target, FindTarget(handle, call));
    AXCCL_ASSIGN_OR_RETURN(Recorded event, FindRecorded(event_handle, call));
    if (IsNull(target)) {
      WaitOnNull(std::move(event.mark));
    } else {
      device::host::WaitFor(target.device, target.stream, std::move(event.mark));
    }
    return Status();
  });
}

AXCCL_API ncclResult_t axcclLaunchHostFunc(axcclStream_t handle, void (*fn)(void* argument), void* argument) {
  return Entry("axcclLaunchHostFunc", [&](const char* call) -> Status {
    if (fn == nullptr) return InvalidArgument("%s: argument fn is NULL; pass a function", call);
    AXCCL_ASSIGN_OR_RETURN(const Target target, FindTarget(handle, call));
    return SubmitTo(call, target, MakeCallback(fn, argument));
  });
}

AXCCL_API ncclResult_t axcclMemcpyAsync(void* dst, const void* src, size_t bytes, axcclStream_t handle) {
  return Entry("axcclMemcpyAsync", [&](const char* call) -> Status {
    if (bytes != 0 && (dst == nullptr || src == nullptr))
      return InvalidArgument("%s: argument %s is NULL with %zu bytes; pass a buffer", call,
                             dst == nullptr ? "dst" : "src", bytes);
    AXCCL_ASSIGN_OR_RETURN(const Target target, FindTarget(handle, call));
    return SubmitTo(call, target, MakeCopy(dst, src, bytes));
  });
}

AXCCL_API ncclResult_t axcclEventCreate(axcclEvent_t* event) {
  return Entry("axcclEventCreate", [&](const char* call) -> Status {
    if (event == nullptr) return InvalidArgument("%s: argument event is NULL; pass where to put the event", call);
    *event = nullptr;
    return Insert(&Events(), call, "events", std::make_shared<Event>(), event);
  });
}

AXCCL_API ncclResult_t axcclEventDestroy(axcclEvent_t event) {
  return Entry("axcclEventDestroy", [&](const char* call) -> Status {
    if (event != nullptr && Events().Remove(event) != nullptr) return Status();
    return InvalidArgument("%s: argument event (%p) is not a live event", call, static_cast<void*>(event));
  });
}

AXCCL_API ncclResult_t axcclEventRecord(axcclEvent_t event_handle, axcclStream_t handle) {
  return Entry("axcclEventRecord", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const Target target, FindTarget(handle, call));
    AXCCL_ASSIGN_OR_RETURN(const EventPin event, FindEvent(event_handle, call));
    event->Record(target.stream != nullptr ? RecordMark(target.device, target.stream) : RecordNullMark(),
                  target.device);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclEventQuery(axcclEvent_t handle) {
  return Entry("axcclEventQuery", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const Recorded event, FindRecorded(handle, call));
    if (!event.mark.Reached()) {
      const std::vector<Device*> devices = event.device != nullptr ? std::vector{event.device} : NullDevices();
      std::for_each(devices.begin(), devices.end(), Help);
    }
    return event.mark.Reached() ? Status() : Status::WithoutText(Code::kInProgress);
  });
}

AXCCL_API ncclResult_t axcclEventSynchronize(axcclEvent_t handle) {
  return Entry("axcclEventSynchronize",
               [&](const char* call) -> Status { return SynchronizeEvent(call, handle, Clock::time_point::max()); });
}

AXCCL_API ncclResult_t axcclEventSynchronizeFor(axcclEvent_t handle, double seconds) {
  return Entry("axcclEventSynchronizeFor", [&](const char* call) -> Status {
    if (!(seconds >= 0))
      return InvalidArgument("%s: argument seconds is %g; pass 0 or a positive number", call, seconds);
    return SynchronizeEvent(call, handle, After(seconds));
  });
}
