// XLA's buffers as the library's views. They are row-major, so dimensions that a call does not name are merged: views
// have at most five dimensions, however many an array has.
#pragma once

#include <cstdint>

#include <xla/ffi/api/ffi.h>
#include "axccl/axccl.h"

namespace axccl::jax {

// The library's type of elements that a call moves or, if `reduced`, reduces. False: it has none.
bool TypeOf(xla::ffi::DataType type, bool reduced, ncclDataType_t* out);

// A view with its sizes. The dimensions `first` and `second` stay (-1: none), and all others are merged.
struct Operand {
  int64_t sizes[5] = {};
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  int first = -1;  // where the dimensions are in the view
  int second = -1;

  void Set(const xla::ffi::AnyBuffer& buffer, ncclDataType_t type, int64_t first_dim, int64_t second_dim);
};

}  // namespace axccl::jax
