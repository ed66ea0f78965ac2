// A rank whose memory is mapped here: of this process, or of another one of the machine. See transport::Reach.
#pragma once

#include <memory>
#include <utility>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

class Reach final : public transport::Reach {
 public:
  Reach(std::shared_ptr<transport::PeerProcess> process, std::byte* block)
      : transport::Reach(process.get(), block), process_(std::move(process)) {}

  const char* Name() const override;
  bool TryCalls(uint64_t address, uint64_t expected) override;
  Status Read(void* to, uint64_t from, size_t bytes) override;

 private:
  const std::shared_ptr<transport::PeerProcess> process_;
};

}  // namespace axccl::shm
