#include "src/exec/cuda/window_table.h"

namespace axccl::exec {

Result<std::shared_ptr<CudaWindowTable>> CudaWindowTable::Create(const device::cuda::Device& device) {
  std::shared_ptr<CudaWindowTable> table(new CudaWindowTable(device));
  AXCCL_RETURN_IF_ERROR(table->AddPiece());
  return table;
}

CudaWindowTable::~CudaWindowTable() {
  for (Piece* piece : pieces_) device_.ReturnHost(piece);
}

Status CudaWindowTable::AddPiece() {
  AXCCL_ASSIGN_OR_RETURN(void* const memory, device_.TakeHost(sizeof(Piece)));
  auto* const piece = static_cast<Piece*>(memory);
  if (!pieces_.empty()) __atomic_store_n(&pieces_.back()->next, piece, __ATOMIC_RELEASE);
  pieces_.push_back(piece);
  return Status();
}

CudaWindowTable::Entry* CudaWindowTable::FindFree() {
  for (Piece* piece : pieces_) {
    for (Entry& entry : piece->entries) {
      if (entry.handle == 0) return &entry;
    }
  }
  return nullptr;
}

Result<std::shared_ptr<CudaWindowTable::Entry>> CudaWindowTable::Take() {
  constexpr uint64_t kTaken = ~uint64_t{0};
  std::lock_guard lock(mutex_);
  if (FindFree() == nullptr) AXCCL_RETURN_IF_ERROR(AddPiece());
  Entry* const free = FindFree();
  __atomic_store_n(&free->handle, kTaken, __ATOMIC_RELAXED);
  return std::shared_ptr<Entry>(free, [table = shared_from_this()](Entry* entry) {
    std::lock_guard lock(table->mutex_);
    __atomic_store_n(&entry->bytes, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->handle, 0, __ATOMIC_RELEASE);
  });
}

// Kernels that search for other windows meanwhile find none of no bytes.
void CudaWindowTable::Fill(Entry* entry, uint64_t base, uint64_t bytes, uint64_t handle) {
  __atomic_store_n(&entry->base, base, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->handle, handle, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->bytes, bytes, __ATOMIC_RELEASE);
}

}  // namespace axccl::exec
