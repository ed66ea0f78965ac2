// Streams, events and captures; the driver's entry points by name.
#include "tools/softgpu/cuda/runtime/runtime.h"

using namespace softgpu::runtime;  // NOLINT: the C entry points

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Call([&] { return cuStreamCreate(stream, CU_STREAM_DEFAULT); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return Call([&] { return cuStreamCreate(stream, flags); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return Call([&] { return cuStreamCreateWithPriority(stream, flags, priority); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Call([&] { return cuStreamDestroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Call([&] { return cuStreamSynchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Call([&] { return cuStreamQuery(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return Call([&] { return cuStreamWaitEvent(stream, event, flags); });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags) {
  // The status has the same numbers in both APIs.
  return Call([&] { return cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(callback), data, flags); });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return Call([&] { return cuStreamGetPriority(stream, priority); });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return Call([&] { return cuStreamGetFlags(stream, flags); });
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return Call([&] { return cuStreamGetId(stream, id); });
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return Call([&] { return cuStreamGetDevice(stream, device); });
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, size_t bytes, unsigned flags) {
  return Call([&] { return cuStreamAttachMemAsync(stream, Address(pointer), bytes, flags); });
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  return Call([&] { return cuStreamCopyAttributes(to, from); });
}
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue* value) {
  return Call([&] {
    return cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                reinterpret_cast<const CUstreamAttrValue*>(value));
  });
}
cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue* value) {
  return Call([&] {
    return cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                reinterpret_cast<CUstreamAttrValue*>(value));
  });
}

// ---- events ----

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return Call([&] { return cuEventCreate(event, CU_EVENT_DEFAULT); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Call([&] { return cuEventCreate(event, flags); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Call([&] { return cuEventDestroy(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call([&] { return cuEventRecord(event, stream); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return Call([&] { return cuEventRecordWithFlags(event, stream, flags); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Call([&] { return cuEventQuery(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Call([&] { return cuEventSynchronize(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return Call([&] { return cuEventElapsedTime(milliseconds, start, end); });
}

// ---- captures ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Call([&] { return cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)); });
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData*, size_t count, cudaStreamCaptureMode mode) {
  return Call([&] {
    return cuStreamBeginCaptureToGraph(stream, graph, dependencies, nullptr, count,
                                       static_cast<CUstreamCaptureMode>(mode));
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Call([&] { return cuStreamEndCapture(stream, graph); });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return Call([&] { return cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)); });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return Call([&] { return cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)); });
}

// ---- the driver's entry points ----

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** pointer, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  if (const cudaError_t error = EnsureDriver(); error != cudaSuccess) return Finish(error);
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult error = cuGetProcAddress(symbol, pointer, static_cast<int>(version), flags, &found);
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  // If the caller gets a status, a missing symbol is no error.
  return error == CUDA_ERROR_NOT_FOUND && status != nullptr ? cudaSuccess : Finish(error);
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** pointer, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, pointer, SOFTGPU_CUDART_MAJOR * 1000, flags, status);
}
