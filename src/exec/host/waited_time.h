// How long a wait has lasted, as far as the thread that waits could look.
//
// Such a thread looks at least every kCheckInterval (waiting.h). Where two looks are much further apart, it did not
// run. Mostly the whole job was stopped: a batch system suspended it, its container was paused, or its virtual machine
// moved. The rank that it waits for goes on, too, perhaps a little later, and must get its chance. But the thread may
// also have had other work between all of its looks. So the time between two looks counts, but for kMostPerLook at
// most: a wait that nothing ends comes to any deadline. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace axccl::exec {

class WaitedTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMostPerLook{500};

  // The time up to a look. The first look begins the wait.
  Clock::duration At(Clock::time_point look) {
    if (looked_ != Clock::time_point()) waited_ += std::min<Clock::duration>(look - looked_, kMostPerLook);
    looked_ = look;
    return waited_;
  }

 private:
  Clock::time_point looked_{};
  Clock::duration waited_{0};
};

}  // namespace axccl::exec
