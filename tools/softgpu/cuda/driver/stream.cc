// cuStream*, except for captures.
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

CUresult EnqueueWords(CUstream stream, std::vector<CUstreamBatchMemOpParams> words) {
  return WithStream(stream, [&](const StreamPtr& found) {
    for (const CUstreamBatchMemOpParams& word : words) {
      const bool wide =
          word.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || word.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
      const bool access =
          wide || word.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || word.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
      if (!access) continue;
      const CUdeviceptr address = word.waitValue.address;
      if (!AddressSpace::Get().Find(address) || address % (wide ? 8 : 4) != 0) return CUDA_ERROR_INVALID_VALUE;
    }
    return Enqueue(found, std::make_shared<MemoryWordsOperation>(found->context, std::move(words)));
  });
}

CUstreamBatchMemOpParams Wait(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams word = {};
  word.waitValue.operation = type;
  word.waitValue.address = address;
  word.waitValue.value64 = value;
  word.waitValue.flags = flags;
  return word;
}

CUstreamBatchMemOpParams Write(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams word = {};
  word.writeValue.operation = type;
  word.writeValue.address = address;
  word.writeValue.value64 = value;
  word.writeValue.flags = flags;
  return word;
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return WithContext([&](const ContextPtr& context) {
    if (stream == nullptr || (flags & ~CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
    const StreamPtr made = CreateStream(context, flags, priority);
    HandlesOf<Stream>().Add(made);
    *stream = made->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy(CUstream handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const StreamPtr stream = HandlesOf<Stream>().Remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const StreamLock lock = LockStreams();
  stream->destroyed = true;
  if (stream->capture != nullptr) stream->capture->invalid = true;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) { return WithStream(handle, Synchronize); }
CUresult cuStreamQuery(CUstream handle) {
  return WithStream(handle, [](const StreamPtr& stream) {
    SynchronizeFor(kSyncQuery);
    return Query(stream);
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *flags = stream->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *id = stream->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *device = stream->context->device().ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *context = stream->context->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    return WithEvent(event, [&](const EventPtr& found) { return WaitEvent(stream, found, flags); });
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return Enqueue(stream, std::make_shared<HostOperation>(stream->context, function, data));
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    {
      const StreamLock lock = LockStreams();
      if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const ContextPtr context = stream->context;
    const auto call = [context, handle, callback, data] { callback(handle, context->error(), data); };
    return Enqueue(stream, std::make_shared<CallOperation>(context, call, context->device().ordinal));
  });
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return EnqueueWords(stream, {Wait(CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags)});
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return EnqueueWords(stream, {Wait(CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags)});
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return EnqueueWords(stream, {Write(CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags)});
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return EnqueueWords(stream, {Write(CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags)});
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* words, unsigned) {
  if (words == nullptr || count > 256) return CUDA_ERROR_INVALID_VALUE;
  return EnqueueWords(stream, {words, words + count});
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr, size_t, unsigned) {
  return WithStream(handle, [](const StreamPtr&) { return CUDA_SUCCESS; });
}

// Attributes are hints (caching, priorities of memory traffic), which have no effect here.
CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID, const CUstreamAttrValue*) {
  return WithStream(handle, [](const StreamPtr&) { return CUDA_SUCCESS; });
}
CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *value = {};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  return WithStream(to,
                    [&](const StreamPtr&) { return WithStream(from, [](const StreamPtr&) { return CUDA_SUCCESS; }); });
}
