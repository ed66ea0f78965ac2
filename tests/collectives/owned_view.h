// A view that owns its sizes and strides, so that a test can write one as an argument of a call. It lives as long as
// the call.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "axccl/axccl.h"

namespace axccl::tests {

struct View {
  std::vector<int64_t> sizes, strides;
  axcclView_t view = AXCCL_VIEW_INITIALIZER;

  View(void* data, std::vector<int64_t> the_sizes, std::vector<int64_t> the_strides = {},
       ncclDataType_t type = ncclInt32)
      : sizes(std::move(the_sizes)), strides(std::move(the_strides)) {
    view.data = data;
    view.datatype = type;
    view.num_dims = static_cast<int>(sizes.size());
    view.sizes = sizes.data();
    view.strides = strides.empty() ? nullptr : strides.data();
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  operator const axcclView_t*() const { return &view; }  // NOLINT: so that calls read as calls
};

}  // namespace axccl::tests
