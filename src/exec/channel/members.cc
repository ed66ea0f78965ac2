#include "src/exec/channel/members.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/format.h"
#include "src/base/sizes.h"
#include "src/device/host/waiting.h"

namespace axccl::exec {
namespace {

plan::Placement PlacementOf(const std::vector<Member>& members) {
  std::vector<int> machine_of;
  for (const Member& member : members) machine_of.push_back(member.machine);
  return plan::Placement::Of(machine_of);
}

int SharersOf(const std::vector<Member>& members) {
  std::map<int, int> count;
  int most = 0;
  for (const Member& member : members) most = std::max(most, ++count[member.cores]);
  return most;
}

tune::Access PlainAccess(const transport::Reach& reach) {
  if (reach.addresses()) return tune::Access::kMapped;
  return reach.calls() ? tune::Access::kCall : tune::Access::kNone;
}

// Finds memory that a peer has taken, by the word that points to it.
Result<std::byte*> FindApart(const Member& peer, const std::atomic<uint64_t>& word, uint64_t bytes) {
  const uint64_t offset = word.load(std::memory_order_acquire);
  if (offset == 0 || offset % kCacheLine != 0)
    return MakeStatus(Code::kRemoteError, "rank %d announced something that is not its part of a message", peer.rank);
  return peer.reach->At(offset, bytes);
}

// The published failure of a member. Sequentially consistent: the member publishes it before it looks at running steps,
// and every step looks for it (Operation::Leave).
Status FailureOf(const Member& peer) {
  const uint32_t error = peer.header->error.load(std::memory_order_seq_cst);
  const uint32_t by = peer.header->revoked.load(std::memory_order_seq_cst);
  if (error == 0 && by == 0) return Status();
  if (error == 0) return MakeStatus(Code::kRemoteError, "rank %u revoked the communicator", by - 1);
  char text[kErrorText];
  std::copy_n(peer.header->error_text, kErrorText, text);
  text[kErrorText - 1] = 0;
  const uint32_t number = CodeInError(error);
  const auto code = number <= static_cast<uint32_t>(Code::kTimeout) ? static_cast<Code>(number) : Code::kRemoteError;
  return Status(code, Printable(text));  // the peer wrote it
}

}  // namespace

void WakeSleeping(const Member& member) {
  const uint32_t doorbell = member.header->waiter.exchange(0, std::memory_order_seq_cst);
  if (doorbell != 0) device::host::RingDoorbell(member.reach->page(), static_cast<int>(doorbell - 1));
}

Members::Members(ChannelOwner* owner, std::vector<Member> members, int self, Connector* connector)
    : owner_(owner),
      members_(std::move(members)),
      self_(self),
      own_(&members_[static_cast<size_t>(self)]),
      placement_(PlacementOf(members_)),
      sharers_(SharersOf(members_)),
      connector_(connector),
      home_(connector) {
  for (int p = 0; p < size(); ++p) {
    const transport::Reach& reach = *(*this)[p].reach;
    plain_access_ = std::min(plain_access_, PlainAccess(reach));
    if (reach.inbox() == nullptr) continue;
    inbox_ = reach.inbox();
    mirrored_.push_back(p);
  }
  has_scratch_ = members_[0].layout.apart == 0 || members_[0].scratch != nullptr;
  NoteReach();
}

Result<int> Members::Connect() {
  if (connector_ == nullptr) return -1;
  AXCCL_ASSIGN_OR_RETURN(const int missing, connector_->Connect(&members_));
  if (missing < 0) connector_ = nullptr;
  NoteReach();
  return missing;
}

Result<int> Members::TakeArea() {
  AXCCL_ASSIGN_OR_RETURN(const int area, connector_->TakeArea());
  members_[static_cast<size_t>(self_)].area = area;
  return area;
}

// For a pair: the first member sends, and has the scratch.
Status Members::FindScratch(int position) {
  Member& sender = members_[0];
  if (position != 0 || has_scratch_) return Status();
  AXCCL_ASSIGN_OR_RETURN(sender.scratch,
                         FindApart(sender, sender.layout.ApartOf(sender.block)->scratch, sender.layout.scratch_bytes));
  has_scratch_ = true;
  NoteReach();
  return Status();
}

Result<std::atomic<uint64_t>*> Members::AnnouncementOf(int position, uint64_t sequence) {
  Member& of = members_[static_cast<size_t>(position)];
  if (of.layout.apart == 0) return of.layout.AnnouncementOf(of.block, sequence);
  const uint64_t bytes = 2 * of.layout.announcement_words * sizeof(uint64_t);
  std::atomic<uint64_t>& word = of.layout.ApartOf(of.block)->announcements;
  if (of.announcements == nullptr && position == self_) {
    uint64_t offset = 0;
    AXCCL_ASSIGN_OR_RETURN(of.announcements, owner_->TakeShared(bytes, &offset));
    word.store(offset, std::memory_order_release);
  } else if (of.announcements == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(of.announcements, FindApart(of, word, bytes));
  }
  return of.layout.AnnouncementOf(of.announcements, sequence);
}

std::span<const int> Members::Mirrored(int position) const {
  if (position == plan::kAllPeers) return mirrored_;
  const auto [first, last] = std::equal_range(mirrored_.begin(), mirrored_.end(), position);
  return {first, last};
}

Status Members::LossOf(int position) const {
  const Member& peer = (*this)[position];
  return MakeStatus(Code::kRemoteError, "%s; abort the communicator and make a new one without it",
                    peer.reach->DescribeLoss(own().rank, peer.rank).c_str());
}

Status Members::CheckFailures() const {
  for (const Member& peer : members_) {
    Status failure = FailureOf(peer);
    if (failure.code() != Code::kRemoteError && !failure.ok()) return failure;
  }
  return Status();
}

Status Members::CheckOwners() const {
  for (int p = 0; p < size(); ++p) {
    if (p != self_) AXCCL_RETURN_IF_ERROR(FailureOf((*this)[p]));
  }
  return Status();
}

Status Members::ReasonOf(Status left) const {
  if (left.code() == Code::kRemoteError) AXCCL_RETURN_IF_ERROR(CheckOwners());
  return left;
}

Status Members::Check(int waiting_for) const {
  for (int p = 0; p < size(); ++p) {
    if (p == self_) continue;
    const Member& peer = (*this)[p];
    AXCCL_RETURN_IF_ERROR(FailureOf(peer));
    const bool closed = peer.header->closed.load(std::memory_order_acquire) != 0;
    if (closed && p == waiting_for)
      return MakeStatus(Code::kRemoteError,
                        "rank %d waits for rank %d, which has destroyed or aborted its communicator", own().rank,
                        peer.rank);
    if (!closed && peer.reach->Died()) return LossOf(p);
  }
  return Status();
}

}  // namespace axccl::exec
