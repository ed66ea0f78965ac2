// The checks of an operation while it waits for a member: whether the wait can end at all, and whether it has lasted
// too long. Part of an operation, used by the thread that drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "src/exec/host/binding.h"
#include "src/exec/host/waited_time.h"

namespace axccl::exec {

class WaitMonitor {
 public:
  // The member at `position` has not done its part yet. Checks the clock and the members' health now and then; returns
  // an error when the wait must end.
  Status Look(const Binding& binding, int position) {
    if (++polls_ % kPollsPerClock != 0 && polls_ != kPollsToFirstLook && !armed_) return Status();
    armed_ = false;
    return Check(binding, position);
  }
  // The same where the operation waits for the caller, who has not declared input chunk `chunk` ready yet.
  Status LookForInput(const Binding& binding, uint32_t chunk) { return Look(binding, -1 - static_cast<int>(chunk)); }
  // Something has moved: the next wait begins now.
  void Restart() {
    polls_ = 0;
    noticed_ = stands_still_ = false;
    waited_ = WaitedTime();
  }
  // The driving thread is about to sleep: the next look counts.
  void Arm() { armed_ = true; }
  // Whether the operation has stood still for a while since it was last asked.
  bool TakeStandstill() { return std::exchange(stands_still_, false); }

 private:
  // A blocked operation reads the clock once in so many polls, the first time after a few: a peer that was gone before
  // is found then, and a call that comes at the same time as the peers' does not pay for it.
  static constexpr uint32_t kPollsPerClock = 256;
  static constexpr uint32_t kPollsToFirstLook = 32;

  // `position`: below 0, -1 - chunk.
  Status Check(const Binding& binding, int position);
  Status CheckTime(const Binding& binding, int position, double waited);

  uint32_t polls_ = 0;
  bool armed_ = false;
  bool noticed_ = false;  // the user got a notice about the wait
  bool stands_still_ = false;
  WaitedTime waited_;
  std::chrono::steady_clock::time_point checked_{};  // also in earlier waits
};

}  // namespace axccl::exec
