// The rules that a schedule must meet before the other checks can run, and the table of its signals.
//
// A schedule that passes is safe to walk: every rank, lane, block, part, slot and endpoint that an operation names
// exists, every wait has the signal that causes it, and the schedule is small enough that the other checks are bounded
// in time and memory.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::verify {

// All signals of one turn. Signals of an endpoint are numbered first, first + 1, ... in the order in which they are
// made.
class SignalTable {
 public:
  struct Endpoint {
    uint32_t first = 0;
    uint32_t count = 0;
    int16_t peer = 0;  // as in the signals; meaningless when there are none
  };

  SignalTable() = default;
  explicit SignalTable(const plan::Schedule& schedule);

  size_t IndexOf(int rank, int lane, int endpoint) const {
    return (static_cast<size_t>(rank) * lanes_ + lane) * endpoints_ + endpoint;
  }
  const Endpoint& At(size_t index) const { return endpoint_[index]; }
  Endpoint& At(size_t index) { return endpoint_[index]; }
  size_t size() const { return endpoint_.size(); }

  // Index in its lane of the operation that makes signal number `signal`.
  std::vector<uint32_t> op_index;

 private:
  size_t lanes_ = 0;
  size_t endpoints_ = 0;
  std::vector<Endpoint> endpoint_;
};

// Returns kInvalidArgument when a rule is broken. Fills the table.
Status CheckStructure(const plan::Schedule& schedule, SignalTable* signals);

}  // namespace axccl::verify
