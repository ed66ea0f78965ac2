// A rank's block as kernels of a device reach it: on the same or another device of this process, on a device of another
// process, or in pinned memory of the host, where it may be a mirror. See transport::Reach; `block` is an address for
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"
#include "transports/cuda_ipc/handle.h"
#include "transports/transport.h"

namespace axccl::cuda_ipc {

class Reach final : public transport::Reach {
 public:
  // `host`: how this process reaches the rank otherwise; it must live as long. An error says why kernels of `device`
  // cannot access the block.
  static Result<std::unique_ptr<Reach>> Open(const device::cuda::Device& device, const transport::Reach& host,
                                             const BlockAddress& address);
  // Pins the block in `memory` of the host, whole pages. `own`: it is this rank's. A mirror has the inbox of `host`.
  static Result<std::unique_ptr<Reach>> Pin(const device::cuda::Device& device, const transport::Reach& host, bool own,
                                            std::byte* memory, size_t bytes);
  // No kernel may use the block any more.
  ~Reach() override;

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(block()); }
  const char* Name() const override { return name_; }
  transport::Inbox* inbox() const override { return inbox_; }
  bool TryCalls(uint64_t, uint64_t) override { return false; }
  Status Read(void* to, uint64_t from, size_t bytes) override;

 private:
  Reach(const device::cuda::Device& device, const transport::Reach& host, CUdeviceptr block, bool addresses,
        const char* name)
      : transport::Reach(host, reinterpret_cast<std::byte*>(block), addresses), device_(device), name_(name) {}

  const device::cuda::Device& device_;
  const char* const name_;
  Imported imported_;            // of another process
  std::byte* pinned_ = nullptr;  // of the host
  transport::Inbox* inbox_ = nullptr;
};

}  // namespace axccl::cuda_ipc
