// Holds up a stream.
#pragma once

#include <atomic>

namespace axccl::tests {

struct Gate {
  std::atomic<bool> open{false};
  // For axcclLaunchHostFunc; `self`: the gate.
  static void Pass(void* self) { static_cast<Gate*>(self)->open.wait(false); }
  void Open() {
    open.store(true);
    open.notify_all();
  }
};

}  // namespace axccl::tests
