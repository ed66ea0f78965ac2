#include "tools/softgpu/cuda/driver/copy.h"

#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

size_t Span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice) {
  return (depth - 1) * slice + (height - 1) * pitch + width;
}

// Memory that CUDA knows must contain the whole span; the program is responsible for other memory, where it is allowed.
CUresult CheckSpan(uint64_t address, size_t bytes, bool must_be_known, const char* what) {
  const std::optional<Range> range = AddressSpace::Get().Find(address);
  if (!range && !must_be_known) return CUDA_SUCCESS;
  if (range && range->kind == RangeKind::kMulticast) {
    Explain("%s at the multicast address %#llx, which is for multimem instructions alone", what,
            static_cast<unsigned long long>(address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (range && bytes <= AddressSpace::Get().EndOfMapped(*range) - address) return CUDA_SUCCESS;
  Explain("%s of %zu bytes at %#llx: %s", what, bytes, static_cast<unsigned long long>(address),
          range ? "that reaches beyond the end of the allocation" : "no allocation is there");
  return CUDA_ERROR_INVALID_VALUE;
}

bool IsCapturing(const Stream& stream) {
  const StreamLock lock = LockStreams();
  return stream.capture != nullptr;
}

// A copy of the source's present contents.
OperationPtr CopyFromSnapshot(const ContextPtr& context, CopyShape shape) {
  const size_t bytes = Span(shape.width, shape.height, shape.depth, shape.from_pitch, shape.from_slice);
  const auto snapshot = std::make_shared<std::vector<std::byte>>(Pointer(shape.from), Pointer(shape.from) + bytes);
  shape.from = Address(snapshot->data());
  return std::make_shared<CallOperation>(context, [shape, snapshot] { Copy(shape); });
}

// One side of the parameters of a copy in three dimensions.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, pitch, height;
};

CUresult Locate(const Side& side, size_t width, size_t rows, uint64_t* address, size_t* pitch, size_t* slice,
                bool* known) {
  if (side.type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t base = side.type == CU_MEMORYTYPE_HOST ? Address(side.host) : side.device;
  *known = side.type == CU_MEMORYTYPE_DEVICE;
  *pitch = side.pitch != 0 ? side.pitch : width;
  *slice = *pitch * (side.height != 0 ? side.height : rows);
  *address = base + side.z * *slice + side.y * *pitch + side.x;
  return *pitch < width ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult CheckCopy(const CopyShape& shape, Sides sides) {
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return CUDA_SUCCESS;
  const size_t to = Span(shape.width, shape.height, shape.depth, shape.to_pitch, shape.to_slice);
  const size_t from = Span(shape.width, shape.height, shape.depth, shape.from_pitch, shape.from_slice);
  const CUresult error = CheckSpan(shape.to, to, sides.to_known, "a write");
  return error != CUDA_SUCCESS ? error : CheckSpan(shape.from, from, sides.from_known, "a read");
}

CUresult ReadCopy(const CUDA_MEMCPY3D& p, CopyShape* shape, Sides* sides) {
  shape->width = p.WidthInBytes;
  shape->height = p.Height;
  shape->depth = p.Depth;
  const Side to = {p.dstMemoryType, p.dstHost, p.dstDevice, p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight};
  const Side from = {p.srcMemoryType, p.srcHost, p.srcDevice, p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight};
  const CUresult error =
      Locate(to, p.WidthInBytes, p.Height, &shape->to, &shape->to_pitch, &shape->to_slice, &sides->to_known);
  if (error != CUDA_SUCCESS) return error;
  return Locate(from, p.WidthInBytes, p.Height, &shape->from, &shape->from_pitch, &shape->from_slice,
                &sides->from_known);
}

CUresult CheckFill(const FillShape& shape) {
  if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
  if (shape.to % shape.element != 0 || shape.pitch % shape.element != 0) return CUDA_ERROR_INVALID_VALUE;
  return CheckSpan(shape.to, Span(shape.width * shape.element, shape.height, 1, shape.pitch, 0), true, "a fill");
}

CUresult CopyOn(CUstream stream, const CopyShape& shape, Sides sides) {
  return WithStream(stream, [&](const StreamPtr& found) {
    if (const CUresult error = CheckCopy(shape, sides); error != CUDA_SUCCESS) return error;
    if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return CUDA_SUCCESS;
    if (IsCapturing(*found)) return Enqueue(found, std::make_shared<CopyOperation>(found->context, shape));
    // The program may reuse pageable memory as soon as the call returns: the source is read at once, and the call waits
    // for writes to the target.
    const std::optional<Range> from = AddressSpace::Get().Find(shape.from), to = AddressSpace::Get().Find(shape.to);
    const bool pageable_target = !to;
    const bool within_host = (!from || from->on_host()) && (!to || to->on_host());
    const bool waits = pageable_target || (within_host && (Knobs().implicit_sync & kSyncHostCopy) != 0);
    if (!from || !to) SynchronizeFor(kSyncPageable);
    const OperationPtr copy = !from && !pageable_target ? CopyFromSnapshot(found->context, shape)
                                                        : std::make_shared<CopyOperation>(found->context, shape);
    const CUresult error = Enqueue(found, copy);
    return error == CUDA_SUCCESS && waits ? Synchronize(found) : error;
  });
}

CUresult CopyNow(CUstream stream, const CopyShape& shape, Sides sides) {
  return WithStream(stream, [&](const StreamPtr& found) {
    CUresult error = CheckUnsafeCall();
    if (error == CUDA_SUCCESS) error = CopyOn(stream, shape, sides);
    return error != CUDA_SUCCESS ? error : Synchronize(found);
  });
}

CUresult FillOn(CUstream stream, const FillShape& shape) {
  return WithStream(stream, [&](const StreamPtr& found) {
    if (const CUresult error = CheckFill(shape); error != CUDA_SUCCESS) return error;
    return Enqueue(found, std::make_shared<FillOperation>(found->context, shape));
  });
}

CUresult FillNow(CUstream stream, const FillShape& shape) {
  const CUresult error = CheckUnsafeCall();
  return error != CUDA_SUCCESS ? error : FillOn(stream, shape);
}

namespace {

CopyShape Line(uint64_t to, uint64_t from, size_t bytes) {
  CopyShape shape;
  shape.to = to;
  shape.from = from;
  shape.width = bytes;
  return shape;
}

FillShape Fill(CUdeviceptr to, uint32_t value, unsigned element, size_t width, size_t height = 1, size_t pitch = 0) {
  return {to, value, element, width, height, pitch};
}

CUDA_MEMCPY3D Raise(const CUDA_MEMCPY2D& p) {
  CUDA_MEMCPY3D raised = {};
  raised.srcXInBytes = p.srcXInBytes;
  raised.srcY = p.srcY;
  raised.srcMemoryType = p.srcMemoryType;
  raised.srcHost = p.srcHost;
  raised.srcDevice = p.srcDevice;
  raised.srcPitch = p.srcPitch;
  raised.dstXInBytes = p.dstXInBytes;
  raised.dstY = p.dstY;
  raised.dstMemoryType = p.dstMemoryType;
  raised.dstHost = p.dstHost;
  raised.dstDevice = p.dstDevice;
  raised.dstPitch = p.dstPitch;
  raised.WidthInBytes = p.WidthInBytes;
  raised.Height = p.Height;
  raised.Depth = 1;
  return raised;
}

template <typename Start>
CUresult Copy3D(const CUDA_MEMCPY3D& parameters, const Start& start) {
  CopyShape shape;
  Sides sides;
  const CUresult error = ReadCopy(parameters, &shape, &sides);
  return error != CUDA_SUCCESS ? error : start(shape, sides);
}

constexpr Sides kAnywhere = {false, false}, kToDevice = {true, false}, kFromDevice = {false, true},
                kOnDevices = {true, true};

}  // namespace
}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyNow(nullptr, Line(to, from, bytes), kAnywhere);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyNow(nullptr, Line(to, Address(from), bytes), kToDevice);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return CopyNow(nullptr, Line(Address(to), from, bytes), kFromDevice);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyNow(nullptr, Line(to, from, bytes), kOnDevices);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return CopyNow(nullptr, Line(to, from, bytes), kOnDevices);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyOn(stream, Line(to, from, bytes), kAnywhere);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return CopyOn(stream, Line(to, Address(from), bytes), kToDevice);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyOn(stream, Line(Address(to), from, bytes), kFromDevice);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyOn(stream, Line(to, from, bytes), kOnDevices);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  return CopyOn(stream, Line(to, from, bytes), kOnDevices);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D* p) {
  return Copy3D(Raise(*p), [](const CopyShape& shape, Sides sides) { return CopyNow(nullptr, shape, sides); });
}
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* p) { return cuMemcpy2D(p); }
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* p, CUstream stream) {
  if (Knobs().pitches && (p->srcPitch % kPitch != 0 || p->dstPitch % kPitch != 0)) return CUDA_ERROR_INVALID_VALUE;
  return Copy3D(Raise(*p), [&](const CopyShape& shape, Sides sides) { return CopyOn(stream, shape, sides); });
}
CUresult cuMemcpy3D(const CUDA_MEMCPY3D* p) {
  return Copy3D(*p, [](const CopyShape& shape, Sides sides) { return CopyNow(nullptr, shape, sides); });
}
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* p, CUstream stream) {
  return Copy3D(*p, [&](const CopyShape& shape, Sides sides) { return CopyOn(stream, shape, sides); });
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return FillNow(nullptr, Fill(to, value, 1, count));
}
CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
  return FillNow(nullptr, Fill(to, value, 2, count));
}
CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  return FillNow(nullptr, Fill(to, value, 4, count));
}
CUresult cuMemsetD2D8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return FillNow(nullptr, Fill(to, value, 1, width, height, pitch));
}
CUresult cuMemsetD2D16(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return FillNow(nullptr, Fill(to, value, 2, width, height, pitch));
}
CUresult cuMemsetD2D32(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return FillNow(nullptr, Fill(to, value, 4, width, height, pitch));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return FillOn(stream, Fill(to, value, 1, count));
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return FillOn(stream, Fill(to, value, 2, count));
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return FillOn(stream, Fill(to, value, 4, count));
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
  return FillOn(stream, Fill(to, value, 1, width, height, pitch));
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
  return FillOn(stream, Fill(to, value, 2, width, height, pitch));
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                            CUstream stream) {
  return FillOn(stream, Fill(to, value, 4, width, height, pitch));
}
