// cuCtx*: contexts and which one is current; access to peers.
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

CUresult FindContext(CUcontext handle, ContextPtr* context) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  *context = HandlesOf<Context>().Find(handle);
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult SetPeer(CUcontext handle, bool allowed) {
  return WithContext([&](const ContextPtr& context) -> CUresult {
    ContextPtr peer;
    if (const CUresult error = FindContext(handle, &peer); error != CUDA_SUCCESS) return error;
    const int device = context->device().ordinal, other = peer->device().ordinal;
    if (device == other) return CUDA_ERROR_INVALID_DEVICE;
    if (!Knobs().peer_access) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (AddressSpace::Get().peer_access(device, other) == allowed)
      return allowed ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    AddressSpace::Get().SetPeerAccess(device, other, allowed);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned flags, CUdevice device) {
  return WithDevice(device, [&](Device* found) {
    const ContextPtr made = Context::Create(found, flags);
    ContextStack().push_back(made);
    *context = made->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDestroy(CUcontext handle) {
  ContextPtr context;
  if (const CUresult error = FindContext(handle, &context); error != CUDA_SUCCESS) return error;
  if (context == ActivePrimary(&context->device())) return CUDA_ERROR_INVALID_CONTEXT;
  if (CurrentContext() == context) ContextStack().pop_back();
  Dismantle(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  ContextPtr context;
  if (const CUresult error = FindContext(handle, &context); error != CUDA_SUCCESS) return error;
  ContextStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const ContextPtr context = CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStack().pop_back();
  if (handle != nullptr) *handle = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  std::vector<ContextPtr>& stack = ContextStack();
  ContextPtr context;
  if (handle != nullptr) {
    if (const CUresult error = FindContext(handle, &context); error != CUDA_SUCCESS) return error;
  }
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const ContextPtr context = CurrentContext();
  *handle = context == nullptr ? nullptr : context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const ContextPtr context = CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device().ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return WithContext([&](const ContextPtr& context) {
    *flags = context->flags();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  ContextPtr context = CurrentContext();
  if (handle != nullptr) {
    if (const CUresult error = FindContext(handle, &context); error != CUDA_SUCCESS) return error;
  }
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  return WithContext([](const ContextPtr& context) {
    const CUresult error = CheckCapturesOf(context);
    return error != CUDA_SUCCESS ? error : SynchronizeContext(context);
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return WithContext([&](const ContextPtr&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return WithContext([](const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return WithContext([](const ContextPtr&) { return CUDA_SUCCESS; });
}

// The engine chooses the sizes of its stacks and buffers itself.
CUresult cuCtxSetLimit(CUlimit, size_t) {
  return WithContext([](const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return WithContext([&](const ContextPtr&) {
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : SetPeer(peer, true);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) { return SetPeer(peer, false); }

CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }
