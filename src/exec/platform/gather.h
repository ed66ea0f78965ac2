// An exchange of all ranks of a communicator, as devices use it while that, or a window, is made.
#pragma once

#include <cstddef>

#include "src/base/status.h"

namespace axccl::exec {

class Gather {
 public:
  virtual ~Gather() = default;
  // Collective: all ranks contribute `bytes` bytes, as many on each; all[r * bytes] receives rank r's.
  virtual Status AllGather(const void* mine, size_t bytes, void* all) = 0;
};

}  // namespace axccl::exec
