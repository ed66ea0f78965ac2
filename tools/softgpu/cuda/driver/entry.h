// What every entry point of the driver checks first: the driver is initialised, a context is current, it has not
// failed.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "tools/softgpu/cuda/context.h"
#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/stream.h"

namespace softgpu::cuda {

inline constexpr size_t kPitch = 512;  // of which those of cuMemAllocPitch are multiples

// Returns CUDA_SUCCESS after cuInit; CUDA_ERROR_NOT_INITIALIZED before it and in a child that was forked after it.
CUresult Ready();
void MarkReady();

// The current context. Returns CUDA_ERROR_INVALID_CONTEXT if there is none, its sticky error if it has one.
CUresult UsableContext(ContextPtr* context);

template <typename Function>
CUresult WithContext(const Function& function) {
  ContextPtr context;
  if (const CUresult error = UsableContext(&context); error != CUDA_SUCCESS) return error;
  return function(context);
}

// Returns the stream of a handle, including the legacy and the per-thread stream of the current context. If the
// stream's context has failed, returns its error.
CUresult ResolveStream(CUstream handle, StreamPtr* stream);

template <typename Function>
CUresult WithStream(CUstream handle, const Function& function) {
  StreamPtr stream;
  if (const CUresult error = ResolveStream(handle, &stream); error != CUDA_SUCCESS) return error;
  return function(stream);
}

template <typename Function>
CUresult WithDevice(CUdevice ordinal, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  Device* device = FindDevice(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : function(device);
}

template <typename Function>
CUresult WithEvent(CUevent handle, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const EventPtr event = HandlesOf<Event>().Find(handle);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : function(event);
}

inline std::byte* Pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }
inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace softgpu::cuda
