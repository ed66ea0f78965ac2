// Shrinks: ranks of a communicator, some of which may be dead, agree on who is left, and these form a new one.
//
// Each rank names ranks that it leaves out. That is where its attempts begin; survivors.h says how ranks come to the
// same group, also if more of them die meanwhile. Where ranks on other machines cannot be reached, which may be alive
// and do the same, only one side goes on (HasQuorum), unless AXCCL_QUORUM=0.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/comm/comm_handle.h"
#include "src/comm/communicator.h"
#include "src/comm/survivors.h"

namespace axccl::comm {

// A call of one rank. Used by one thread; fails for all ranks when it is dropped before it has run.
class ShrinkCall {
 public:
  // Begins a call, in the order of the program, that leaves out at least `excluded` (ascending).
  static Result<std::shared_ptr<ShrinkCall>> Begin(const std::shared_ptr<Communicator>& parent,
                                                   const RankSet& excluded);

  Result<std::shared_ptr<Communicator>> Run(const Config& config, const std::atomic<bool>* abort);

 private:
  class Try;
  struct Attempted {
    Attempt attempt;
    LoggedCall call;
    std::shared_ptr<Communicator> formed;  // if only the others' last contributions are missing
  };

  Result<std::shared_ptr<Communicator>> Form(const Config& config, const std::atomic<bool>* abort);
  Status CheckQuorum();
  RankSet UnreachableRanks() const;
  Result<std::shared_ptr<Communicator>> Adopt(size_t index);

  std::shared_ptr<Communicator> parent_;
  std::shared_ptr<Try> now_;
  std::vector<Attempted> attempts_;  // the last one is `now_`
};

}  // namespace axccl::comm
