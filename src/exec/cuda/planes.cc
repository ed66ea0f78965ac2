#include "src/exec/cuda/planes.h"

#include <algorithm>
#include <utility>

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Driver;

constexpr int64_t kMostPitch = INT32_MAX;  // that every device allows

// The plane of the lowest indices, and the other dimensions.
struct Cutting {
  Plane first;
  tensor::Shape others;
  int64_t to[tensor::kMaxDims] = {}, from[tensor::kMaxDims] = {};  // strides of the others, bytes

  void Drop(int dim) {
    for (int64_t* values : {others.sizes, to, from}) std::copy(values + dim + 1, values + others.dims, values + dim);
    --others.dims;
  }
};

Cutting Cut(const tensor::Shape& shape, size_t element, const Place& to, const Place& from) {
  Cutting c;
  c.others = shape;
  std::copy_n(to.strides, tensor::kMaxDims, c.to);
  std::copy_n(from.strides, tensor::kMaxDims, c.from);
  int64_t* const strides[] = {c.to, c.from};
  tensor::Collapse(&c.others, strides);
  const auto bytes = static_cast<int64_t>(element);
  for (int d = 0; d < c.others.dims; ++d) {
    c.to[d] *= bytes;
    c.from[d] *= bytes;
  }
  c.first.to = to.address;
  c.first.from = from.address;
  int64_t width = bytes;
  if (const int last = c.others.dims - 1; last >= 0 && c.to[last] == bytes && c.from[last] == bytes) {
    width *= c.others.sizes[last];
    c.Drop(last);
  }
  c.first.width = static_cast<size_t>(width);
  const auto is_pitch = [&](int64_t stride) { return stride >= width && stride <= kMostPitch; };
  int best = -1;
  for (int d = 0; d < c.others.dims; ++d) {
    if (!is_pitch(c.to[d]) || !is_pitch(c.from[d])) continue;
    if (best < 0 || c.others.sizes[d] > c.others.sizes[best]) best = d;
  }
  if (best < 0) return c;
  c.first.height = static_cast<size_t>(c.others.sizes[best]);
  c.first.to_pitch = static_cast<size_t>(c.to[best]);
  c.first.from_pitch = static_cast<size_t>(c.from[best]);
  c.Drop(best);
  return c;
}

}  // namespace

size_t NumPlanes(const tensor::Shape& shape, size_t element, const Place& to, const Place& from) {
  return static_cast<size_t>(tensor::Elements(Cut(shape, element, to, from).others));
}

void AppendPlanes(const tensor::Shape& shape, size_t element, const Place& to, const Place& from,
                  std::vector<Plane>* planes) {
  const Cutting c = Cut(shape, element, to, from);
  const int64_t count = tensor::Elements(c.others);
  int64_t index[tensor::kMaxDims] = {};
  Plane plane = c.first;
  for (int64_t i = 0; i < count; ++i) {
    planes->push_back(plane);
    for (int d = c.others.dims - 1; d >= 0; --d) {
      plane.to += static_cast<uint64_t>(c.to[d]);
      plane.from += static_cast<uint64_t>(c.from[d]);
      if (++index[d] < c.others.sizes[d]) break;
      plane.to -= static_cast<uint64_t>(c.to[d] * index[d]);
      plane.from -= static_cast<uint64_t>(c.from[d] * index[d]);
      index[d] = 0;
    }
  }
}

// Within a device, a copy of rows "may fail for pitches not computed by cuMemAllocPitch()" (cuda.h, cuMemcpy2DAsync).
Status CopyPlane(const Plane& plane, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  if (plane.height == 1) return Check(driver.cuMemcpyAsync(plane.to, plane.from, plane.width, stream), "cuMemcpyAsync");
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = plane.from;
  copy.dstDevice = plane.to;
  copy.srcPitch = plane.from_pitch;
  copy.dstPitch = plane.to_pitch;
  copy.WidthInBytes = plane.width;
  copy.Height = plane.height;
  const CUresult result = driver.cuMemcpy2DAsync(&copy, stream);
  if (result != CUDA_ERROR_INVALID_VALUE) return Check(result, "cuMemcpy2DAsync");
  for (size_t row = 0; row < plane.height; ++row)
    AXCCL_RETURN_IF_ERROR(Check(
        driver.cuMemcpyAsync(plane.to + row * plane.to_pitch, plane.from + row * plane.from_pitch, plane.width, stream),
        "cuMemcpyAsync"));
  return Status();
}

Status ClearPlane(const Plane& plane, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  if (plane.height == 1) return Check(driver.cuMemsetD8Async(plane.to, 0, plane.width, stream), "cuMemsetD8Async");
  return Check(driver.cuMemsetD2D8Async(plane.to, plane.to_pitch, 0, plane.width, plane.height, stream),
               "cuMemsetD2D8Async");
}

}  // namespace axccl::exec
