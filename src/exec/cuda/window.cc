#include "src/exec/cuda/window.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "src/base/log.h"
#include "src/base/sizes.h"
#include "src/exec/cuda/agree.h"
#include "transports/cuda_ipc/window.h"

namespace axccl::exec {
namespace {

using cuda_ipc::ChunkAddress;
using cuda_ipc::Chunks;
using cuda_ipc::FlatMemory;
using device::cuda::Device;

constexpr uint64_t kStride = uint64_t{1} << 32;     // of which the distance of two shares is a multiple
constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // of a share: addresses of devices have 47 bits or more
constexpr uint64_t kAlignment = 4096;               // NCCL_WIN_REQUIRED_ALIGNMENT
constexpr size_t kAtATime = 32;                     // chunks of a rank: each is an open file while others take it

// What a rank contributes. Plain data that ranks send.
struct Share {
  uint64_t bytes = 0;   // of the window
  uint64_t offset = 0;  // of the window in the first chunk
  uint64_t mapped = 0;  // bytes of all chunks
  uint64_t chunks = 0;
  uint64_t made = 0;       // or 1
  uint32_t number = 0;     // of the windows of the rank's process
  uint16_t symmetric = 0;  // or 1
  uint16_t multicast = 0;  // or 1
};

uint32_t NextNumber() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

// What a window keeps until it ends.
struct Kept {
  explicit Kept(const Device& on) : device(on), flat(on) {}
  ~Kept() {
    if (handle != 0) device.Return(handle);
  }
  const Device& device;
  FlatMemory flat;
  std::unique_ptr<cuda_ipc::MulticastObject> object;
  std::unique_ptr<cuda_ipc::MulticastSpace::Place> place;  // of the object; null: kernels do not reach all at once
  CUdeviceptr handle = 0;
};

class Making {
 public:
  Making(Gather* gather, const Device& device, const std::vector<Member>& members, int rank,
         std::shared_ptr<cuda_ipc::MulticastSpace> space)
      : gather_(gather),
        device_(device),
        members_(members),
        rank_(rank),
        space_(std::move(space)),
        team_(LsaTeamOf(members, rank)),
        shares_(members.size()),
        kept_(std::make_shared<Kept>(device)),
        filled_(static_cast<size_t>(team_.size)) {}

  Result<std::unique_ptr<Window>> Run(const Status& ready, const OwnShare& own) {
    Share mine{own.bytes, 0, 0, 0, own.made, NextNumber(), own.symmetric, own.multicast};
    const Status found = ready.ok() ? Look(own.memory, &mine) : ready;
    AXCCL_RETURN_IF_ERROR(gather_->AllGather(&mine, sizeof(mine), shares_.data()));
    AXCCL_RETURN_IF_ERROR(Agree(found.ok() ? Place() : found));
    uint64_t most = 0;
    for (const Share& share : shares_) most = std::max(most, share.chunks);
    for (size_t first = 0; first < most; first += kAtATime) AXCCL_RETURN_IF_ERROR(MapFrom(first));
    AXCCL_RETURN_IF_ERROR(ReachAll(own));
    AXCCL_RETURN_IF_ERROR(Agree(Write()));
    WindowPlaces places = Places();
    places.id = shares_[0].number;
    places.symmetric = std::all_of(shares_.begin(), shares_.end(), [](const Share& of) { return of.symmetric != 0; });
    for (int i = 0; i < team_.size; ++i) places.bytes.push_back(ShareOf(i).bytes);
    AXCCL_INFO(kReg, "rank %d has a window at %p: %d shares, %llu GiB apart, of which its own has %llu bytes", rank_,
               reinterpret_cast<void*>(kept_->handle), team_.size, static_cast<unsigned long long>(stride_ >> 30),
               static_cast<unsigned long long>(own.bytes));
    return std::make_unique<Window>(std::move(places), kept_);
  }

 private:
  Status Agree(const Status& mine) const { return exec::Agree(gather_, members_.size(), mine); }
  const Share& ShareOf(int i) const { return shares_[static_cast<size_t>(team_.first + i)]; }
  const Member& MemberOf(int i) const { return members_[static_cast<size_t>(team_.first + i)]; }

  WindowPlaces Places() const {
    WindowPlaces places{kept_->handle, begin_, stride_, team_, static_cast<int>(members_.size())};
    if (space_ != nullptr) places.multicast_offset = space_->nowhere();
    if (kept_->place == nullptr) return places;
    places.multicast = kept_->place->address() + multicast_lead_;
    places.multicast_base = kept_->place->base();
    places.multicast_offset = places.multicast - places.multicast_base;
    return places;
  }

  // Finds this rank's chunks.
  Status Look(const void* memory, Share* mine) {
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    if (mine->bytes > kMostBytes || address + mine->bytes < address)
      return MakeStatus(Code::kInvalidArgument, "argument size is %llu; pass the bytes of the buffer",
                        static_cast<unsigned long long>(mine->bytes));
    AXCCL_ASSIGN_OR_RETURN(chunks_, Prefixed("argument buff", Chunks::Of(device_, address, mine->bytes)));
    mine->offset = chunks_.offset();
    mine->mapped = chunks_.bytes();
    mine->chunks = chunks_.size();
    if (chunks_.offset() % kAlignment == 0) return Status();
    return MakeStatus(Code::kInvalidArgument,
                      "argument buff (%p) begins %llu bytes into its memory; pass a multiple of %llu "
                      "(NCCL_WIN_REQUIRED_ALIGNMENT)",
                      memory, static_cast<unsigned long long>(chunks_.offset()),
                      static_cast<unsigned long long>(kAlignment));
  }

  // Kernels take it that all ranks have the same in memory that is made for them.
  Status Compare() const {
    const Share& mine = shares_[static_cast<size_t>(rank_)];
    for (size_t r = 0; r < shares_.size() && mine.made != 0; ++r) {
      if (shares_[r].multicast != mine.multicast)
        return MakeStatus(Code::kInvalidUsage,
                          "rank %d asks for multimem and rank %zu does not; all ranks must pass the same requirements",
                          mine.multicast != 0 ? rank_ : static_cast<int>(r),
                          mine.multicast != 0 ? r : static_cast<size_t>(rank_));
      if (shares_[r].bytes == mine.bytes) continue;
      return MakeStatus(Code::kInvalidUsage,
                        "rank %d asks for %llu bytes and rank %zu for %llu; all ranks must pass the same requirements",
                        rank_, static_cast<unsigned long long>(mine.bytes), r,
                        static_cast<unsigned long long>(shares_[r].bytes));
    }
    return Status();
  }

  // Decides where all shares are, and reserves the addresses.
  Status Place() {
    AXCCL_RETURN_IF_ERROR(Compare());
    AXCCL_ASSIGN_OR_RETURN(const uint64_t unit, cuda_ipc::UnitOf(device_));
    for (int i = 0; i < team_.size; ++i) lead_ = std::max(lead_, ShareOf(i).offset);
    uint64_t most = 1;
    for (int i = 0; i < team_.size; ++i) {
      const Share& share = ShareOf(i);
      if (share.mapped > kMostBytes || share.offset > share.mapped || share.chunks > share.mapped / kPage)
        return MakeStatus(Code::kRemoteError, "rank %d announced memory that cannot be", team_.first + i);
      if (share.chunks != 0 && (lead_ - share.offset) % unit != 0)
        return MakeStatus(Code::kInvalidArgument,
                          "argument buff of rank %d begins at another place in its memory than that of other ranks; "
                          "all must begin at the same distance from a multiple of %llu bytes",
                          team_.first + i, static_cast<unsigned long long>(unit));
      if (share.chunks != 0) most = std::max(most, lead_ - share.offset + share.mapped);
    }
    stride_ = RoundUp(most, kStride);
    AXCCL_RETURN_IF_ERROR(kept_->flat.Reserve(stride_ * static_cast<uint64_t>(team_.size)));
    begin_ = kept_->flat.address() + lead_;
    return Status();
  }

  // Collective: exchanges and maps some chunks of each rank. Once all ranks agree, they have taken the files.
  Status MapFrom(size_t first) {
    std::vector<shm::OfferedFile> offered;
    ChunkAddress mine[kAtATime];
    const Status ready = Offer(first, mine, &offered);
    std::vector<ChunkAddress> all(members_.size() * kAtATime);
    AXCCL_RETURN_IF_ERROR(gather_->AllGather(mine, sizeof(mine), all.data()));
    return Agree(ready.ok() ? Take(first, all) : ready);
  }

  Status Offer(size_t first, ChunkAddress* addresses, std::vector<shm::OfferedFile>* offered) const {
    bool to_others = false;
    for (int i = 0; i < team_.size; ++i) to_others |= !MemberOf(i).reach->same_process();
    for (size_t i = first; i < std::min(first + kAtATime, chunks_.size()); ++i) {
      AXCCL_ASSIGN_OR_RETURN(addresses[i - first], chunks_.Offer(i, to_others, offered));
    }
    return Status();
  }

  Status Take(size_t first, const std::vector<ChunkAddress>& all) {
    for (int i = 0; i < team_.size; ++i) {
      const Share& share = ShareOf(i);
      uint64_t& filled = filled_[static_cast<size_t>(i)];
      for (size_t chunk = first; chunk < std::min<uint64_t>(first + kAtATime, share.chunks); ++chunk) {
        const ChunkAddress& address = all[static_cast<size_t>(team_.first + i) * kAtATime + chunk - first];
        if (address.bytes == 0) break;  // that rank has failed, and says so
        if (address.bytes > share.mapped - filled)
          return MakeStatus(Code::kRemoteError, "rank %d offers more memory than announced", team_.first + i);
        const uint64_t at = static_cast<uint64_t>(i) * stride_ + lead_ - share.offset + filled;
        const Status mapped = cuda_ipc::MapChunk(device_, &kept_->flat, at, address, MemberOf(i).reach->same_process());
        if (!mapped.ok())
          return MakeStatus(mapped.code(), "CUDA device %d cannot map memory of rank %d: %s", device_.ordinal(),
                            team_.first + i, mapped.message().data());
        filled += address.bytes;
      }
    }
    return Status();
  }

  // Collective: kernels reach the shares of all ranks of a team at once, in a symmetric window or where they must.
  Status ReachAll(const OwnShare& own) {
    const auto wanted = [&](const Share& share) {
      return share.chunks != 0 && (own.multicast || share.symmetric != 0);
    };
    if (space_ == nullptr || !std::all_of(shares_.begin(), shares_.end(), wanted)) return Status();
    const Status reached = TryReachAll();
    if (reached.ok()) return Status();
    kept_->place = nullptr;
    kept_->object = nullptr;
    if (own.multicast) return Prefixed("memory that multimem reaches", reached);
    AXCCL_INFO(kReg, "rank %d: multimem does not reach the window: %s", rank_, reached.message().data());
    return Status();
  }

  Status TryReachAll() {
    kept_->object = std::make_unique<cuda_ipc::MulticastObject>(device_);
    cuda_ipc::Handle mine;
    const Status made = rank_ == team_.first ? MakeObject(&mine) : Status();
    std::vector<cuda_ipc::Handle> handles(members_.size());
    AXCCL_RETURN_IF_ERROR(gather_->AllGather(&mine, sizeof(mine), handles.data()));
    const cuda_ipc::Handle& of_team = handles[static_cast<size_t>(team_.first)];
    AXCCL_RETURN_IF_ERROR(Agree(made.ok() ? kept_->object->Join(of_team) : made));
    return Agree(Bind());
  }

  Result<uint64_t> MulticastUnit() const {
    return cuda_ipc::MulticastObject::LeastUnit(device_, static_cast<size_t>(team_.size));
  }

  Status MakeObject(cuda_ipc::Handle* handle) {
    AXCCL_ASSIGN_OR_RETURN(const uint64_t unit, MulticastUnit());
    uint64_t most = 0;
    for (int i = 0; i < team_.size; ++i) most = std::max(most, ShareOf(i).bytes);
    AXCCL_ASSIGN_OR_RETURN(*handle, kept_->object->Create(static_cast<size_t>(team_.size), lead_ % unit + most));
    return Status();
  }

  // Of the share's chunks, as much as the window has. All shares begin at the same place of the object.
  Status Bind() {
    AXCCL_ASSIGN_OR_RETURN(const uint64_t unit, MulticastUnit());
    const uint64_t lead = lead_ % unit, offset = chunks_.offset();
    if (offset % unit != lead)
      return MakeStatus(Code::kInvalidUsage,
                        "argument buff does not begin at the same distance from a multiple of %llu bytes of its memory "
                        "as that of other ranks",
                        static_cast<unsigned long long>(unit));
    const uint64_t end = RoundUp(offset + ShareOf(rank_ - team_.first).bytes, unit);
    AXCCL_RETURN_IF_ERROR(chunks_.BindTo(kept_->object.get(), offset - lead, end));
    AXCCL_ASSIGN_OR_RETURN(kept_->place, space_->Map(*kept_->object, unit));
    multicast_lead_ = lead;
    return Status();
  }

  // Writes what kernels read.
  Status Write() {
    for (int i = 0; i < team_.size; ++i) {
      if (filled_[static_cast<size_t>(i)] == ShareOf(i).mapped) continue;
      return MakeStatus(Code::kRemoteError, "rank %d offers less memory than announced", team_.first + i);
    }
    const WindowOnDevice window = OnDevice(Places(), rank_);
    AXCCL_ASSIGN_OR_RETURN(kept_->handle, device_.Take(sizeof(window)));
    return device_.Upload(kept_->handle, &window, sizeof(window));
  }

  Gather* const gather_;
  const Device& device_;
  const std::vector<Member>& members_;
  const int rank_;
  const std::shared_ptr<cuda_ipc::MulticastSpace> space_;
  const LsaTeam team_;
  std::vector<Share> shares_;  // of all ranks
  Chunks chunks_;
  uint64_t lead_ = 0;            // from where a share's memory may begin to where all shares begin
  uint64_t multicast_lead_ = 0;  // likewise in the multicast object
  uint64_t stride_ = 0;          // from share to share
  uint64_t begin_ = 0;           // of the first share
  const std::shared_ptr<Kept> kept_;
  std::vector<uint64_t> filled_;  // bytes of each share that are mapped
};

}  // namespace

Result<std::unique_ptr<Window>> MakeCudaWindow(Gather* gather, const Device& device, const std::vector<Member>& members,
                                               int rank, const Status& ready, const OwnShare& share,
                                               const std::shared_ptr<cuda_ipc::MulticastSpace>& space) {
  return Making(gather, device, members, rank, space).Run(ready, share);
}

}  // namespace axccl::exec
