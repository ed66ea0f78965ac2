#include "tools/softgpu/cuda/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

// The addresses given up most recently; the oldest return to the system.
class Quarantine {
 public:
  void Add(uint64_t address, size_t bytes) {
    constexpr size_t kLimit = size_t{64} << 30;
    void* const at = reinterpret_cast<void*>(address);
    if (Knobs().reuse) {
      munmap(at, bytes);
      return;
    }
    mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    std::lock_guard lock(mutex_);
    held_.emplace_back(at, bytes);
    bytes_ += bytes;
    while (bytes_ > kLimit || held_.size() > 4096) {
      const auto [oldest, size] = held_.front();
      held_.pop_front();
      bytes_ -= size;
      munmap(oldest, size);
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<void*, size_t>> held_;
  size_t bytes_ = 0;
};

Quarantine& TheQuarantine() {
  static auto* const quarantine = new Quarantine;
  return *quarantine;
}

}  // namespace

AddressSpace& AddressSpace::Get() {
  static auto* const space = new AddressSpace;
  return *space;
}

AddressSpace::AddressSpace() {
  for (int device = 0; device < kMaxDevices; ++device) {
    views_[device].space = this;
    views_[device].device = device;
  }
}

void AddressSpace::Insert(Range range) {
  std::lock_guard lock(mutex_);
  if (range.id == 0) range.id = NextId();
  const uint64_t begin = range.begin;
  ranges_[begin] = std::move(range);
}

std::optional<Range> AddressSpace::Erase(uint64_t begin, RangeKind kind) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.kind != kind) return std::nullopt;
  Range range = std::move(found->second);
  ranges_.erase(found);
  ++generation_;
  return range;
}

const Range* AddressSpace::Lookup(uint64_t address) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  return address < range.end() ? &range : nullptr;
}

std::optional<Range> AddressSpace::Find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const Range* range = Lookup(address);
  return range == nullptr ? std::nullopt : std::optional(*range);
}

// Under the mutex.
template <class Belongs>
uint64_t AddressSpace::EndOfRun(const Range& range, const Belongs& belongs) const {
  uint64_t end = range.end();
  if (range.kind != RangeKind::kMapped) return end;
  for (auto next = ranges_.find(end); next != ranges_.end() && next->second.kind == RangeKind::kMapped;
       next = ranges_.find(end)) {
    if (!belongs(next->second)) break;
    end = next->second.end();
  }
  return end;
}

uint64_t AddressSpace::EndOfMapped(const Range& range) const {
  std::shared_lock lock(mutex_);
  return EndOfRun(range, [](const Range&) { return true; });
}

std::optional<Range> AddressSpace::FindId(uint64_t id) const {
  std::shared_lock lock(mutex_);
  for (const auto& [begin, range] : ranges_) {
    if (range.id == id) return range;
  }
  return std::nullopt;
}

std::vector<Range> AddressSpace::All() const {
  std::shared_lock lock(mutex_);
  std::vector<Range> all;
  for (const auto& [begin, range] : ranges_) all.push_back(range);
  return all;
}

bool AddressSpace::SetAccess(uint64_t begin, int device, bool allowed) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end()) return false;
  const uint64_t bit = uint64_t{1} << device;
  found->second.access = allowed ? found->second.access | bit : found->second.access & ~bit;
  if (!allowed) ++generation_;
  return true;
}

void AddressSpace::SetPool(uint64_t begin, std::shared_ptr<const PoolAccess> pool) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found != ranges_.end()) found->second.pool = std::move(pool);
}

void AddressSpace::SetPeerAccess(int device, int peer, bool allowed) {
  const uint64_t bit = uint64_t{1} << peer;
  if (allowed) {
    peers_[device] |= bit;
  } else {
    peers_[device] &= ~bit;
    ++generation_;
  }
}

bool AddressSpace::Reaches(int device, const Range& range) const {
  switch (range.kind) {
    case RangeKind::kHost:
      return range.alias == 0;
    case RangeKind::kRegistered:
    case RangeKind::kManaged:
      return true;
    case RangeKind::kMapped:
    case RangeKind::kImported:
      return (range.access >> device & 1) != 0;
    case RangeKind::kMulticast:
      return false;
    case RangeKind::kPool:
      return range.device == device || (range.pool != nullptr && (range.pool->devices >> device & 1) != 0);
    default:
      return range.device == device || peer_access(device, range.device);
  }
}

bool AddressSpace::DeviceView::Find(uint64_t address, uint64_t* begin, uint64_t* end) const {
  std::shared_lock lock(space->mutex_);
  const Range* range = space->Lookup(address);
  if (range == nullptr || !space->Reaches(device, *range)) return false;
  *begin = range->begin;
  *end = space->EndOfRun(*range, [this](const Range& next) { return space->Reaches(device, next); });
  return true;
}

bool AddressSpace::DeviceView::FindMulticast(uint64_t address, engine::MulticastWindow* window) const {
  const std::optional<Range> range = space->Find(address);
  if (!range || range->kind != RangeKind::kMulticast || (range->access >> device & 1) == 0) return false;
  if (!range->multicast->Resolve(device, range->offset + (address - range->begin), window)) return false;
  // From offsets to addresses, and to those of this range.
  const uint64_t begin = std::max(window->begin, range->offset);
  for (uint64_t& copy : window->copies) copy += begin - window->begin;
  window->begin = range->begin + (begin - range->offset);
  window->end = range->begin + (std::min(window->end, range->offset + range->bytes) - range->offset);
  return true;
}

std::unique_ptr<Mapping> Mapping::Map(size_t bytes, int descriptor, uint64_t offset) {
  bytes = RoundUp(bytes, kPage);
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return nullptr;
  return std::unique_ptr<Mapping>(new Mapping(reinterpret_cast<uint64_t>(at), bytes));
}

std::unique_ptr<Mapping> Mapping::Reserve(size_t bytes, size_t alignment) {
  const size_t whole = bytes + alignment;
  void* at = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uint64_t>(at);
  const uint64_t address = RoundUp(begin, alignment);
  if (address > begin) munmap(at, address - begin);
  const uint64_t tail = begin + whole - (address + bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(address + bytes), tail);
  return std::unique_ptr<Mapping>(new Mapping(address, bytes));
}

Mapping::~Mapping() { TheQuarantine().Add(address_, bytes_); }

}  // namespace softgpu::cuda
