#include "transports/cuda_ipc/exports.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace axccl::cuda_ipc {
namespace {

// All Exports of the process. Its lock is taken before the lock of any of them.
struct AllExports {
  std::mutex mutex;
  std::vector<Exports*> all;
};

AllExports& Process() {
  static AllExports* const exports = new AllExports;
  return *exports;
}

}  // namespace

Exports::Exports(const device::cuda::Device& device, size_t rank, std::vector<ExportTable*> tables)
    : device_(device), rank_(rank), tables_(std::move(tables)) {
  std::lock_guard lock(Process().mutex);
  Process().all.push_back(this);
}

Exports::~Exports() {
  std::lock_guard lock(Process().mutex);
  std::erase(Process().all, this);
}

Exports::Place Exports::Find(CUdeviceptr pointer, uint64_t bytes, bool kept) {
  std::lock_guard lock(mutex_);
  const Result<Known*> known = Know(pointer, bytes);
  if (!known.ok()) return {};
  known.value()->found = true;
  known.value()->kept |= kept;
  return PlaceIn(*known.value(), pointer);
}

Result<Exports::Place> Exports::Hold(CUdeviceptr pointer, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  AXCCL_ASSIGN_OR_RETURN(Known* const known, Know(pointer, bytes));
  ++known->holds;
  return PlaceIn(*known, pointer);
}

// The allocation that contains the bytes, exported; an error if it cannot be shared.
Result<Exports::Known*> Exports::Know(CUdeviceptr pointer, uint64_t bytes) {
  LookAtNext();
  AXCCL_ASSIGN_OR_RETURN(const Range range, RangeOf(device_, pointer));
  auto known = known_.find(range.base);
  // The allocation was freed, and its addresses were reused.
  if (known != known_.end() && known->second.id != range.id) {
    Retire(known);
    known = known_.end();
  }
  if (known == known_.end()) Add(range);
  known = known_.find(range.base);
  if (known == known_.end())
    return MakeStatus(Code::kInvalidUsage, "rank %zu shares %u allocations already, the most at a time", rank_,
                      ExportTable::kNumbers - 1);
  if (known->second.file && AllAnswered(known->second.number)) known->second.file.Close();
  if (known->second.number == 0) return known->second.why_not;
  if (pointer - range.base + bytes <= known->second.bytes) return &known->second;
  return MakeStatus(Code::kInvalidUsage, "it begins in an allocation of %llu bytes and ends behind that",
                    static_cast<unsigned long long>(range.bytes));
}

Exports::Place Exports::PlaceIn(const Known& known, CUdeviceptr pointer) const {
  return {known.number, pointer - known.base, own().entries[known.number].generation.load(std::memory_order_relaxed)};
}

bool Exports::Has(size_t rank, uint32_t number) const {
  const uint64_t generation = own().entries[number].generation.load(std::memory_order_relaxed);
  return rank == rank_ || AnswerOf(rank, number) == 2 * generation + 1;
}

bool Exports::Lacks(size_t rank, uint32_t number) const {
  const uint64_t generation = own().entries[number].generation.load(std::memory_order_relaxed);
  return rank != rank_ && generation != 0 && AnswerOf(rank, number) == 2 * generation;
}

// Of a rank out of reach: 0.
uint64_t Exports::AnswerOf(size_t rank, uint32_t number) const {
  return tables_[rank] == nullptr ? 0 : tables_[rank]->Answer(rank_, number)->load(std::memory_order_acquire);
}

// Whether all peers have answered, in either way.
bool Exports::AllAnswered(uint32_t number) const {
  const uint64_t generation = own().entries[number].generation.load(std::memory_order_relaxed);
  for (size_t rank = 0; rank < tables_.size(); ++rank) {
    if (rank != rank_ && tables_[rank] != nullptr && AnswerOf(rank, number) / 2 != generation) return false;
  }
  return true;
}

// Also records memory that cannot be exported, so that it is not tried again, but not memory for which no number is
// free.
void Exports::Add(const Range& range) {
  const uint32_t number = FreeNumber();
  if (number == 0) return;
  Known& known = known_[range.base];
  known.base = range.base;
  known.id = range.id;
  known.bytes = range.bytes;
  Result<Exported> exported = Export(device_, range);
  if (!exported.ok()) {
    known.why_not = exported.status();
    if (!std::exchange(explained_, true))
      AXCCL_INFO(kReg, "rank %zu: memory at %p is not shared with other processes: %.*s", rank_,
                 reinterpret_cast<void*>(range.base), static_cast<int>(exported.status().message().size()),
                 exported.status().message().data());
    return;
  }
  ExportTable::Entry& entry = own().entries[number];
  entry.base = range.base;
  entry.handle = exported.value().handle;
  entry.generation.store(++generations_, std::memory_order_release);
  own().changes.fetch_add(1, std::memory_order_release);
  known.number = number;
  known.file = std::move(exported.value().file);
}

// A number under which no peer knows an earlier allocation. 0 if there is none.
uint32_t Exports::FreeNumber() const {
  for (uint32_t number = 1; number < ExportTable::kNumbers; ++number) {
    if (own().entries[number].generation.load(std::memory_order_relaxed) != 0) continue;
    bool unknown = true;
    for (size_t rank = 0; rank < tables_.size() && unknown; ++rank) unknown = AnswerOf(rank, number) == 0;
    if (unknown) return number;
  }
  return 0;
}

Exports::KnownMap::iterator Exports::At(CUdeviceptr pointer) {
  auto known = known_.upper_bound(pointer);
  if (known == known_.begin()) return known_.end();
  --known;
  return pointer - known->first < known->second.bytes ? known : known_.end();
}

void Exports::LetGo(CUdeviceptr pointer) {
  std::lock_guard lock(mutex_);
  const auto known = At(pointer);
  if (known == known_.end() || known->second.kept) return;
  known->second.found = false;
  if (known->second.holds == 0) Retire(known);
}

// If the allocation was freed meanwhile, there may be another one at its addresses.
void Exports::Release(CUdeviceptr pointer, const Place& place) {
  std::lock_guard lock(mutex_);
  const auto known = At(pointer);
  if (known == known_.end() || PlaceIn(known->second, pointer).generation != place.generation) return;
  if (--known->second.holds == 0 && !known->second.found) Retire(known);
}

void Exports::Freed(CUdeviceptr base) {
  std::lock_guard lock(Process().mutex);
  for (Exports* const exports : Process().all) {
    std::lock_guard own_lock(exports->mutex_);
    if (const auto known = exports->known_.find(base); known != exports->known_.end()) exports->Retire(known);
  }
}

void Exports::Retire(KnownMap::iterator known) {
  if (known->second.number != 0) {
    own().entries[known->second.number].generation.store(0, std::memory_order_release);
    own().changes.fetch_add(1, std::memory_order_release);
  }
  known_.erase(known);
}

// Checks one allocation at a time, in turn, so that freed ones are noticed even if their addresses are not reused.
void Exports::LookAtNext() {
  auto known = known_.lower_bound(next_);
  if (known == known_.end()) known = known_.begin();
  if (known == known_.end()) return;
  next_ = known->first + 1;
  const Result<Range> range = RangeOf(device_, known->first);
  if (!range.ok() || range.value().id != known->second.id) Retire(known);
}

}  // namespace axccl::cuda_ipc
