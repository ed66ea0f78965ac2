#include "tools/softgpu/engine/bulk.h"

#include <algorithm>
#include <atomic>

#include "tools/softgpu/engine/mbarrier.h"
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

constexpr uint32_t kAll = ~0u;

std::atomic<uint64_t> bulk_bytes{0}, most_in_flight{0};

// Copies by words, so that ThreadSanitizer sees them.
void CopyWords(std::byte* to, const std::byte* from, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += 4) StorePlain(to + at, LoadPlain<uint32_t>(from + at));
}

}  // namespace

uint64_t BulkBytes() { return bulk_bytes.load(std::memory_order_relaxed); }
uint64_t MostBulkBytesInFlight() { return most_in_flight.load(std::memory_order_relaxed); }

void BulkUnit::Start(uint32_t shared_bytes, uint32_t threads, bool watches_writes) {
  copies_.clear();
  in_flight_ = 0;
  open_groups_.assign(threads, 0);
  mbarriers_.clear();
  watches_writes_ = watches_writes;
  if (watches_writes) unfenced_.assign((shared_bytes + kGranule - 1) / kGranule, false);
}

void BulkUnit::End() {
  for (const BulkCopy& copy : copies_) {
    if (copy.to_global && copy.read == copy.bytes) continue;
    copy.warp->Fail(*copy.instr, copy.lane, "the block ended while this copy was under way");
    return;
  }
  Finish();
}

void BulkUnit::Begin(BulkCopy copy) {
  copy.data.resize(copy.bytes);
  if (copy.from_global) in_flight_ += copy.bytes;
  uint64_t most = most_in_flight.load(std::memory_order_relaxed);
  while (most < in_flight_ && !most_in_flight.compare_exchange_weak(most, in_flight_, std::memory_order_relaxed)) {
  }
  copies_.push_back(std::move(copy));
}

// Reads a piece of at most `most` bytes, or writes one that was read.
void BulkUnit::Step(BulkCopy* copy, uint32_t most) {
  BulkCopy& c = *copy;
  const bool reads = c.read < c.bytes;
  const uint32_t at = reads ? c.read : c.written, bytes = std::min(most, c.bytes - at);
  if (reads) {
    CopyWords(c.data.data() + at, c.from + at, bytes);
    c.read += bytes;
  } else {
    CopyWords(c.to + at, c.data.data() + at, bytes);
    c.written += bytes;
    if (c.to_global) bulk_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (c.from_global) in_flight_ -= bytes;
  }
  if (reads ? c.from_global : c.to_global) {
    const uint64_t address = reinterpret_cast<uintptr_t>(reads ? c.from : c.to) + at;
    NoteAccess(*c.warp, *c.instr, c.lane, address, bytes, !reads);
  }
  if (reads || c.mbarrier == nullptr) return;
  Mbarrier barrier = Mbarrier::Unpack(LoadPlain<uint64_t>(c.mbarrier));
  barrier.Complete(bytes);
  StorePlain(c.mbarrier, barrier.Pack());
}

void BulkUnit::Forget() {
  copies_.erase(std::remove_if(copies_.begin(), copies_.end(), [](const BulkCopy& copy) { return copy.Done(); }),
                copies_.end());
}

void BulkUnit::EndAll(const std::function<bool(const BulkCopy&)>& is_left) {
  std::vector<BulkCopy*> left;
  for (BulkCopy& copy : copies_) {
    if (is_left(copy)) left.push_back(&copy);
  }
  while (!left.empty()) {
    const size_t i = left[0]->warp->execution->Draw(left.size());
    Step(left[i], kAll);
    if (!is_left(*left[i])) left.erase(left.begin() + static_cast<ptrdiff_t>(i));
  }
  Forget();
}

void BulkUnit::Finish() {
  EndAll([](const BulkCopy& copy) { return !copy.Done(); });
}

void BulkUnit::Advance() {
  if (copies_.empty()) return;
  ExecutionState& execution = *copies_[0].warp->execution;
  if (!execution.shuffles()) return Finish();
  BulkCopy& copy = copies_[execution.Draw(copies_.size())];
  Step(&copy, static_cast<uint32_t>(16 * (1 + execution.Draw(copy.bytes / 16))));
  Forget();
}

void BulkUnit::EndGroups(uint32_t thread, uint32_t but, bool read) {
  const uint32_t open = open_groups_[thread];
  if (open <= but) return;
  EndAll([=](const BulkCopy& copy) {
    const bool waited_for =
        copy.mbarrier == nullptr && copy.group < open - but && copy.warp->index * kWarpLanes + copy.lane == thread;
    return waited_for && (read ? copy.read != copy.bytes : !copy.Done());
  });
}

const BulkUnit::Known* BulkUnit::Find(uint32_t offset) const {
  for (const Known& mbarrier : mbarriers_) {
    if (mbarrier.offset == offset) return &mbarrier;
  }
  return nullptr;
}

void BulkUnit::Initialise(uint32_t mbarrier) {
  Invalidate(mbarrier);
  mbarriers_.push_back({mbarrier, false});
}

void BulkUnit::Invalidate(uint32_t mbarrier) {
  std::erase_if(mbarriers_, [mbarrier](const Known& known) { return known.offset == mbarrier; });
}

void BulkUnit::NoteWrite(uint64_t offset, uint32_t bytes) {
  for (uint64_t granule = offset / kGranule; granule <= (offset + bytes - 1) / kGranule; ++granule)
    unfenced_[granule] = true;
}

bool BulkUnit::HasUnfencedWrite(uint64_t offset, uint32_t bytes) const {
  if (!watches_writes_ || bytes == 0) return false;
  for (uint64_t granule = offset / kGranule; granule <= (offset + bytes - 1) / kGranule; ++granule) {
    if (unfenced_[granule]) return true;
  }
  return false;
}

void BulkUnit::FenceMbarriers() {
  for (Known& mbarrier : mbarriers_) mbarrier.fenced = true;
}

void BulkUnit::FenceShared() {
  FenceMbarriers();
  unfenced_.assign(unfenced_.size(), false);
}

}  // namespace softgpu::engine
