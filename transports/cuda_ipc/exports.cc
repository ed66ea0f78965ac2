#include "transports/cuda_ipc/exports.h"

#include <algorithm>
#include <set>
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
  const Result<Place> place = Use(pointer, bytes, [=](Known* known) {
    known->found = true;
    known->kept |= kept;
  });
  return place.ok() ? place.value() : Place{};
}

Result<Exports::Place> Exports::Hold(CUdeviceptr pointer, uint64_t bytes) {
  return Use(pointer, bytes, [](Known* known) { ++known->holds; });
}

bool Exports::MayFind(const std::vector<Bytes>& all) {
  std::lock_guard lock(mutex_);
  std::set<KnownMap::key_type> added;
  for (const auto& [pointer, bytes] : all) {
    const Result<Range> range = RangeOf(device_, pointer, bytes);
    if (!range.ok()) return false;
    const KnownMap::key_type key{range.value().base, range.value().bytes};
    const auto known = known_.find(key);
    const bool is_known = known != known_.end() && known->second.id == range.value().id;
    if (is_known && known->second.number == 0) return false;
    if (!is_known) added.insert(key);
  }
  size_t free = 0;
  for (uint32_t number = 1; number < ExportTable::kNumbers && free < added.size(); ++number) free += IsFree(number);
  return free == added.size();
}

template <typename Note>
Result<Exports::Place> Exports::Use(CUdeviceptr pointer, uint64_t bytes, Note note) {
  Range added;
  const auto use = [&]() -> Result<Place> {
    std::lock_guard lock(mutex_);
    AXCCL_ASSIGN_OR_RETURN(const KnownMap::iterator known, Know(pointer, bytes, &added));
    note(&known->second);
    return PlaceIn(known, pointer);
  };
  Result<Place> place = use();
  if (added.bytes != 0) RetireGone(added);
  return place;
}

// The allocations that contain the bytes, exported; an error if they cannot be shared.
Result<Exports::KnownMap::iterator> Exports::Know(CUdeviceptr pointer, uint64_t bytes, Range* added) {
  LookAtNext();
  AXCCL_ASSIGN_OR_RETURN(const Range range, RangeOf(device_, pointer, bytes));
  auto known = known_.find({range.base, range.bytes});
  // They were freed, and their addresses were reused.
  if (known != known_.end() && known->second.id != range.id) {
    Retire(known);
    known = known_.end();
  }
  if (known == known_.end()) {
    Add(range);
    known = known_.find({range.base, range.bytes});
    *added = range;
  }
  if (known == known_.end())
    return MakeStatus(Code::kInvalidUsage, "rank %zu shares %u allocations already, the most at a time", rank_,
                      ExportTable::kNumbers - 1);
  Known& found = known->second;
  if (found.number == 0) return found.why_not;
  if (found.exported.file && AllAnswered(found.number)) found.exported = {};
  return known;
}

Exports::Place Exports::PlaceIn(KnownMap::const_iterator known, CUdeviceptr pointer) const {
  const uint32_t number = known->second.number;
  return {number, pointer - known->first.first, own().entries[number].generation.load(std::memory_order_relaxed)};
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
  Known& known = known_[{range.base, range.bytes}];
  known.id = range.id;
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
  known.exported = std::move(exported).value();
}

uint32_t Exports::FreeNumber() const {
  for (uint32_t number = 1; number < ExportTable::kNumbers; ++number) {
    if (IsFree(number)) return number;
  }
  return 0;
}

// Whether no peer knows an earlier allocation under it either.
bool Exports::IsFree(uint32_t number) const {
  if (own().entries[number].generation.load(std::memory_order_relaxed) != 0) return false;
  for (size_t rank = 0; rank < tables_.size(); ++rank) {
    if (AnswerOf(rank, number) != 0) return false;
  }
  return true;
}

void Exports::LetGo(CUdeviceptr pointer) {
  std::lock_guard lock(mutex_);
  for (auto next = known_.begin(); next != known_.end();) {
    const auto known = next++;
    if (!Contains(known, pointer) || known->second.kept) continue;
    known->second.found = false;
    if (known->second.holds == 0) Retire(known);
  }
}

// If the allocations were freed meanwhile, there may be others at their addresses.
void Exports::Release(const Place& place) {
  std::lock_guard lock(mutex_);
  if (own().entries[place.number].generation.load(std::memory_order_relaxed) != place.generation) return;
  const auto known = std::find_if(known_.begin(), known_.end(),
                                  [&](const auto& entry) { return entry.second.number == place.number; });
  if (known != known_.end() && --known->second.holds == 0 && !known->second.found) Retire(known);
}

void Exports::Freed(CUdeviceptr base) {
  RetireAll([=](const Exports&, KnownMap::const_iterator known) { return Contains(known, base); });
}

void Exports::RetireGone(const Range& range) {
  RetireAll([&](const Exports& exports, KnownMap::const_iterator known) {
    const auto& [base, bytes] = known->first;
    return base < range.base + range.bytes && range.base < base + bytes && exports.IsGone(known);
  });
}

template <typename Test>
void Exports::RetireAll(Test test) {
  std::lock_guard lock(Process().mutex);
  for (Exports* const exports : Process().all) {
    std::lock_guard own_lock(exports->mutex_);
    for (auto next = exports->known_.begin(); next != exports->known_.end();) {
      const auto known = next++;
      if (test(*exports, known)) exports->Retire(known);
    }
  }
}

bool Exports::IsGone(KnownMap::const_iterator known) const {
  const Result<Range> range = RangeOf(device_, known->first.first, known->first.second);
  return !range.ok() || range.value().bytes != known->first.second || range.value().id != known->second.id;
}

void Exports::Retire(KnownMap::iterator known) {
  if (known->second.number != 0) {
    own().entries[known->second.number].generation.store(0, std::memory_order_release);
    own().changes.fetch_add(1, std::memory_order_release);
  }
  known_.erase(known);
}

// Checks some allocations at a time, in turn, so that freed ones are noticed even if their addresses are not reused.
void Exports::LookAtNext() {
  auto known = known_.upper_bound(next_);
  if (known == known_.end()) known = known_.begin();
  if (known == known_.end()) return;
  next_ = known->first;
  if (IsGone(known)) Retire(known);
}

}  // namespace axccl::cuda_ipc
