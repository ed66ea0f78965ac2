// The outputs of an operation that ranks of other processes may write to, and how it gets them back.
//
// Peers that mapped a buffer write into it, and a peer in the middle of a step continues to the end of the step. So a
// rank first publishes its failure, after which no peer begins a step on its buffers, and then waits for the running
// steps: for those of its own process through the queues, for those of other processes through BlockHeader::writing. A
// step takes about a millisecond. A process that is stopped in the middle of one, or runs a callback of the application
// there, may take forever; so after kPatience the rank takes back the pages of its outputs, and later writes have no
// effect.
//
// Part of an operation, used by the thread that drives it.
#pragma once

#include <chrono>

#include "src/device/host/scheduler.h"
#include "src/exec/host/operands.h"

namespace axccl::exec {

class Exposure {
 public:
  // Sets the call that runs now, or that none runs any more.
  void Update(const Binding& binding, bool running) {
    const Channel& channel = *binding.channel;
    const bool exposed =
        running && channel.members().plain_access() != tune::Access::kMapped && binding.prepared->program->plan->pushes;
    if (exposed != exposed_) channel.owner()->CountExposed(exposed);
    exposed_ = exposed;
  }
  // Whether ranks of other processes write into this rank's buffers, and this rank into theirs.
  bool exposed() const { return exposed_; }
  // The operation has failed: starts waiting for the others.
  void BeginLeaving();
  // Whether no rank writes to the outputs any more, or they were taken back.
  bool HasLeft(const Binding& binding, const Operands& operands);
  // Call when the last step is done. Memory is taken back in whole pages, and two operations may have outputs in the
  // same page: the peers' writes for this one may then be lost.
  Status CheckOutputs(const Binding& binding, const Operands& operands) const {
    return exposed_ ? FindTakenBack(binding, operands) : Status();
  }

 private:
  static Status FindTakenBack(const Binding& binding, const Operands& operands);

  bool exposed_ = false;
  device::host::StepsUnderWay others_;  // of this process
  std::chrono::steady_clock::time_point left_{};
};

}  // namespace axccl::exec
