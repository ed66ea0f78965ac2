// The runtime API on top of the driver's entry points: which device a thread uses, its last error, and the code that
// programs register. Errors of the runtime have the numbers of the driver's.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <string>

namespace softgpu::runtime {

// Sees to it that the driver is up and the thread has a context: its own choice, else the primary one of its device.
cudaError_t Ensure();
// As Ensure(), without a context.
cudaError_t EnsureDriver();
// Remembers an error as the thread's last one.
cudaError_t Finish(cudaError_t error);
inline cudaError_t Finish(CUresult error) { return Finish(static_cast<cudaError_t>(error)); }
cudaError_t TakeLastError();
cudaError_t PeekLastError();

// What almost every function is: the context, a call of the driver, the last error.
template <typename Function>
cudaError_t Call(const Function& function) {
  const cudaError_t error = Ensure();
  return Finish(error != cudaSuccess ? error : static_cast<cudaError_t>(function()));
}

// The device of the thread: that of its context, or what cudaSetDevice has said.
int CurrentDevice();
cudaError_t UseDevice(int device);
// Forgets what is known of the device's primary context.
void ForgetDevice(int device);

// ---- registered code ----
// The kernel behind the address of a host function, or behind a handle that one has got from here.
cudaError_t FindKernel(const void* function, CUkernel* kernel);
// The variable behind the address of its host shadow, in the current context.
cudaError_t FindVariable(const void* symbol, CUdeviceptr* address, size_t* bytes);

// ---- launches ----
cudaError_t Launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream,
                   bool cooperative);

inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline CUdeviceptr* Out(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace softgpu::runtime
