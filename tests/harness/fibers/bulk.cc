#include "tests/harness/fibers/bulk.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "tests/harness/fibers/fibers.h"

namespace axccl::fibers {
namespace {

constexpr uint32_t kMostPiece = 64;

uint64_t bulk_bytes = 0;

const uint8_t* Rubbish() {
  static const std::array<uint8_t, kMostPiece> rubbish = [] {
    std::array<uint8_t, kMostPiece> bytes;
    bytes.fill(0xdb);
    return bytes;
  }();
  return rubbish.data();
}

// Other sizes and alignments are faults on a device.
void RequireMultiples(const uint8_t* to, const uint8_t* from, uint32_t bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16 != 0) std::abort();
}

}  // namespace

uint64_t BulkBytes() { return bulk_bytes; }

void BulkGate::Expect(uint32_t expected) {
  bytes += static_cast<int32_t>(expected);
  arrived = 1;
  OpenIfComplete();
}

void BulkGate::Come(uint32_t came) {
  bytes -= static_cast<int32_t>(came);
  OpenIfComplete();
}

void BulkGate::OpenIfComplete() {
  if (arrived == 0 || bytes != 0) return;
  arrived = 0;
  ++opened;
}

void BulkUnit::Load(uint8_t* to, const uint8_t* from, uint32_t bytes, BulkGate* gate, bool spoilt) {
  RequireMultiples(to, from, bytes);
  copies_.push_back({to, from, bytes, 0, 0, gate, 0, spoilt, {}});
}

void BulkUnit::Store(uint8_t* to, const uint8_t* from, uint32_t bytes, bool spoilt) {
  RequireMultiples(to, from, bytes);
  copies_.push_back({to, from, bytes, 0, 0, nullptr, group_, spoilt, std::vector<uint8_t>(bytes)});
}

bool BulkUnit::HaveRead(uint32_t but) const {
  return std::all_of(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return copy.gate != nullptr || copy.group + but >= group_ || copy.read == copy.bytes;
  });
}

bool BulkUnit::HaveWritten() const {
  return std::all_of(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) { return copy.gate != nullptr || copy.group == group_; });
}

BulkUnit::Piece BulkUnit::Next() {
  now_ = Draw(copies_.size());
  Copy& copy = copies_[now_];
  const bool loads = copy.gate != nullptr, reads = !loads && copy.read < copy.bytes;
  const uint32_t at = reads ? copy.read : copy.written;
  const auto most = static_cast<uint32_t>(16 * (1 + Draw(kMostPiece / 16)));
  piece_ = {reads ? copy.data.data() + at : copy.to + at, loads || reads ? copy.from + at : copy.data.data() + at,
            std::min(most, copy.bytes - at)};
  if (copy.spoilt) piece_.from = Rubbish();
  return piece_;
}

void BulkUnit::End() {
  Copy& copy = copies_[now_];
  const bool loads = copy.gate != nullptr, reads = !loads && copy.read < copy.bytes;
  (reads ? copy.read : copy.written) += piece_.bytes;
  if (loads) copy.gate->Come(piece_.bytes);
  if (!loads && !reads) bulk_bytes += piece_.bytes;
  if (copy.written == copy.bytes) copies_.erase(copies_.begin() + static_cast<ptrdiff_t>(now_));
}

}  // namespace axccl::fibers
