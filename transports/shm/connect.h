// Connects to ranks of this machine, in this process or another one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "src/base/status.h"
#include "transports/shm/attach.h"
#include "transports/transport.h"

namespace axccl::shm {

struct ConnectOptions {
  int rank = 0;  // the peer, for messages
  transport::ProcessAddress address;
  uint64_t block = 0, block_bytes = 0;  // offset and length of its block in its heap, whole pages
  Clock::time_point deadline;           // as for Attach
  const std::atomic<bool>* abort = nullptr;
};
Result<std::shared_ptr<transport::Reach>> Connect(const ConnectOptions& options);

}  // namespace axccl::shm
