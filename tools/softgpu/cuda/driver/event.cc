// cuEvent*.
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return WithContext([&](const ContextPtr& context) {
    const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (handle == nullptr || (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0)) return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_shared<Event>(flags);
    event->context = context;
    if (shared && !MakeInterprocess(event)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = reinterpret_cast<CUevent>(HandlesOf<Event>().Add(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  return HandlesOf<Event>().Remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  return WithStream(stream, [&](const StreamPtr& found) {
    return WithEvent(handle, [&](const EventPtr& event) {
      // An external record in a capture becomes a node of the graph.
      if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) return Enqueue(found, RecordOperation(event));
      return RecordEvent(found, event);
    });
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) { return cuEventRecordWithFlags(handle, stream, 0); }

CUresult cuEventQuery(CUevent handle) {
  return WithEvent(handle, [](const EventPtr& event) {
    const CUresult error = CheckUnsafeCall();
    return error != CUDA_SUCCESS ? error : QueryEvent(event);
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return WithEvent(handle, [](const EventPtr& event) {
    const CUresult error = CheckUnsafeCall();
    return error != CUDA_SUCCESS ? error : SynchronizeEvent(event);
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return WithEvent(start, [&](const EventPtr& first) {
    return WithEvent(end, [&](const EventPtr& last) { return ElapsedTime(first, last, milliseconds); });
  });
}
