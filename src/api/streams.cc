// axccl.h: host devices, streams and events.
#include <vector>

#include "axccl/axccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/device/host/current.h"
#include "src/device/host/stream.h"

using namespace axccl;                // NOLINT: the C entry points
using namespace axccl::api;           // NOLINT
using namespace axccl::device::host;  // NOLINT

namespace {

using EventPin = HandleTable<Event>::Pin;

// A stream argument with the device it belongs to; neither for what the thread means by NULL, where that is not one
// stream.
struct Target {
  Device* device = nullptr;
  Stream* stream = nullptr;
};

bool FindTarget(axcclStream_t handle, const char* call, Target* target, ncclResult_t* result) {
  if (const Status status = CheckProcess(call); !status.ok()) {
    *result = Report(status);
    return false;
  }
  if (!FindHostStream(handle, call, &target->stream, result)) return false;
  target->device = target->stream != nullptr ? Device::Get(target->stream->device()) : OnlyNullDevice();
  if (target->stream == nullptr && target->device != nullptr) target->stream = target->device->null_stream();
  return true;
}

// The streams behind a target.
std::vector<Target> Parts(const Target& target) {
  if (target.stream != nullptr) return {target};
  std::vector<Target> parts;
  for (Device* device : NullDevices()) parts.push_back({device, device->null_stream()});
  return parts;
}

bool IsNull(const Target& target) { return target.stream == nullptr || target.stream == target.device->null_stream(); }

// Work of the caller's, no call of a rank. On NULL the thread's ranks on other devices wait for it, too.
ncclResult_t SubmitTo(const char* call, const Target& target, Result<std::shared_ptr<Work>> work) {
  Status status = Scheduler::Process().StartProgress();
  if (status.ok()) status = work.status();
  if (!status.ok())
    return Report(MakeStatus(status.code(), "%s: %.*s", call, static_cast<int>(status.message().size()),
                             status.message().data()));
  if (IsNull(target)) {
    SubmitToNull(std::move(work).value());
  } else {
    Submit(target.device, target.stream, std::move(work).value());
  }
  return ncclSuccess;
}

EventPin FindEvent(axcclEvent_t handle, const char* call, ncclResult_t* result) {
  EventPin pin = Events().Get(handle);
  if (!pin)
    *result = InvalidArgument("%s: argument event (%p) is not a live event; create one with axcclEventCreate", call,
                              static_cast<void*>(handle));
  return pin;
}

void WaitFor(Device* device, const Mark& mark) {
  Scheduler::Process().Wait(
      device->queue(), [&] { return mark.Reached(); }, [] { return false; });
}

}  // namespace

AXCCL_API ncclResult_t axcclHostSetDevice(int device) try {
  if (device < 0 || device >= kMaxDevices)
    return InvalidArgument("axcclHostSetDevice: argument device is %d; pass 0..%d", device, kMaxDevices - 1);
  ChooseDevice(device);
  return ncclSuccess;
}
AXCCL_CATCH(axcclHostSetDevice)

AXCCL_API ncclResult_t axcclHostGetDevice(int* device) try {
  if (device == nullptr) return InvalidArgument("axcclHostGetDevice: argument device is NULL");
  *device = CurrentDevice();
  return ncclSuccess;
}
AXCCL_CATCH(axcclHostGetDevice)

AXCCL_API ncclResult_t axcclHostDeviceSynchronize() try {
  if (const Status status = CheckProcess("axcclHostDeviceSynchronize"); !status.ok()) return Report(status);
  Status error;
  for (Device* device : NullDevices()) {
    for (const Mark& mark : device->AllWork()) {
      WaitFor(device, mark);
      if (error.ok()) error = mark.timeline->TakeError();
    }
  }
  return Report(error);
}
AXCCL_CATCH(axcclHostDeviceSynchronize)

AXCCL_API ncclResult_t axcclStreamCreate(axcclStream_t* stream, unsigned int flags) try {
  if (const Status status = CheckProcess("axcclStreamCreate"); !status.ok()) return Report(status);
  if (stream == nullptr)
    return InvalidArgument("axcclStreamCreate: argument stream is NULL; pass where to put the stream");
  *stream = nullptr;
  if ((flags & ~axcclStreamNonBlocking) != 0)
    return InvalidArgument(
        "axcclStreamCreate: argument flags is 0x%x; pass axcclStreamDefault or axcclStreamNonBlocking", flags);
  const int device = CurrentDevice();
  auto made = std::make_shared<Stream>(device, (flags & axcclStreamNonBlocking) == 0);
  Device::Get(device)->AddStream(made);
  return Report(Insert(&Streams(), "axcclStreamCreate", "streams", std::move(made), stream));
}
AXCCL_CATCH(axcclStreamCreate)

AXCCL_API ncclResult_t axcclStreamDestroy(axcclStream_t stream) try {
  if (stream == nullptr || Streams().Remove(stream) == nullptr)
    return InvalidArgument("axcclStreamDestroy: argument stream (%p) is not a live host stream",
                           static_cast<void*>(stream));
  return ncclSuccess;
}
AXCCL_CATCH(axcclStreamDestroy)

AXCCL_API ncclResult_t axcclStreamSynchronize(axcclStream_t handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclStreamSynchronize", &target, &result)) return result;
  if (target.stream != nullptr && Through(target.device, target.stream))
    return Report(target.stream->timeline()->TakeError());
  Status error;
  for (const Target& part : Parts(target)) {
    // Waiting is no work on the stream: a Nothing there, as of RecordMark, would hold back the blocking streams.
    std::vector<Mark> marks{Mark{part.stream->timeline(), part.stream->timeline()->issued()}};
    part.device->AddLegacyMarks(part.stream, &marks);
    for (const Mark& mark : marks) WaitFor(part.device, mark);
    if (error.ok()) error = part.stream->timeline()->TakeError();
  }
  return Report(error);
}
AXCCL_CATCH(axcclStreamSynchronize)

AXCCL_API ncclResult_t axcclStreamQuery(axcclStream_t handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclStreamQuery", &target, &result)) return result;
  const std::vector<Target> parts = Parts(target);
  for (const Target& part : parts) {
    // A query is a good moment to move things on.
    if (part.device->queue()->pending()) part.device->queue()->Drive();
    if (!Through(part.device, part.stream)) return ncclInProgress;
  }
  Status error;
  for (const Target& part : parts) {
    if (error.ok()) error = part.stream->timeline()->TakeError();
  }
  return Report(error);
}
AXCCL_CATCH(axcclStreamQuery)

AXCCL_API ncclResult_t axcclStreamWaitEvent(axcclStream_t handle, axcclEvent_t event_handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclStreamWaitEvent", &target, &result)) return result;
  const EventPin event = FindEvent(event_handle, "axcclStreamWaitEvent", &result);
  if (!event) return result;
  if (IsNull(target)) {
    WaitOnNull(event->mark());
  } else {
    device::host::WaitFor(target.device, target.stream, event->mark());
  }
  return ncclSuccess;
}
AXCCL_CATCH(axcclStreamWaitEvent)

AXCCL_API ncclResult_t axcclLaunchHostFunc(axcclStream_t handle, void (*fn)(void* argument), void* argument) try {
  if (fn == nullptr) return InvalidArgument("axcclLaunchHostFunc: argument fn is NULL; pass a function");
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclLaunchHostFunc", &target, &result)) return result;
  return SubmitTo("axcclLaunchHostFunc", target, MakeCallback(fn, argument));
}
AXCCL_CATCH(axcclLaunchHostFunc)

AXCCL_API ncclResult_t axcclMemcpyAsync(void* dst, const void* src, size_t bytes, axcclStream_t handle) try {
  if (bytes != 0 && (dst == nullptr || src == nullptr))
    return InvalidArgument("axcclMemcpyAsync: argument %s is NULL with %zu bytes; pass a buffer",
                           dst == nullptr ? "dst" : "src", bytes);
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclMemcpyAsync", &target, &result)) return result;
  return SubmitTo("axcclMemcpyAsync", target, MakeCopy(dst, src, bytes));
}
AXCCL_CATCH(axcclMemcpyAsync)

AXCCL_API ncclResult_t axcclEventCreate(axcclEvent_t* event) try {
  if (event == nullptr) return InvalidArgument("axcclEventCreate: argument event is NULL; pass where to put the event");
  *event = nullptr;
  return Report(Insert(&Events(), "axcclEventCreate", "events", std::make_shared<Event>(), event));
}
AXCCL_CATCH(axcclEventCreate)

AXCCL_API ncclResult_t axcclEventDestroy(axcclEvent_t event) try {
  if (event == nullptr || Events().Remove(event) == nullptr)
    return InvalidArgument("axcclEventDestroy: argument event (%p) is not a live event", static_cast<void*>(event));
  return ncclSuccess;
}
AXCCL_CATCH(axcclEventDestroy)

AXCCL_API ncclResult_t axcclEventRecord(axcclEvent_t event_handle, axcclStream_t handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclEventRecord", &target, &result)) return result;
  const EventPin event = FindEvent(event_handle, "axcclEventRecord", &result);
  if (!event) return result;
  event->Record(target.stream != nullptr ? RecordMark(target.device, target.stream) : RecordNullMark());
  return ncclSuccess;
}
AXCCL_CATCH(axcclEventRecord)

AXCCL_API ncclResult_t axcclEventQuery(axcclEvent_t handle) try {
  ncclResult_t result = ncclSuccess;
  const EventPin event = FindEvent(handle, "axcclEventQuery", &result);
  if (!event) return result;
  return event->mark().Reached() ? ncclSuccess : ncclInProgress;
}
AXCCL_CATCH(axcclEventQuery)

AXCCL_API ncclResult_t axcclEventSynchronize(axcclEvent_t handle) try {
  ncclResult_t result = ncclSuccess;
  const EventPin event = FindEvent(handle, "axcclEventSynchronize", &result);
  if (!event) return result;
  const Mark mark = event->mark();
  WaitFor(Device::Get(CurrentDevice()), mark);
  return ncclSuccess;
}
AXCCL_CATCH(axcclEventSynchronize)
