#include "transports/cuda_ipc/imports.h"

#include <memory>
#include <utility>

#include "src/base/closer.h"
#include "src/base/log.h"

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Device;

// For memory that cannot be opened yet; after that, it is tried as often.
constexpr std::chrono::seconds kUntilRefused(1);

// Closes in the background, because closing waits for kernels.
void CloseLater(const Device& device, const Imported& imported) {
  Closer::Process().Add([&device, imported] { Close(device, imported); });
}

}  // namespace

Result<std::unique_ptr<Imports>> Imports::Create(const Device& device, size_t rank, std::vector<Peer> peers) {
  std::unique_ptr<Imports> imports(new Imports(device, rank, std::move(peers)));
  AXCCL_ASSIGN_OR_RETURN(imports->maps_, device.Allocate(imports->peers_.size() * kMapBytes));
  return imports;
}

Imports::~Imports() {
  for (const Seen& seen : seen_) {
    for (const Taken& taken : seen.taken) {
      if (taken.mapped) CloseLater(device_, taken.imported);
    }
  }
  if (maps_ != 0) device_.Free(maps_);
}

Status Imports::Look() {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank == rank_ || peers_[rank].table == nullptr) continue;
    const uint64_t changes = peers_[rank].table->changes.load(std::memory_order_acquire);
    if (changes == seen_[rank].changes) continue;
    const Status looked = LookAt(rank);
    if (looked.code() == Code::kInProgress) continue;  // the next look looks again
    AXCCL_RETURN_IF_ERROR(looked);
    seen_[rank].changes = changes;  // changes that come meanwhile are found by the next look
  }
  return Status();
}

// What has gone is closed first, because new memory may be at its addresses, which the driver refuses to open until
// that is done. To close waits for kernels, which may themselves wait for the new memory, and others may have it open:
// so after a while this rank says that it cannot use it, and tries again now and then.
Status Imports::LookAt(size_t rank) {
  std::vector<Taken>& all = seen_[rank].taken;
  all.resize(ExportTable::kNumbers);
  std::vector<std::pair<uint32_t, uint64_t>> came;  // numbers and generations
  for (uint32_t number = 1; number < ExportTable::kNumbers; ++number) {
    Taken& taken = all[number];
    const uint64_t generation = peers_[rank].table->entries[number].generation.load(std::memory_order_acquire);
    if (generation == taken.generation) continue;
    // It may take memory back that kernels here still use, so that stays mapped until this object ends.
    const std::atomic<uint32_t>* const error = peers_[rank].error;
    if (error != nullptr && error->load(std::memory_order_acquire) != 0) return Status();
    if (generation == 0 || generation != taken.refused) {
      if (taken.mapped) CloseLater(device_, taken.imported);
      taken = {};
      peers_[rank_].table->Answer(rank, number)->store(0, std::memory_order_release);
    }
    if (generation != 0) came.emplace_back(number, generation);
  }
  Status status;
  for (const auto& [number, generation] : came) {
    const Status taken = Take(rank, number, generation);
    if (!taken.ok() && taken.code() != Code::kInProgress) return taken;
    if (!taken.ok()) status = taken;
  }
  return status;
}

// kInProgress: not yet.
Status Imports::Take(size_t rank, uint32_t number, uint64_t generation) {
  const Peer& peer = peers_[rank];
  const ExportTable::Entry& entry = peer.table->entries[number];
  const uint64_t base = entry.base;
  const Handle handle = entry.handle;
  std::atomic_thread_fence(std::memory_order_acquire);
  // The entry changed meanwhile. It will be read again, because that change was counted after the ones seen here.
  if (entry.generation.load(std::memory_order_relaxed) != generation) return Status();
  Taken& taken = seen_[rank].taken[number];
  const auto now = std::chrono::steady_clock::now();
  if (taken.refused == generation && now < taken.again) return MakeStatus(Code::kInProgress, "refused a while ago");
  const Result<CUdeviceptr> address = Map(peer, base, handle, &taken);
  const Status status = address.status();
  if (status.code() == Code::kInProgress) {
    if (std::exchange(taken.refused, generation) != generation) taken.since = now;
    if (now - taken.since < kUntilRefused) return status;
    taken.again = now + kUntilRefused;
    if (!std::exchange(taken.told, true)) Tell(rank, number, generation, status);
    return status;
  }
  taken.generation = generation;
  taken.refused = 0;
  if (address.ok()) AXCCL_RETURN_IF_ERROR(PutAddress(rank, number, address.value()));
  Tell(rank, number, generation, status);
  return Status();
}

// Answers whether this rank can use the allocation.
void Imports::Tell(size_t rank, uint32_t number, uint64_t generation, const Status& status) {
  if (!status.ok() && !std::exchange(explained_, true))
    AXCCL_INFO(kReg, "rank %zu on CUDA device %d does not map memory of rank %zu: %.*s", rank_, device_.ordinal(), rank,
               static_cast<int>(status.message().size()), status.message().data());
  peers_[rank_].table->Answer(rank, number)->store(2 * generation + status.ok(), std::memory_order_release);
}

Status Imports::PutAddress(size_t rank, uint32_t number, CUdeviceptr address) const {
  const uint64_t word = address;
  return device_.Upload(maps_of(rank) + number * sizeof(word), &word, sizeof(word));
}

Result<CUdeviceptr> Imports::Map(const Peer& peer, uint64_t base, const Handle& handle, Taken* taken) const {
  if (peer.here && MayUse(device_, base, handle)) return CUdeviceptr{base};
  if (handle.pid != peer.pid)
    return MakeStatus(Code::kRemoteError, "process %u offers memory of process %u", peer.pid, handle.pid);
  AXCCL_ASSIGN_OR_RETURN(taken->imported, Import(device_, handle));
  taken->mapped = true;
  return taken->imported.address;
}

}  // namespace axccl::cuda_ipc
