// A context: one part of the program's view of a device, with its own streams, modules and sticky error. Thread-safe;
// the one lock of stream.h guards the streams of all contexts.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/device.h"
#include "tools/softgpu/cuda/handles.h"
#include "tools/softgpu/cuda/scheduler.h"

namespace softgpu::cuda {

class Stream;

class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> Create(Device* device, unsigned flags);

  Device& device() const { return *device_; }
  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
  unsigned flags() const { return flags_; }
  uint64_t id() const { return id_; }

  // The first failure of a kernel; from then on every call that concerns the context returns it.
  CUresult error() const { return error_.load(std::memory_order_acquire); }
  void Fail(CUresult error);

  // Created by the first call. Guarded by the lock of stream.h, like everything about streams.
  std::shared_ptr<Stream> legacy_stream;
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<TaskPtr> queues;  // SOFTGPU_QUEUES: the end of each
  std::atomic<uint64_t> made_streams{0};

 private:
  Context(Device* device, unsigned flags);

  Device* const device_;
  const unsigned flags_;
  const uint64_t id_;
  std::atomic<CUresult> error_{CUDA_SUCCESS};
};

using ContextPtr = std::shared_ptr<Context>;

// ---- primary contexts ----
ContextPtr RetainPrimary(Device* device);
// Returns CUDA_ERROR_INVALID_CONTEXT if it is not retained.
CUresult ReleasePrimary(Device* device);
CUresult ResetPrimary(Device* device);
bool PrimaryActive(Device* device, unsigned* flags);
// Null while it is not active.
ContextPtr ActivePrimary(Device* device);

// ---- the contexts of the calling thread; the last one is current ----
std::vector<ContextPtr>& ContextStack();
ContextPtr CurrentContext();
// Ends a context: waits for its work, then frees its memory, streams and modules.
void Dismantle(const ContextPtr& context);

}  // namespace softgpu::cuda
