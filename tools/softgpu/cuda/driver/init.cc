// Starting the driver, and its version.
#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

enum class Stage { kNew, kReady, kForked, kEnded };
std::atomic<Stage> g_stage{Stage::kNew};

// The threads of the driver do not exist in a child.
void AfterFork() {
  if (g_stage.load() == Stage::kReady) g_stage.store(Stage::kForked);
}

}  // namespace

CUresult Ready() {
  switch (g_stage.load(std::memory_order_acquire)) {
    case Stage::kReady:
      return CUDA_SUCCESS;
    case Stage::kEnded:
      return CUDA_ERROR_DEINITIALIZED;
    default:
      return CUDA_ERROR_NOT_INITIALIZED;
  }
}

void MarkReady() {
  Stage stage = Stage::kNew;
  if (!g_stage.compare_exchange_strong(stage, Stage::kReady)) return;
  pthread_atfork(nullptr, nullptr, AfterFork);
  if (Knobs().shutdown) std::atexit([] { g_stage.store(Stage::kEnded); });
}

CUresult UsableContext(ContextPtr* context) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  *context = CurrentContext();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (HandlesOf<Context>().Find(context->get()) == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return (*context)->error();
}

CUresult ResolveStream(CUstream handle, StreamPtr* stream) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return WithContext([&](const ContextPtr& context) {
      *stream = handle == CU_STREAM_PER_THREAD ? PerThreadStream(context) : LegacyStream(context);
      return CUDA_SUCCESS;
    });
  }
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  *stream = HandlesOf<Stream>().Find(handle);
  return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : (*stream)->context->error();
}

}  // namespace softgpu::cuda

using softgpu::cuda::FindDevice;
using softgpu::cuda::Knobs;
using softgpu::cuda::MarkReady;
using softgpu::cuda::Ready;

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (Knobs().devices <= 0) return CUDA_ERROR_NO_DEVICE;
  FindDevice(0);
  MarkReady();
  return Ready();
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = Knobs().driver_version;
  return CUDA_SUCCESS;
}
