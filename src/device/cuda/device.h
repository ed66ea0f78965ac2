// One GPU: its primary context (which CUDA's runtime uses, too), memory, and modules.
//
// Devices live as long as the process. When the application resets one (cudaDeviceReset), the object stays for what
// still refers to it, and whoever asks for the device gets another one. Thread-safe. Functions work whatever context
// the calling thread has, and leave it current.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "src/base/arena.h"
#include "src/base/status.h"
#include "src/device/cuda/driver.h"

namespace axccl::device::cuda {

class Device {
 public:
  // The number of devices; an error if there is no driver.
  static Result<int> Count();
  // The device of the calling thread's context (cudaSetDevice), 0 when it has none yet.
  static Result<int> Current();
  // The device of a context.
  static Result<int> OrdinalOf(CUcontext context);
  static Result<Device*> Get(int ordinal);
  // kInvalidUsage if the calling thread's context is one of the device that the application has made (cuCtxCreate).
  Status CheckCurrent() const;

  int ordinal() const { return ordinal_; }
  CUdevice id() const { return device_; }
  CUcontext context() const { return context_; }
  int multiprocessors() const { return multiprocessors_; }
  int capability() const { return capability_; }  // times ten: 80 is 8.0
  // 0: it has none, or this driver does not know the attribute.
  int Attribute(CUdevice_attribute attribute) const;
  // Whether kernels can access all memory of the host (so that every pointer is valid).
  bool sees_host_memory() const { return sees_host_memory_ != 0; }
  // The stream of the library's own transfers: it waits for no stream of the application, and none waits for it.
  CUstream stream() const { return stream_; }
  const std::string& name() const { return name_; }
  const CUuuid& uuid() const { return uuid_; }

  // Allocates zeroed memory of the device. Legal while a stream of the calling thread is being captured.
  Result<CUdeviceptr> Allocate(size_t bytes) const;
  // Frees memory that nothing uses any more. Unlike cuMemFree, it does not wait for other work on the device, which may
  // be a kernel that waits for what the calling thread does next. (It does wait if the driver does not support
  // stream-ordered memory.)
  void Free(CUdeviceptr memory) const;
  // The same out of what the device keeps (Arena): the driver is asked only if that is used up. Not to be shared with
  // other processes.
  Result<CUdeviceptr> Take(size_t bytes) const;
  void Return(CUdeviceptr memory) const;
  // Likewise zeroed host memory that all devices see at the same address. The host may use it after a reset, too.
  Result<void*> TakeHost(size_t bytes) const;
  void ReturnHost(void* memory) const;
  // Keeps as much of both as the calls of one more rank need, until Unreserve.
  Status Reserve() const;
  void Unreserve() const;
  // Set memory to zeros, and copy from the host. Finished when they return; they wait for no other work. The driver may
  // do so where it copies pageable memory (CUDA driver API, "API synchronization behavior"), so the library copies from
  // pinned memory of its own, which Reserve takes.
  Status Clear(CUdeviceptr memory, size_t bytes) const;
  Status Upload(CUdeviceptr to, const void* from, size_t bytes) const;
  // Whether the application has reset the device since: what was there is gone.
  bool was_reset() const;
  // Returns an error once a kernel or copy of this process has failed there, which runs nothing of it any more, and
  // after a reset.
  Status CheckHealth() const;
  // Makes the memory of `peer` accessible to kernels here; ok if it already is.
  Status EnablePeer(const Device& peer) const;
  // `image`: a fatbin.
  Result<CUmodule> Load(const void* image) const;

 private:
  friend class DeviceTable;
  Status Open(int ordinal);
  Result<CUdeviceptr> AllocateUncleared(size_t bytes) const;
  static Result<uintptr_t> TakePinned(size_t bytes);
  Status TakeStaging() const;

  int ordinal_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  unsigned long long context_id_ = 0;  // a primary context that is made anew gets another one
  CUstream stream_ = nullptr;
  int multiprocessors_ = 0;
  int capability_ = 0;
  int sees_host_memory_ = 0;
  int frees_in_order_ = 0;  // the driver frees memory in the order of a stream
  CUuuid uuid_{};
  std::string name_;
  std::unique_ptr<Arena> memory_, pinned_;
  mutable std::mutex uploading_;          // guards what follows
  mutable std::byte* staging_ = nullptr;  // for uploads
};

// Pins memory of the process, for all devices, until the device whose context is current is reset.
CUresult Pin(void* memory, size_t bytes);

// Makes a device's context current to the calling thread, for calls that may be part of a capture. What lies within
// another scope of the device asks the driver for nothing again; the application's code does not run there.
class Current {
 public:
  explicit Current(const Device& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Device* const outer_;
  bool pushed_ = false;
};

// Whether a handle stands for a stream of the context that is current.
inline bool IsOfCurrentContext(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// Calls the driver for a stream of the device, or for an event or memory of it. CUDA lets the driver refuse to launch
// into a stream of a context that is not current; then it has done nothing, and is called again with the context. So
// most calls need not ask which context is current. There must be a Current if the handle stands for a stream of the
// current context.
template <typename Call>
CUresult OnStream(const Device& device, Call call) {
  const CUresult result = call();
  if (result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_INVALID_HANDLE) return result;
  const Current current(device);
  return call();
}

// Current, and calls that would break the capture of a stream are allowed, too.
class Scope {
 public:
  explicit Scope(const Device& device);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const Current current_;
  const bool outermost_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace axccl::device::cuda
