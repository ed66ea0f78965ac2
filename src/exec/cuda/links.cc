#include "src/exec/cuda/links.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <span>
#include <utility>

#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/exec/cuda/agree.h"
#include "src/exec/platform/window.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::exec {
namespace {

// Whether no two ranks share a device.
bool HaveDevicesOfTheirOwn(std::span<const Member> members) {
  std::set<int> devices;
  for (const Member& member : members) devices.insert(member.cores);
  return devices.size() == members.size();
}

// What ranks have to agree on, sent as bytes.
struct Wishes {
  Protocols protocols;
  uint16_t windows = 0;         // or 1
  uint16_t windows_of_all = 0;  // or 1
  uint64_t copy_bytes = UINT64_MAX;
  uint64_t adapter_bytes = 0;
  uint64_t key = 0;
};

uint64_t NextKey() {
  static std::atomic<uint32_t> last{0};
  return uint64_t(getpid()) << 32 | ++last;
}

}  // namespace

CudaLinks::CudaLinks(const RankOptions& options, const device::cuda::Device* device)
    : options_(options),
      device_(device),
      layout_(CudaLayout::Make(static_cast<uint32_t>(options.ranks), options.lanes, options.scratch_bytes,
                               options.areas, options.spans_machines)),
      blocks_(*device, options.rank, layout_.bytes, layout_.channel.scratch) {}

// On the devices, if every rank can access the blocks of all others on its machine and data arrives; ranks of several
// processes also announce their buffers to each other then. Otherwise, and between machines, in pinned memory of the
// host.
Status CudaLinks::Share(Setup* setup, const std::vector<Member>& members) {
  cuda_ipc::Blocks::Hosts hosts;
  for (const Member& member : members) hosts.push_back(member.reach);
  one_process_ = std::all_of(hosts.begin(), hosts.end(), [](const auto* host) { return host->same_process(); });
  const Member& own = members[static_cast<size_t>(options_.rank)];
  const auto is_near = [&](const Member& member) { return member.cores == own.cores; };
  neighbours_ = static_cast<uint32_t>(std::count_if(members.begin(), members.end(), is_near));
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, TryDevices(setup, hosts));
  if (!reason.empty()) {
    AXCCL_INFO(kInit, "rank %d meets its peers in pinned memory of the host, not of the devices: %s", options_.rank,
               reason.c_str());
    // No rank may free its block on a device before all have unmapped it, which they have when all have reached
    // ShareMemory.
    Disconnect();
  }
  if (options_.spans_machines || !reason.empty()) AXCCL_RETURN_IF_ERROR(ShareHost(setup, members, hosts));
  if (members.size() > 1 && reason.empty() && !options_.spans_machines && HaveDevicesOfTheirOwn(members)) {
    multicast_ = std::make_unique<CudaMulticast>(options_, *device_);
    AXCCL_ASSIGN_OR_RETURN(const bool all_use_it, multicast_->Share(setup));
    if (!all_use_it) multicast_ = nullptr;
  }
  for (size_t rank = 0; reason.empty() && rank < members.size(); ++rank) {
    shares_buffers_ |=
        options_.addresses && members[rank].reach->same_process() && blocks_.DeviceOf(rank) != device_->ordinal();
  }
  const bool windows = reason.empty() || LsaTeamOf(members, options_.rank).size == 1;
  AXCCL_RETURN_IF_ERROR(AgreeOnProtocols(setup, windows && cuda_ipc::HasMapped(*device_), ReachesAll(members)));
  const bool addressed = one_process_ && options_.addresses;
  return addressed || !reason.empty() ? Status() : ShareBuffers(setup, members);
}

Status CudaLinks::ShareBuffers(Setup* setup, const std::vector<Member>& members) {
  const size_t table_bytes = cuda_ipc::ExportTable::Bytes(members.size());
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Setup::Shared> shared, setup->ShareMemory(table_bytes));
  std::vector<std::byte*> tables;
  for (size_t rank = 0; rank < shared.size(); ++rank)
    tables.push_back(IsMirror(members[rank]) ? nullptr : shared[rank].memory);
  AXCCL_ASSIGN_OR_RETURN(buffers_, CudaBuffers::Create(*device_, static_cast<size_t>(options_.rank), tables, members));
  if (options_.grown_scratch_bytes > layout_.channel.scratch_bytes && !options_.spans_machines)
    grown_scratch_ = std::make_unique<GrownScratch>(*device_, options_.rank, options_.ranks,
                                                    RoundUp(options_.grown_scratch_bytes, kPage));
  return Status();
}

Status CudaLinks::ShareHost(Setup* setup, const std::vector<Member>& members, const cuda_ipc::Blocks::Hosts& hosts) {
  AXCCL_ASSIGN_OR_RETURN(std::vector<Setup::Shared> shared, setup->ShareMemory(layout_.bytes));
  std::vector<std::byte*> blocks;
  std::vector<CudaProxy::Far> far(shared.size());
  for (size_t rank = 0; rank < shared.size(); ++rank) {
    blocks.push_back(shared[rank].memory);
    if (IsMirror(members[rank])) far[rank] = {members[rank].reach, std::move(shared[rank].area)};
  }
  if (options_.spans_machines) {
    AXCCL_RETURN_IF_ERROR(ShareAdapterSlots(setup, far));
    AXCCL_RETURN_IF_ERROR(StartProxy(std::move(far)));
  }
  return blocks_.MapHost(blocks, hosts);
}

Status CudaLinks::ShareAdapterSlots(Setup* setup, const std::vector<CudaProxy::Far>& far) {
  Status mine = MakeStatus(Code::kInvalidUsage, "ranks meet in memory of the host");
  if (blocks_.on_devices()) {
    Result<std::unique_ptr<AdapterSlots>> slots =
        AdapterSlots::Make(*device_, options_, layout_, of(options_.rank).block(), far);
    mine = slots.status();
    if (mine.ok()) adapter_slots_ = std::move(slots).value();
  }
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, FirstFailure(setup, far.size(), mine));
  if (!reason.empty()) {
    adapter_slots_ = nullptr;
    AXCCL_INFO(kInit, "rank %d: no GPUDirect RDMA: %s", options_.rank, reason.c_str());
    return Status();
  }
  adapter_slots_->Use(far);
  return Status();
}

uint8_t* CudaLinks::BetweenOf(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return reinterpret_cast<uint8_t*>((blocks_.on_host() ? blocks_.InHost(index) : blocks_.of(index)).block());
}

Status CudaLinks::StartProxy(std::vector<CudaProxy::Far> far) {
  AXCCL_ASSIGN_OR_RETURN(void* const ring, device_->TakeHost(sizeof(*ring_)));
  ring_ = static_cast<kernels::cuda::ProxyRing*>(ring);
  AXCCL_ASSIGN_OR_RETURN(posted_, device_->Take(sizeof(uint32_t)));
  proxy_ = std::make_unique<CudaProxy>(ring_, std::move(far), layout_.areas);
  return proxy_->Start();
}

// Returns why the blocks cannot be on the devices, on any machine; empty if they can.
Result<std::string> CudaLinks::TryDevices(Setup* setup, const cuda_ipc::Blocks::Hosts& hosts) {
  AXCCL_RETURN_IF_ERROR(blocks_.Allocate());
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, TryBlocks(setup, hosts));
  if (reason.empty() || one_process_ || declined_) return reason;
  blocks_.Unmap();
  AXCCL_RETURN_IF_ERROR(blocks_.AllocateAsFile());
  AXCCL_ASSIGN_OR_RETURN(const std::string other_reason, TryBlocks(setup, hosts));
  if (!other_reason.empty()) return other_reason == reason ? reason : reason + "; and as a file: " + other_reason;
  AXCCL_INFO(kInit, "rank %d shares the memory of its device as a file, since otherwise: %s", options_.rank,
             reason.c_str());
  return other_reason;
}

// Collective. Returns why the blocks that the ranks have do not do.
Result<std::string> CudaLinks::TryBlocks(Setup* setup, const cuda_ipc::Blocks::Hosts& hosts) {
  cuda_ipc::BlockAddress mine = blocks_.address();
  mine.declined = !options_.direct;
  std::vector<cuda_ipc::BlockAddress> addresses(hosts.size());
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&mine, sizeof(mine), addresses.data()));
  const auto declined = std::find_if(addresses.begin(), addresses.end(), [](const auto& a) { return a.declined != 0; });
  declined_ = declined != addresses.end();
  if (declined_) return "NCCL_P2P_DISABLE=1 on rank " + std::to_string(declined - addresses.begin());
  rows_ = RowsBetween(*device_, addresses);
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, FirstFailure(setup, hosts.size(), blocks_.Map(addresses, hosts)));
  if (!reason.empty()) return reason;
  return FirstFailure(setup, hosts.size(), blocks_.Test());
}

// As with NCCL, windows need what NVLink SHARP needs, also if it is of no use to collectives.
bool CudaLinks::ReachesAll(const std::vector<Member>& members) const {
  const LsaTeam team = LsaTeamOf(members, options_.rank);
  const auto first = members.begin() + team.first;
  return team.size > 1 && options_.nvls != RankOptions::Nvls::kOff &&
         HaveDevicesOfTheirOwn({first, first + team.size}) && cuda_ipc::MulticastObject::Check(*device_).ok();
}

Status CudaLinks::AgreeOnProtocols(Setup* setup, bool windows, bool windows_of_all) {
  Protocols mine = options_.protocols;
  // Multicast, which has just worked, goes through the switches of NVLink.
  const bool linked = rows_.why_not.empty() || (rows_.unseen && multicast_ != nullptr);
  if (!blocks_.on_devices() || !linked) mine.ll128 = 0;
  const bool copies = options_.spares_blocks && options_.ranks > 1 && blocks_.on_devices() && !options_.spans_machines;
  const Wishes wishes{
      mine, windows, windows_of_all, copies ? options_.copy_bytes : UINT64_MAX, options_.adapter_bytes, NextKey()};
  std::vector<Wishes> all(static_cast<size_t>(options_.ranks));
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&wishes, sizeof(wishes), all.data()));
  protocols_ = all[0].protocols;
  copy_bytes_ = all[0].copy_bytes;
  key_ = all[0].key;
  for (const Wishes& other : all) {
    protocols_ = protocols_ & other.protocols;
    copy_bytes_ = std::max(copy_bytes_, other.copy_bytes);
    adapter_bytes_ = std::max(adapter_bytes_, other.adapter_bytes);
    windows_ &= other.windows != 0;
    windows_of_all_ &= other.windows_of_all != 0;
  }
  if (adapter_slots_ != nullptr)
    AXCCL_INFO(kInit, "rank %d: adapters read and write slots of %llu bytes or more on devices (GPUDirect RDMA)",
               options_.rank, static_cast<unsigned long long>(adapter_bytes_));
  if (copies)
    AXCCL_INFO(kInit, "rank %d: copy engines %s", options_.rank,
               copy_bytes_ == UINT64_MAX ? "make no calls: some ranks have another CTAPolicy"
                                         : "make large calls on symmetric windows that only move data");
  const std::string reason = !blocks_.on_devices() ? "ranks meet in memory of the host" : linked ? "" : rows_.why_not;
  const bool gives_reason = protocols_.ll128 == 0 && !reason.empty();
  AXCCL_INFO(kInit, "rank %d: blocks of up to %zu bytes go by LL (%s), of up to %zu bytes by LL128 (%s%s%s)",
             options_.rank, kernels::cuda::kPackedBytes, protocols_.ll != 0 ? "yes" : "no", kernels::cuda::kRowedBytes,
             protocols_.ll128 != 0 ? "yes" : "no", gives_reason ? ": " : "", gives_reason ? reason.c_str() : "");
  return Status();
}

void CudaLinks::Disconnect() {
  buffers_ = nullptr;
  if (multicast_ != nullptr) multicast_->Unmap();
  if (proxy_ != nullptr) proxy_->Stop();
  if (posted_ != 0) device_->Return(std::exchange(posted_, 0));
  if (ring_ != nullptr) device_->ReturnHost(std::exchange(ring_, nullptr));
  blocks_.Unmap();
}

std::vector<Member> CudaLinks::MembersOf(const Channel& channel, CudaPlace place) const {
  const bool alone = place == CudaPlace::kSelf;
  const int first = alone ? channel.self() : 0, last = alone ? first : channel.size() - 1;
  const auto src = static_cast<uint32_t>(channel.member(first).rank);
  const auto dst = static_cast<uint32_t>(channel.member(last).rank);
  std::vector<Member> members;
  for (int p = first; p <= last; ++p) {
    Member member = channel.member(p);
    member.reach = &blocks_.of(static_cast<size_t>(member.rank));
    member.block = member.reach->block();
    const int area = member.area >= 0 ? member.area : channel.own().area;
    const ChannelLayout& on_host = channel.own().layout;
    member.layout = place == CudaPlace::kDefault   ? layout_.channel
                    : place == CudaPlace::kCreated ? layout_.Area(static_cast<uint32_t>(area))
                    : place == CudaPlace::kPipeline
                        ? layout_.AreaForPlan(static_cast<uint32_t>(area), on_host.lanes, on_host.endpoints)
                        : layout_.Pair(src, dst, static_cast<uint32_t>(member.rank));
    members.push_back(member);
  }
  return members;
}

bool CudaLinks::AreInProcess(const Channel& channel) const {
  for (int p = 0; p < channel.size(); ++p) {
    const Member& member = channel.member(p);
    if (!member.reach->same_process() || !of(member.rank).addresses()) return false;
  }
  return true;
}

Status CudaLinks::ClearArea(int area) {
  const uint64_t begin = layout_.Area(static_cast<uint32_t>(area)).lines;
  if (proxy_ != nullptr) proxy_->ClearLines(begin, begin + layout_.area_bytes);
  return device_->Clear(of(options_.rank).address() + begin, layout_.area_bytes);
}

}  // namespace axccl::exec
