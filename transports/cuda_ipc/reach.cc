#include "transports/cuda_ipc/reach.h"

#include "transports/cuda_ipc/pinned.h"

namespace axccl::cuda_ipc {

using device::cuda::Device;

Result<std::unique_ptr<Reach>> Reach::Open(const Device& device, const transport::Reach& host,
                                           const BlockAddress& address) {
  if (host.same_process()) {
    AXCCL_ASSIGN_OR_RETURN(const Device* peer, Device::Get(address.device));
    AXCCL_RETURN_IF_ERROR(device.EnablePeer(*peer));
    return std::unique_ptr<Reach>(new Reach(device, host, address.pointer, true, "inproc"));
  }
  AXCCL_ASSIGN_OR_RETURN(const Imported imported, Import(device, address.handle));
  std::unique_ptr<Reach> reach(new Reach(device, host, imported.address, false, "cuda_ipc"));
  reach->imported_ = imported;
  return reach;
}

Result<std::unique_ptr<Reach>> Reach::Pin(const Device& device, const transport::Reach& host, bool own,
                                          std::byte* memory, size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr address, cuda_ipc::Pin(device, memory, bytes));
  // What keeps kernels from the devices of other ranks keeps them from the buffers there.
  const bool far = host.inbox() != nullptr;
  std::unique_ptr<Reach> reach(new Reach(device, host, address, own, far ? host.Name() : "pinned"));
  reach->pinned_ = memory;
  reach->inbox_ = host.inbox();
  return reach;
}

Reach::~Reach() {
  if (imported_.address != 0) Close(device_, imported_);
  if (pinned_ != nullptr) Unpin(device_, pinned_);
}

Status Reach::Read(void*, uint64_t, size_t) {
  return MakeStatus(Code::kInternalError, "memory of a device is read by system call");
}

}  // namespace axccl::cuda_ipc
