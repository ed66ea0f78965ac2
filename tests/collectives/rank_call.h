// One rank's part in a call of a test: enqueued, and checked once the stream has executed it.
#pragma once

#include "axccl/axccl.h"

namespace axccl::tests {

class RankCall {
 public:
  virtual ~RankCall() = default;
  virtual ncclResult_t Launch(axcclChannel_t channel, cudaStream_t stream) = 0;
  // Adds test failures.
  virtual void Check() const = 0;
};

}  // namespace axccl::tests
