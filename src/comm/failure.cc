#include "src/comm/failure.h"

#include "src/base/log.h"
#include "src/device/host/scheduler.h"

namespace axccl::comm {

Status RankFailure::Get() const {
  std::lock_guard lock(mutex_);
  if (failure_.ok() && revoked())
    return MakeStatus(Code::kRemoteError, "rank %d revoked the communicator", revoked_by());
  return failure_;
}

void RankFailure::Revoke(int by, const std::vector<exec::Member>& members) const {
  const auto mark = [by](exec::BlockHeader* header) {
    uint32_t none = 0;
    header->revoked.compare_exchange_strong(none, static_cast<uint32_t>(by) + 1, std::memory_order_seq_cst);
  };
  mark(header_);
  for (const exec::Member& member : members) {
    if (member.rank == rank_ || exec::IsMirror(member)) continue;
    mark(member.header);
    exec::WakeMember(member);
  }
  device::host::Scheduler::Process().Notify();
}

// The text names this rank unless it begins with the rank that did or found something, because limits of this rank are
// not limits of the peers.
Status RankFailure::NameRank(const Status& status) const {
  const std::string_view text = status.message();
  if (text.starts_with("rank ") || text.starts_with("mismatch")) return status;
  return MakeStatus(status.code(), "rank %d: %.*s", rank_, static_cast<int>(text.size()), text.data());
}

// The first text for peers stays, too. Peers that read this rank's buffers can see it before any thread here does, and
// therefore before the application gets its buffers back: see exec::Operation::ReadWhileOwned.
bool RankFailure::Set(const Status& status, const Status& to_peers) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return false;
  failure_ = status;
  to_peers.message().copy(header_->error_text, exec::kErrorText - 1);
  const uint32_t revoked = header_->revoked.load(std::memory_order_relaxed);
  header_->error.store(exec::ErrorWord(static_cast<uint32_t>(to_peers.code()), revoked), std::memory_order_seq_cst);
  // Peers that read the buffers see the failure before anything that the application writes afterwards.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  failed_.store(true, std::memory_order_seq_cst);
  return true;
}

// The failing code may be unwinding because memory ran out.
void RankFailure::Publish(const std::vector<exec::Member>& members) const {
  const transport::Reach::Stretch message{offsetof(exec::BlockHeader, error_text), exec::kErrorText, false, false};
  for (const exec::Member& member : members) {
    if (member.rank != rank_) exec::WakeMember(member);
    const Status sent = CatchAll("publishing a failure", [&] {
      member.reach->PublishState({&message, 1}, offsetof(exec::BlockHeader, error));
      return Status();
    });
    if (!sent.ok()) AXCCL_WARN("%s", sent.message().data());
  }
  device::host::Scheduler::Process().Notify();
}

}  // namespace axccl::comm
