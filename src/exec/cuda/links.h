// How a rank on a GPU and its peers reach each other: the blocks of all ranks, where the parts of a channel are in
// them, the protocols that all ranks allow, and the buffers that they have mapped.
//
// After Share, any thread may call the const functions; the others are called by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/channel/channel.h"
#include "src/exec/cuda/adapter_slots.h"
#include "src/exec/cuda/buffers.h"
#include "src/exec/cuda/grown_scratch.h"
#include "src/exec/cuda/layout.h"
#include "src/exec/cuda/multicast.h"
#include "src/exec/cuda/proxy.h"
#include "src/exec/cuda/rows.h"
#include "src/exec/platform/platform.h"
#include "src/exec/platform/protocols.h"
#include "src/exec/platform/rank_device.h"
#include "transports/cuda_ipc/connect.h"

namespace axccl::exec {

class CudaLinks {
 public:
  CudaLinks(const RankOptions& options, const device::cuda::Device* device);

  // As RankDevice::Share. The memory through which ranks of a machine communicate is on their devices, or otherwise on
  // the host, as that for ranks on other machines.
  Status Share(Setup* setup, const std::vector<Member>& members);
  // Releases the peers' memory.
  void Disconnect();
  // Whether that takes long, because memory has to be unmapped.
  bool slow_to_disconnect() const { return !one_process_ || blocks_.on_host() || multicast_ != nullptr; }

  // How kernels here reach a rank's block.
  const cuda_ipc::Reach& of(int rank) const { return blocks_.of(static_cast<size_t>(rank)); }
  // The address of the rank's block for what travels between machines; that of its block if there is no other.
  uint8_t* BetweenOf(int rank) const;
  // The device memory of the channel's members, as mapped here; for kSelf, of this rank alone. Members of a created
  // channel that have not been found yet get a placeholder.
  std::vector<Member> MembersOf(const Channel& channel, CudaPlace place) const;
  // Whether ranks of a machine reach the memory of each other's devices.
  bool on_devices() const { return blocks_.on_devices(); }
  // Whether the members are ranks of this process that read each other's memory.
  bool AreInProcess(const Channel& channel) const;
  uint32_t num_areas() const { return layout_.num_areas; }
  // As CudaLayout::AreaLines.
  uint64_t area_lines() const { return layout_.AreaLines(); }
  // Resets an area of this rank.
  Status ClearArea(int area);

  // Sends what kernels here publish to ranks on other machines; null if there are none.
  CudaProxy* proxy() const { return proxy_.get(); }
  kernels::cuda::ProxyRing* ring() const { return ring_; }
  CUdeviceptr posted() const { return posted_; }
  // Null if ranks do not announce their buffers.
  CudaBuffers* buffers() const { return buffers_.get(); }
  // Null if ranks take none.
  GrownScratch* grown_scratch() const { return grown_scratch_.get(); }
  // Scratch that the switch between the devices reaches; null if there is none.
  const CudaMulticast* multicast() const { return multicast_.get(); }
  // Whether ranks of this process are on several devices, and use each other's buffers where they are.
  bool SharesBuffers() const { return shares_buffers_; }
  // The device of a rank of this process, if it is one of those: a bit for its ordinal.
  uint64_t SharingDevice(int rank) const {
    const int ordinal = shares_buffers_ ? blocks_.DeviceOf(static_cast<size_t>(rank)) : device_->ordinal();
    return ordinal != device_->ordinal() ? uint64_t{1} << ordinal : 0;
  }
  // Slots that adapters reach on the devices; null if there are none.
  const AdapterSlots* adapter_slots() const { return adapter_slots_.get(); }
  // The bytes of a slot from which on it is one of these.
  uint64_t adapter_bytes() const { return adapter_bytes_; }
  // Whether memory can become windows on all ranks.
  bool windows() const { return windows_; }
  // Whether kernels can reach the windows of all ranks of an LSA team at once, on all ranks.
  bool windows_of_all() const { return windows_ && windows_of_all_; }
  // Whether this rank and that one read each other's buffers, at the addresses there or by announcing them.
  bool ReadsBuffersOf(int rank) const {
    return of(rank).addresses() || (buffers_ != nullptr && of(rank).inbox() == nullptr);
  }
  // Of a call, for its whole group: the bytes from which on copy engines may move its data; UINT64_MAX: never, because
  // some ranks do not want that, or do not read each other's memory.
  uint64_t copy_bytes() const { return copy_bytes_; }
  // The same on all ranks of the communicator, and another one for each communicator.
  uint64_t key() const { return key_; }
  // Allowed by all ranks.
  const Protocols& protocols() const { return protocols_; }
  // The number of ranks of the communicator on this device.
  uint32_t neighbours() const { return neighbours_; }

 private:
  Result<std::string> TryDevices(Setup* setup, const cuda_ipc::Blocks::Hosts& hosts);
  Result<std::string> TryBlocks(Setup* setup, const cuda_ipc::Blocks::Hosts& hosts);
  Status StartProxy(std::vector<CudaProxy::Far> far);
  Status ShareAdapterSlots(Setup* setup, const std::vector<CudaProxy::Far>& far);
  Status ShareHost(Setup* setup, const std::vector<Member>& members, const cuda_ipc::Blocks::Hosts& hosts);
  Status ShareBuffers(Setup* setup, const std::vector<Member>& members);
  bool ReachesAll(const std::vector<Member>& members) const;
  Status AgreeOnProtocols(Setup* setup, bool windows, bool windows_of_all);

  const RankOptions options_;
  const device::cuda::Device* const device_;
  const CudaLayout layout_;
  cuda_ipc::Blocks blocks_;
  // What kernels post, and how much that is so far, on the device.
  kernels::cuda::ProxyRing* ring_ = nullptr;
  CUdeviceptr posted_ = 0;
  std::unique_ptr<CudaProxy> proxy_;
  std::unique_ptr<GrownScratch> grown_scratch_;
  std::unique_ptr<CudaBuffers> buffers_;
  std::unique_ptr<CudaMulticast> multicast_;
  std::unique_ptr<AdapterSlots> adapter_slots_;
  uint64_t adapter_bytes_ = 0;
  bool windows_ = true, windows_of_all_ = true;
  uint32_t neighbours_ = 1;
  bool one_process_ = true;  // all ranks are in one process
  bool declined_ = false;    // some rank has been told to reach no other by device memory
  Rows rows_;
  bool shares_buffers_ = false;
  Protocols protocols_;
  uint64_t copy_bytes_ = UINT64_MAX;
  uint64_t key_ = 0;
};

}  // namespace axccl::exec
