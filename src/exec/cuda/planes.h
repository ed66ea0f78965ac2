// Planes: what a copy engine moves, or sets, in one operation: rows of bytes at constant distances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/driver.h"
#include "src/tensor/view.h"

namespace axccl::exec {

struct Plane {
  uint64_t to = 0, from = 0;  // of the first row
  size_t width = 0;           // bytes of a row
  size_t height = 1;          // rows
  size_t to_pitch = 0, from_pitch = 0;
};

// Where elements of some shape are.
struct Place {
  uint64_t address = 0;
  const int64_t* strides = nullptr;  // elements
};

// Appends planes that together are all elements, each once: few for what is dense or has one gap.
void AppendPlanes(const tensor::Shape& shape, size_t element, const Place& to, const Place& from,
                  std::vector<Plane>* planes);
// How many those are.
size_t NumPlanes(const tensor::Shape& shape, size_t element, const Place& to, const Place& from);

// Enqueue a copy of the plane, and zeros at `to`.
Status CopyPlane(const Plane& plane, CUstream stream);
Status ClearPlane(const Plane& plane, CUstream stream);

}  // namespace axccl::exec
