#include "src/exec/cuda/waits.h"

#include <algorithm>

#include "src/base/log.h"

namespace axccl::exec {
namespace {

using kernels::cuda::Wait;

// Signals that a member sent before it left have arrived by then. A strand first looks and then reports, so of two
// reports after the member was gone, the second includes a look after that.
constexpr int kLooksAtGone = 3;

void Count(const Wait& record, DeviceStatistics* operations) {
  operations->ll += __atomic_load_n(&record.packed[0], __ATOMIC_RELAXED);
  operations->ll128 += __atomic_load_n(&record.packed[1], __ATOMIC_RELAXED);
  operations->mapped += __atomic_load_n(&record.mapped, __ATOMIC_RELAXED);
  operations->cramped += __atomic_load_n(&record.cramped, __ATOMIC_RELAXED);
  operations->grown += __atomic_load_n(&record.grown, __ATOMIC_RELAXED);
}

}  // namespace

Result<Wait*> CudaWaits::Enter(const Channel* channel) {
  std::lock_guard lock(mutex_);
  const auto free =
      std::find_if(channels_.begin(), channels_.end(), [](const Watched& w) { return w.channel == nullptr; });
  if (free == channels_.end())
    return MakeStatus(Code::kInternalError, "rank %d uses more than %zu channels of its CUDA device",
                      channel->own().rank, channels_.size());
  *free = Watched();
  free->channel = channel;
  if (channel->members().connector() != nullptr) free->created = channel->members().connector()->Name();
  Wait* const record = records_ + (free - channels_.begin());
  __atomic_store_n(&record->look, 0, __ATOMIC_RELAXED);
  for (uint64_t* count : {&record->packed[0], &record->packed[1], &record->mapped, &record->cramped, &record->grown})
    __atomic_store_n(count, 0, __ATOMIC_RELAXED);
  return record;
}

void CudaWaits::Leave(const Wait* record) {
  std::lock_guard lock(mutex_);
  channels_[static_cast<size_t>(record - records_)].channel = nullptr;
  Count(*record, &counted_before_);
}

DeviceStatistics CudaWaits::counts() {
  std::lock_guard lock(mutex_);
  DeviceStatistics operations = counted_before_;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].channel != nullptr) Count(records_[i], &operations);
  }
  return operations;
}

void CudaWaits::Misses(const Wait* record, int position) {
  std::lock_guard lock(mutex_);
  channels_[static_cast<size_t>(record - records_)].missing = position;
}

void CudaWaits::Allow(const Wait* record, uint64_t sequence, double seconds) {
  std::lock_guard lock(mutex_);
  // Kernels report numbers of 32 bits. Launches run ahead by less than these records.
  constexpr size_t kMost = 4096;
  std::map<uint32_t, double>& allowed = channels_[static_cast<size_t>(record - records_)].allowed;
  if (allowed.size() >= kMost) allowed.erase(allowed.begin());
  allowed[static_cast<uint32_t>(sequence)] = seconds;
}

void CudaWaits::Shows(const Wait* record, const StartStamps& stamps) {
  std::lock_guard lock(mutex_);
  channels_[static_cast<size_t>(record - records_)].stamps = stamps;
}

void CudaWaits::Replays(const Wait* record) {
  std::lock_guard lock(mutex_);
  channels_[static_cast<size_t>(record - records_)].replays = true;
}

Status CudaWaits::Check(std::mutex& calls) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < channels_.size(); ++i) {
    Watched& watched = channels_[i];
    if (watched.channel == nullptr) continue;
    const uint64_t look = __atomic_load_n(&records_[i].look, __ATOMIC_ACQUIRE);
    if (look == watched.look) continue;
    if (!watched.waits || Wait::SequenceOf(look) != Wait::SequenceOf(watched.look)) {
      watched.waits = true;
      watched.since = Clock::now();
      watched.gone_for = 0;
      watched.notified = false;
      const auto now = watched.allowed.lower_bound(static_cast<uint32_t>(Wait::SequenceOf(look)));
      watched.allowed.erase(watched.allowed.begin(), now);
    }
    watched.look = look;
    AXCCL_RETURN_IF_ERROR(Judge(records_[i], &watched, calls));
  }
  return Status();
}

Status CudaWaits::Judge(const Wait& record, Watched* watched, std::mutex& calls) const {
  const Channel& channel = *watched->channel;
  AXCCL_RETURN_IF_ERROR(channel.members().Check(-1));
  const uint32_t position = Wait::PositionOf(watched->look);
  const bool unmet = position == Wait::kUnmet && watched->missing >= 0;
  const bool on_peer = position < static_cast<uint32_t>(channel.size());
  if (!unmet && !on_peer && position != Wait::kInput) return Status();
  if (on_peer) {
    const Member& peer = channel.member(static_cast<int>(position));
    const Status left = channel.members().CheckLeft(static_cast<int>(position));
    const bool gone = peer.header->closed.load(std::memory_order_acquire) != 0 || !left.ok();
    watched->gone_for = !gone ? 0 : watched->gone == position ? watched->gone_for + 1 : 1;
    watched->gone = position;
    if (watched->gone_for >= kLooksAtGone)
      return left.ok() ? channel.members().Check(static_cast<int>(position)) : left;
  }
  if (!Overdue(*watched)) {
    Notify(record, watched);
    return Status();
  }
  if (on_peer) {
    if (const std::unique_lock lock(calls, std::try_to_lock); lock.owns_lock())
      AXCCL_RETURN_IF_ERROR(channel.log().FindMismatch());
  }
  return TimedOut(record, *watched);
}

double CudaWaits::SecondsSince(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

Deadline CudaWaits::DeadlineOf(const Watched& watched) {
  const auto allowed = watched.allowed.find(static_cast<uint32_t>(Wait::SequenceOf(watched.look)));
  if (allowed != watched.allowed.end() && !watched.replays) return {allowed->second, "of the call's options"};
  return watched.channel->owner()->deadline();
}

bool CudaWaits::Overdue(const Watched& watched) {
  const double seconds = DeadlineOf(watched).seconds;
  return seconds > 0 && SecondsSince(watched.since) > seconds;
}

void CudaWaits::Notify(const Wait& record, Watched* watched) const {
  if (watched->notified || notice_seconds_ <= 0 || SecondsSince(watched->since) <= notice_seconds_) return;
  watched->notified = true;
  log::WriteNotice("rank %d has waited %.3g s for %s%s; it goes on waiting (AXCCL_TIMEOUT, AXCCL_WAIT_NOTICE)",
                   watched->channel->own().rank, notice_seconds_, DescribeWait(record, *watched).c_str(),
                   Absent(*watched).c_str());
}

std::string CudaWaits::DescribeWait(const Wait& record, const Watched& watched) const {
  const Channel& channel = *watched.channel;
  const uint32_t position = Wait::PositionOf(watched.look);
  const uint64_t sequence = Wait::SequenceOf(watched.look);
  const bool unmet = position == Wait::kUnmet;
  if (position == Wait::kInput) {
    const auto chunk = static_cast<unsigned long long>(__atomic_load_n(&record.count, __ATOMIC_RELAXED));
    return "chunk " + std::to_string(chunk) + " of its input to be declared ready, in " +
           channel.log().TextOf(sequence) + " (operation " + std::to_string(sequence) + ")";
  }
  const int waiting_for = unmet ? watched.missing : static_cast<int>(position);
  std::string call = unmet || watched.replays ? "" : channel.log().TextOf(sequence);
  if (call.empty())
    call =
        DescribeCall(__atomic_load_n(&record.call, __ATOMIC_RELAXED), __atomic_load_n(&record.count, __ATOMIC_RELAXED));
  const std::string rank = "rank " + std::to_string(channel.member(waiting_for).rank);
  if (unmet) return rank + " to create and use " + watched.created + ", in " + call;
  return rank + " in " + call + " (operation " + std::to_string(sequence) + ")";
}

std::string CudaWaits::Absent(const Watched& watched) const {
  const Channel& channel = *watched.channel;
  if (Wait::PositionOf(watched.look) == Wait::kUnmet)
    return "; all ranks of a group must create its channel and take part in its operations";
  if (Wait::PositionOf(watched.look) == Wait::kInput || watched.replays) return "";
  return channel.log().Absent(Wait::SequenceOf(watched.look));
}

Status CudaWaits::TimedOut(const Wait& record, const Watched& watched) const {
  const Deadline limit = DeadlineOf(watched);
  return MakeStatus(Code::kTimeout, "rank %d waited %.3g s for %s: deadline %s passed%s%s", watched.channel->own().rank,
                    limit.seconds, DescribeWait(record, watched).c_str(), limit.source, Absent(watched).c_str(),
                    watched.stamps.ChunksThere().c_str());
}

}  // namespace axccl::exec
