// Links to ranks that this process shares no memory with. What the rest of the library sees of UCX.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::ucx {

// What others need to send to this process. `devices`: the network devices to use, comma-separated, as UCX names them;
// the first call of the process counts. kInvalidUsage where there is no UCX.
Result<std::vector<std::byte>> SelfAddress(const std::string& devices);

struct RemoteOptions {
  uint64_t comm = 0;  // the same on both sides, and no other communicator's
  uint32_t self = 0, peer = 0;
  std::array<uint8_t, 16> process{};  // the peer's, ProcessAddress::process_id
  std::vector<std::byte> address;     // its SelfAddress
  uint32_t pid = 0;
  std::byte* block = nullptr;  // own
  uint64_t block_bytes = 0;
  std::function<void()> arrived;  // called when a line has come, from within Progress and Send: must not block
};
// Where a mirror has the block.
inline constexpr size_t kBlockOffset = 4096;

// After SelfAddress. Messages may come from then on.
Result<std::shared_ptr<transport::RemoteRank>> Connect(RemoteOptions options);

}  // namespace axccl::ucx
