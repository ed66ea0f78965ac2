// The services of a communicator's setup for the device of its rank.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/block.h"
#include "src/comm/exchange.h"
#include "src/exec/platform/rank_device.h"
#include "transports/transport.h"

namespace axccl::comm {

class DeviceSetup : public exec::Setup {
 public:
  // `reaches` of all ranks, in their order. `block` keeps what is taken from the heap.
  DeviceSetup(Exchange* exchange, Block* block, const std::vector<std::shared_ptr<transport::Reach>>* reaches)
      : exchange_(exchange), block_(block), reaches_(reaches) {}

  Status AllGather(const void* mine, size_t bytes, void* all) override {
    return exchange_->AllGather(mine, bytes, all);
  }
  Result<std::vector<Shared>> ShareMemory(size_t least_bytes) override;

 private:
  Exchange* const exchange_;
  Block* const block_;
  const std::vector<std::shared_ptr<transport::Reach>>* const reaches_;
  uint64_t areas_ = 0;  // so far
};

}  // namespace axccl::comm
