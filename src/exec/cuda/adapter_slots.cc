#include "src/exec/cuda/adapter_slots.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Current;
using device::cuda::Device;
using device::cuda::Driver;
using Devices = transport::Reach::Devices;

bool OrdersWrites(const Device& device) {
  return device.Attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
         CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

Status CheckDevice(const Device& device, const RankOptions& options) {
  if (device.Attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) == 0)
    return MakeStatus(Code::kInvalidUsage, "CUDA device %d of rank %d does not support it", device.ordinal(),
                      options.rank);
  const int flushes = device.Attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  const bool flush = options.adapters == RankOptions::Adapters::kAlways &&
                     (flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  if (OrdersWrites(device) || flush) return Status();
  return MakeStatus(Code::kInvalidUsage, "CUDA device %d of rank %d does not order what adapters write",
                    device.ordinal(), options.rank);
}

// "0000:65:00.0", as Linux writes it; "": not known.
std::string AddressOnPci(const Device& device) {
  char text[64] = {};
  if (Driver::Loaded().cuDeviceGetPCIBusId(text, sizeof(text) - 1, device.id()) != CUDA_SUCCESS) return "";
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

Status CheckLinks(const Device& device, const RankOptions& options, const std::vector<CudaProxy::Far>& far) {
  if (options.adapters == RankOptions::Adapters::kNever)
    return MakeStatus(Code::kInvalidUsage, "AXCCL_GPUDIRECT or NCCL_NET_GDR_LEVEL on rank %d excludes it",
                      options.rank);
  const bool proven = options.adapters != RankOptions::Adapters::kAlways;
  const std::string address = AddressOnPci(device);
  for (size_t rank = 0; rank < far.size(); ++rank) {
    if (far[rank].reach == nullptr) continue;
    const transport::Reach::DeviceAccess access = far[rank].reach->AccessTo(address);
    if (access.how == Devices::kNo)
      return MakeStatus(Code::kInvalidUsage, "rank %d reaches rank %zu by %s", options.rank, rank,
                        far[rank].reach->Name());
    if (access.how == Devices::kSomehow && proven)
      return MakeStatus(Code::kInvalidUsage, "UCX uses no adapter from rank %d to rank %zu, or knows nothing of CUDA",
                        options.rank, rank);
    if (access.distance > options.adapter_distance && proven)
      return MakeStatus(Code::kInvalidUsage,
                        "the adapters of rank %d are too far from CUDA device %d (%s; NCCL_NET_GDR_LEVEL allows %s)",
                        options.rank, device.ordinal(), Name(access.distance), Name(options.adapter_distance));
    if (!access.peer_memory && proven && device.Attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) == 0)
      return MakeStatus(Code::kInvalidUsage,
                        "the kernel shows adapters no memory of CUDA device %d of rank %d: load its module "
                        "nvidia_peermem, or use a driver with DMA-BUF",
                        device.ordinal(), options.rank);
  }
  return Status();
}

}  // namespace

class AdapterSlots::Part final : public transport::Reach::DevicePart {
 public:
  // `mirror`: where the peer's scratch, and behind it that for messages to this rank, are here.
  Part(const Device& device, const CudaLayout& layout, std::byte* own_block, std::byte* mirror, uint32_t self,
       uint32_t peer)
      : device_(device),
        own_{layout.channel.scratch, layout.areas - layout.channel.scratch, own_block + layout.channel.scratch},
        default_{layout.channel.scratch, layout.channel.scratch_bytes, mirror},
        messages_{layout.Pair(peer, self, peer).scratch, layout.pair_scratch_bytes,
                  mirror + layout.channel.scratch_bytes},
        orders_writes_(OrdersWrites(device)) {}

  static uint64_t MirrorBytes(const CudaLayout& layout) {
    return layout.channel.scratch_bytes + layout.pair_scratch_bytes;
  }

  // The slots here, with the transport.
  Status Register(const transport::Reach& reach) const {
    for (const Range& range : {own_, default_, messages_})
      AXCCL_RETURN_IF_ERROR(reach.Register(*this, range.here, range.bytes));
    return Status();
  }

  std::byte* At(bool of_peer, uint64_t offset, uint64_t bytes) const override {
    if (!of_peer) return own_.At(offset, bytes);
    std::byte* const at = default_.At(offset, bytes);
    return at != nullptr ? at : messages_.At(offset, bytes);
  }
  void Call(const std::function<void()>& call) const override {
    const Current current(device_);
    call();
  }
  Status Land() const override {
    if (orders_writes_) return Status();
    const Current current(device_);
    return Check(Driver::Loaded().cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                             CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
                 "cuFlushGPUDirectRDMAWrites");
  }

 private:
  struct Range {
    uint64_t offset, bytes;  // in a block
    std::byte* here;

    std::byte* At(uint64_t from, uint64_t length) const {
      const bool within = from >= offset && from - offset <= bytes && length <= bytes - (from - offset);
      return within ? here + (from - offset) : nullptr;
    }
  };

  const Device& device_;
  const Range own_, default_, messages_;
  const bool orders_writes_;
};

Result<std::unique_ptr<AdapterSlots>> AdapterSlots::Make(const Device& device, const RankOptions& options,
                                                         const CudaLayout& layout, std::byte* own_block,
                                                         const std::vector<CudaProxy::Far>& far) {
  AXCCL_RETURN_IF_ERROR(CheckLinks(device, options, far));
  AXCCL_RETURN_IF_ERROR(CheckDevice(device, options));
  std::unique_ptr<AdapterSlots> slots(new AdapterSlots(device));
  const uint64_t bytes = Part::MirrorBytes(layout);
  const auto is_far = [](const CudaProxy::Far& rank) { return rank.reach != nullptr; };
  const auto count = static_cast<uint64_t>(std::count_if(far.begin(), far.end(), is_far));
  AXCCL_ASSIGN_OR_RETURN(slots->mirrors_, device.Allocate(count * bytes));
  auto* mirror = reinterpret_cast<std::byte*>(slots->mirrors_);
  slots->parts_.resize(far.size());
  for (size_t rank = 0; rank < far.size(); ++rank) {
    if (!is_far(far[rank])) continue;
    slots->parts_[rank] = std::make_shared<const Part>(
        device, layout, own_block, mirror, static_cast<uint32_t>(options.rank), static_cast<uint32_t>(rank));
    if (const Status status = slots->parts_[rank]->Register(*far[rank].reach); !status.ok())
      return MakeStatus(Code::kInvalidUsage, "rank %d cannot use it to rank %zu: %.*s", options.rank, rank,
                        static_cast<int>(status.message().size()), status.message().data());
    mirror += bytes;
  }
  return slots;
}

AdapterSlots::~AdapterSlots() {
  if (mirrors_ != 0) device_.Free(mirrors_);
}

void AdapterSlots::Use(const std::vector<CudaProxy::Far>& far) const {
  for (size_t rank = 0; rank < far.size(); ++rank) {
    if (parts_[rank] != nullptr) far[rank].block->SetDevice(parts_[rank]);
  }
}

std::byte* AdapterSlots::ScratchOf(int rank, const ChannelLayout& layout) const {
  return parts_[static_cast<size_t>(rank)]->At(true, layout.scratch, layout.scratch_bytes);
}

}  // namespace axccl::exec
