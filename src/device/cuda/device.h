// One GPU: its primary context (which CUDA's runtime uses, too), memory, and modules.
//
// Devices live as long as the process. Thread-safe. Functions work whatever context the calling thread has, and leave
// it so.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

#include "src/base/status.h"
#include "src/device/cuda/driver.h"

namespace axccl::device::cuda {

class Device {
 public:
  // How many there are; an error where there is no driver.
  static Result<int> Count();
  // That of the calling thread's context (cudaSetDevice), 0 when it has none yet.
  static Result<int> Current();
  static Result<Device*> Get(int ordinal);

  int ordinal() const { return ordinal_; }
  CUdevice id() const { return device_; }
  CUcontext context() const { return context_; }
  int multiprocessors() const { return multiprocessors_; }
  int capability() const { return capability_; }  // times ten: 80 is 8.0
  // Whether kernels reach all memory of the host (and so any pointer is good).
  bool sees_host_memory() const { return sees_host_memory_ != 0; }
  // For the library's own transfers: waits for no stream of the application, and none waits for it.
  CUstream stream() const { return stream_; }
  const std::string& name() const { return name_; }
  const CUuuid& uuid() const { return uuid_; }

  // Zeroed memory of the device. Also while a stream of the calling thread is being captured.
  Result<CUdeviceptr> Allocate(size_t bytes) const;
  // Nothing may use it any more. Does not wait for what else runs on the device, as cuMemFree does: that may be a
  // kernel that waits for what the calling thread does next. (It does where the driver knows no order of streams for
  // memory.)
  void Free(CUdeviceptr memory) const;
  // Zeroed host memory that all devices see at the same address. What is freed is kept for later calls, for the same
  // reason.
  Result<void*> AllocateHost(size_t bytes) const;
  static void FreeHost(void* memory);
  // Done when they return; likewise. Zeros; and what is in memory of the host.
  Status Clear(CUdeviceptr memory, size_t bytes) const;
  Status Upload(CUdeviceptr to, const void* from, size_t bytes) const;
  // An error once a kernel or copy of this process has gone wrong there: nothing of it runs on the device any more.
  Status CheckHealth() const;
  // Makes the memory of `peer` accessible to kernels here; ok where it is already.
  Status EnablePeer(const Device& peer) const;
  // `image`: a fatbin.
  Result<CUmodule> Load(const void* image) const;

 private:
  friend class DeviceTable;
  Status Open(int ordinal);

  int ordinal_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  int multiprocessors_ = 0;
  int capability_ = 0;
  int sees_host_memory_ = 0;
  int frees_in_order_ = 0;  // of a stream
  CUuuid uuid_{};
  std::string name_;
};

// Makes a device's context the calling thread's, and calls legal that would break the capture of a stream.
class Scope {
 public:
  explicit Scope(const Device& device);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool pushed_ = false;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace axccl::device::cuda
