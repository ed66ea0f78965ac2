// The vector clocks of strands: how many operations of each strand a strand knows to have run.
//
// A signal carries a copy of its strand's clock. Copies between two changes of a clock are one and the same, because
// the caller knows by itself how far the signalling strand was. An entry for the strand itself is the caller's, too.
// Owned by one Run (concurrency.cc).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace axccl::verify {

class Clocks {
 public:
  void Resize(size_t strands) {
    strands_ = strands;
    clocks_.assign(strands * strands, 0);
    now_.assign(strands, kNone);
    joined_.assign(strands, 0);
  }

  const uint32_t* Of(uint32_t strand) const { return &clocks_[strand * strands_]; }
  void Set(uint32_t strand, uint32_t other, uint32_t operations) {
    Leave(strand);
    clocks_[strand * strands_ + other] = operations;
  }
  // `strand` learns what `other` knows.
  void Join(uint32_t strand, uint32_t other) { JoinFrom(strand, Of(other)); }
  void Assign(uint32_t strand, uint32_t other) {
    Leave(strand);
    std::copy_n(Of(other), strands_, &clocks_[strand * strands_]);
  }

  // Returns a copy of the clock, which the caller releases once.
  uint32_t Copy(uint32_t strand) {
    if (now_[strand] == kNone) now_[strand] = NewCopy(strand);
    ++holders_[now_[strand]];
    return now_[strand];
  }
  void Release(uint32_t copy) {
    if (--holders_[copy] == 0) free_.push_back(copy);
  }
  size_t bytes_of_copies() const { return copies_.size() * strands_ * sizeof(uint32_t); }
  // `strand` learns what the copy says, and that so many operations of `other` have run.
  void JoinCopy(uint32_t strand, uint32_t copy, uint32_t other, uint32_t operations) {
    if (joined_[strand] != serial_[copy]) JoinFrom(strand, copies_[copy].data());
    joined_[strand] = serial_[copy];
    Set(strand, other, std::max(Of(strand)[other], operations));
  }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  void JoinFrom(uint32_t strand, const uint32_t* clock) {
    Leave(strand);
    uint32_t* own = &clocks_[strand * strands_];
    for (size_t i = 0; i < strands_; ++i) own[i] = std::max(own[i], clock[i]);
  }
  uint32_t NewCopy(uint32_t strand) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(holders_.size()));
      holders_.push_back(0);
      serial_.push_back(0);
      copies_.emplace_back(strands_);
    }
    const uint32_t copy = free_.back();
    free_.pop_back();
    holders_[copy] = 1;
    serial_[copy] = ++made_;
    std::copy_n(Of(strand), strands_, copies_[copy].data());
    return copy;
  }
  // The clock is about to change.
  void Leave(uint32_t strand) {
    if (now_[strand] != kNone) Release(now_[strand]);
    now_[strand] = kNone;
  }

  size_t strands_ = 0;
  std::vector<uint32_t> clocks_;               // [strand][strand]
  std::vector<uint32_t> now_;                  // [strand]: the copy of its clock as it is, or kNone
  std::vector<uint64_t> joined_;               // [strand]: the serial number of the copy that it joined last
  std::vector<std::vector<uint32_t>> copies_;  // [copy][strand]
  std::vector<uint32_t> holders_;              // [copy]: signals that carry it, and the strand whose clock it still is
  std::vector<uint64_t> serial_;               // [copy]: ascending from 1
  std::vector<uint32_t> free_;                 // copies
  uint64_t made_ = 0;
};

}  // namespace axccl::verify
