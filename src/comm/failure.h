// The failure of a rank: the first one stays, here and in the rank's block, where its peers read it. A communicator
// that any rank has revoked has failed, too, as soon as the block says so.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/exec/channel/members.h"

namespace axccl::comm {

class RankFailure {
 public:
  // `rank`: whose block has the header.
  RankFailure(int rank, exec::BlockHeader* header) : rank_(rank), header_(header) {}

  // Sequentially consistent, as are failures and what a rank says of the steps that it is in: a step that begins sees
  // the failure, or whoever waits for steps to end sees the step.
  bool failed() const { return failed_.load(std::memory_order_seq_cst) || revoked(); }
  // ok when there is none.
  Status Get() const;
  bool revoked() const { return revoked_by() >= 0; }
  // The rank, as far as is known here; -1: none.
  int revoked_by() const { return static_cast<int>(header_->revoked.load(std::memory_order_seq_cst)) - 1; }
  // Whether that is so, and Set has not been called.
  bool only_revoked() const { return revoked() && !failed_.load(std::memory_order_relaxed); }
  // Says so in the blocks of this rank and of all that it can address, and wakes them. `by`: the rank that has revoked
  // it.
  void Revoke(int by, const std::vector<exec::Member>& members) const;
  // Returns false when there was a failure already. Peers get `to_peers`.
  bool Set(const Status& status, const Status& to_peers);
  // The same; peers get a text that names this rank.
  bool Set(const Status& status) { return Set(status, NameRank(status)); }
  // Makes it known to all members: those of this machine wake, the others are sent it. Does not throw.
  void Publish(const std::vector<exec::Member>& members) const;

 private:
  Status NameRank(const Status& status) const;

  const int rank_;
  exec::BlockHeader* const header_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status failure_;
};

}  // namespace axccl::comm
