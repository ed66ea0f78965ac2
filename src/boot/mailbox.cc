#include "src/boot/mailbox.h"

#include <algorithm>
#include <utility>

namespace axccl::boot {

void Mailbox::PutStart(const StartBody& start) {
  std::lock_guard lock(mutex_);
  if (start.parent.num_addresses != 0) start_ = start;
  --starts_awaited_;
  changed_.notify_all();
}

void Mailbox::PutLinks() {
  std::lock_guard lock(mutex_);
  linked_ = true;
  changed_.notify_all();
}

void Mailbox::PutBlocks(std::vector<std::byte> blocks) {
  std::lock_guard lock(mutex_);
  blocks_ = std::move(blocks);
  changed_.notify_all();
}

void Mailbox::PutFailure(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = reason;
  changed_.notify_all();
}

void Mailbox::ExpectStart() {
  std::lock_guard lock(mutex_);
  ++starts_awaited_;
}

void Mailbox::ExpectBlocks() {
  std::lock_guard lock(mutex_);
  blocks_.clear();
}

bool Mailbox::Has(News news) const {
  switch (news) {
    case News::kStart:
      return starts_awaited_ == 0;
    case News::kLinks:
      return linked_;
    case News::kBlocks:
      return !blocks_.empty();
    case News::kEnd:
      break;
  }
  return false;
}

Status Mailbox::Await(News news, const Patience& patience, const char* what) {
  constexpr auto kSlice = std::chrono::milliseconds(10);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (Has(news)) return Status();  // what has come belongs to the rank, whatever has happened since
    if (!failure_.ok()) return failure_;
    if (patience.stop && patience.stop()) {
      return WaitFailed(service::Wait::kStopped, rank_, nranks_, "", what);
    }
    const auto now = Clock::now();
    if (now >= patience.deadline) return WaitFailed(service::Wait::kTimeout, rank_, nranks_, "", what);
    const auto slice = patience.stop ? std::min(patience.deadline, now + kSlice)
                                     : std::min(patience.deadline, now + std::chrono::hours(1));
    changed_.wait_until(lock, slice);
  }
}

Status Mailbox::AwaitReason(News news, const Status& seen, const service::Stop& stop) {
  const Status status = Await(news, Patience{Clock::now() + kGrace, stop}, "");
  return status.code() == Code::kTimeout && failure().ok() ? seen : status;
}

StartBody Mailbox::start() {
  std::lock_guard lock(mutex_);
  return start_;
}

Status Mailbox::CopyBlocks(std::span<std::byte> all) {
  std::lock_guard lock(mutex_);
  if (blocks_.size() != all.size())
    return MakeStatus(Code::kInternalError, "exchange of %zu bytes gave %zu", all.size(), blocks_.size());
  std::copy(blocks_.begin(), blocks_.end(), all.begin());
  return Status();
}

Status Mailbox::failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace axccl::boot
