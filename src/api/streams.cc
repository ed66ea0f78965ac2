// axccl.h: host devices, streams and events.
#include <vector>

#include "axccl/axccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/device/host/stream.h"

using namespace axccl;                // NOLINT: the C entry points
using namespace axccl::api;           // NOLINT
using namespace axccl::device::host;  // NOLINT

namespace {

using EventPin = HandleTable<Event>::Pin;

// A stream argument with the device it belongs to.
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
  target->device = Device::Get(target->stream != nullptr ? target->stream->device() : Device::Current(false));
  if (target->stream == nullptr) target->stream = target->device->null_stream();
  return true;
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
  Device::SetCurrent(device);
  return ncclSuccess;
}
AXCCL_CATCH(axcclHostSetDevice)

AXCCL_API ncclResult_t axcclHostGetDevice(int* device) try {
  if (device == nullptr) return InvalidArgument("axcclHostGetDevice: argument device is NULL");
  *device = Device::Current(false);
  return ncclSuccess;
}
AXCCL_CATCH(axcclHostGetDevice)

AXCCL_API ncclResult_t axcclHostDeviceSynchronize() try {
  if (const Status status = CheckProcess("axcclHostDeviceSynchronize"); !status.ok()) return Report(status);
  Device* device = Device::Get(Device::Current(false));
  Status error;
  for (const Mark& mark : device->AllWork()) {
    WaitFor(device, mark);
    if (error.ok()) error = mark.timeline->TakeError();
  }
  return Report(error);
}
AXCCL_CATCH(axcclHostDeviceSynchronize)

AXCCL_API ncclResult_t axcclStreamCreate(axcclStream_t* stream, unsigned int flags) try {
  if (const Status status = CheckProcess("axcclStreamCreate"); !status.ok()) return Report(status);
  if (stream == nullptr) return InvalidArgument("axcclStreamCreate: argument stream is NULL; pass where to put the stream");
  *stream = nullptr;
  if ((flags & ~axcclStreamNonBlocking) != 0)
    return InvalidArgument("axcclStreamCreate: argument flags is 0x%x; pass axcclStreamDefault or axcclStreamNonBlocking", flags);
  const int device = Device::Current(false);
  auto made = std::make_shared<Stream>(device, (flags & axcclStreamNonBlocking) == 0);
  Device::Get(device)->AddStream(made);
  *stream = static_cast<axcclStream_t>(Streams().Insert(std::move(made)));
  return ncclSuccess;
}
AXCCL_CATCH(axcclStreamCreate)

AXCCL_API ncclResult_t axcclStreamDestroy(axcclStream_t stream) try {
  if (stream == nullptr || Streams().Remove(stream) == nullptr)
    return InvalidArgument("axcclStreamDestroy: argument stream (%p) is not a live host stream", static_cast<void*>(stream));
  return ncclSuccess;
}
AXCCL_CATCH(axcclStreamDestroy)

AXCCL_API ncclResult_t axcclStreamSynchronize(axcclStream_t handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclStreamSynchronize", &target, &result)) return result;
  Timeline* timeline = target.stream->timeline().get();
  if (!Through(target.device, target.stream)) {
    // Waiting is no work on the stream: a Nothing there, as of RecordMark, would hold back the blocking streams.
    std::vector<Mark> marks{Mark{target.stream->timeline(), timeline->issued()}};
    target.device->AddLegacyMarks(target.stream, &marks);
    for (const Mark& mark : marks) WaitFor(target.device, mark);
  }
  return Report(timeline->TakeError());
}
AXCCL_CATCH(axcclStreamSynchronize)

AXCCL_API ncclResult_t axcclStreamQuery(axcclStream_t handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclStreamQuery", &target, &result)) return result;
  // A query is a good moment to move things on.
  if (target.device->queue()->pending()) target.device->queue()->Drive();
  if (!Through(target.device, target.stream)) return ncclInProgress;
  return Report(target.stream->timeline()->TakeError());
}
AXCCL_CATCH(axcclStreamQuery)

AXCCL_API ncclResult_t axcclStreamWaitEvent(axcclStream_t handle, axcclEvent_t event_handle) try {
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclStreamWaitEvent", &target, &result)) return result;
  const EventPin event = FindEvent(event_handle, "axcclStreamWaitEvent", &result);
  if (!event) return result;
  device::host::WaitFor(target.device, target.stream, event->mark());
  return ncclSuccess;
}
AXCCL_CATCH(axcclStreamWaitEvent)

AXCCL_API ncclResult_t axcclLaunchHostFunc(axcclStream_t handle, void (*fn)(void* argument), void* argument) try {
  if (fn == nullptr) return InvalidArgument("axcclLaunchHostFunc: argument fn is NULL; pass a function");
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclLaunchHostFunc", &target, &result)) return result;
  Submit(target.device, target.stream, MakeCallback(fn, argument));
  return ncclSuccess;
}
AXCCL_CATCH(axcclLaunchHostFunc)

AXCCL_API ncclResult_t axcclMemcpyAsync(void* dst, const void* src, size_t bytes, axcclStream_t handle) try {
  if (bytes != 0 && (dst == nullptr || src == nullptr))
    return InvalidArgument("axcclMemcpyAsync: argument %s is NULL with %zu bytes; pass a buffer", dst == nullptr ? "dst" : "src",
                           bytes);
  ncclResult_t result = ncclSuccess;
  Target target;
  if (!FindTarget(handle, "axcclMemcpyAsync", &target, &result)) return result;
  Submit(target.device, target.stream, MakeCopy(dst, src, bytes));
  return ncclSuccess;
}
AXCCL_CATCH(axcclMemcpyAsync)

AXCCL_API ncclResult_t axcclEventCreate(axcclEvent_t* event) try {
  if (event == nullptr) return InvalidArgument("axcclEventCreate: argument event is NULL; pass where to put the event");
  *event = static_cast<axcclEvent_t>(Events().Insert(std::make_shared<Event>()));
  return ncclSuccess;
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
  event->Record(RecordMark(target.device, target.stream));
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
  WaitFor(Device::Get(Device::Current(false)), mark);
  return ncclSuccess;
}
AXCCL_CATCH(axcclEventSynchronize)
