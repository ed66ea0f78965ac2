// The runtime API on top of the driver's entry points: the device and last error of each thread, and the code that
// programs register. Errors of the runtime have the numbers of the driver's.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <string>

namespace softgpu::runtime {

// Ensures that the driver is initialised and the thread has a context: its own choice, else its device's primary one.
cudaError_t Ensure();
// Like Ensure(), without a context.
cudaError_t EnsureDriver();
// Stores an error as the thread's last one.
cudaError_t Finish(cudaError_t error);
inline cudaError_t Finish(CUresult error) { return Finish(static_cast<cudaError_t>(error)); }
cudaError_t TakeLastError();
cudaError_t PeekLastError();

// Almost every function does this: get the context, call the driver, store the error.
template <typename Function>
cudaError_t Call(const Function& function) {
  const cudaError_t error = Ensure();
  return Finish(error != cudaSuccess ? error : static_cast<cudaError_t>(function()));
}

// The device of the thread: that of its context, or the one set by cudaSetDevice.
int CurrentDevice();
cudaError_t UseDevice(int device);
// Forgets the device's primary context.
void ForgetDevice(int device);

// ---- registered code ----
// Finds the kernel for the address of a host function, or for a handle returned earlier.
cudaError_t FindKernel(const void* function, CUkernel* kernel);
// Finds the variable for the address of its host shadow, in the current context.
cudaError_t FindVariable(const void* symbol, CUdeviceptr* address, size_t* bytes);

// ---- launches ----
cudaError_t Launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream,
                   bool cooperative);

inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline CUdeviceptr* Out(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace softgpu::runtime
