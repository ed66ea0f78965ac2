#include "src/exec/cuda/proxy.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <span>
#include <utility>

#include "src/base/detached_thread.h"
#include "src/base/service_fd.h"
#include "src/exec/channel/slot_stretch.h"

namespace axccl::exec {
namespace {

using kernels::cuda::ProxyRing;
using DeviceLine = kernels::cuda::Line;
using Clock = std::chrono::steady_clock;

// How long the thread looks without sleeping, and how often it looks otherwise.
constexpr std::chrono::milliseconds kBusy(2), kLook(1);
// Kernels may wait for places, so they get some before all that is posted has been sent.
constexpr uint32_t kPlacesAtOnce = ProxyRing::kEntries / 4;

// The thread that looks at the rings of this process. It lives as long as there are any.
class ProxyThread {
 public:
  // Never destroyed, because the thread may outlive static objects.
  static ProxyThread& Process() {
    static auto* const thread = new ProxyThread;
    return *thread;
  }

  Status Add(CudaProxy* proxy) {
    // The driver has been started by now, so this is called at exit before the driver takes the rings away.
    [[maybe_unused]] static const int registered = std::atexit([] { Process().End(); });
    const std::lock_guard lock(mutex_);
    proxies_.push_back(proxy);
    if (running_ || ended_) return Status();
    Status started = StartDetached("messages of GPUs", [this] { Main(); });
    running_ = started.ok();
    if (!running_) proxies_.pop_back();
    return started;
  }
  // From then on, the thread does not use it.
  void Remove(CudaProxy* proxy) {
    const std::lock_guard lock(mutex_);
    std::erase(proxies_, proxy);
    changed_.notify_one();
  }
  // The process exits: no ring is looked at any more. A forked child has no such thread, which may hold the lock.
  void End() {
    if (service::Forked()) return;
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  void Wake() {
    woken_.store(true, std::memory_order_release);
    changed_.notify_one();
  }

 private:
  void Main() {
    std::unique_lock lock(mutex_);
    Clock::time_point busy_until = Clock::now() + kBusy;
    while (!proxies_.empty() && !ended_) {
      bool any = woken_.exchange(false, std::memory_order_acquire);
      for (CudaProxy* const proxy : proxies_) any |= proxy->SendPosted();
      const Clock::time_point now = Clock::now();
      if (any) busy_until = now + kBusy;
      if (now >= busy_until) {
        changed_.wait_for(lock, kLook);
        continue;
      }
      lock.unlock();
      sched_yield();
      lock.lock();
    }
    running_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CudaProxy*> proxies_;
  bool running_ = false, ended_ = false;
  std::atomic<bool> woken_{false};
};

}  // namespace

CudaProxy::~CudaProxy() { ProxyThread::Process().Remove(this); }

Status CudaProxy::Start() { return ProxyThread::Process().Add(this); }

void CudaProxy::Stop() {
  ProxyThread::Process().Remove(this);
  const std::lock_guard lock(mutex_);
  ring_ = nullptr;
}

void CudaProxy::Wake() { ProxyThread::Process().Wake(); }

Status CudaProxy::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void CudaProxy::ClearLines(uint64_t begin, uint64_t end) {
  const DeviceLine zero{};
  const std::lock_guard lock(mutex_);
  (void)SendPostedLocked();
  for (size_t rank = 0; rank < far_.size(); ++rank) {
    std::set<uint64_t>& lines = waiting_[rank].lines;
    const auto first = lines.lower_bound(begin), last = lines.lower_bound(end);
    for (auto line = first; line != last; ++line) far_[rank].reach->Publish(far_[rank].block, {}, {*line, &zero});
    lines.erase(first, last);
  }
}

bool CudaProxy::SendPosted() {
  const std::lock_guard lock(mutex_);
  return SendPostedLocked();
}

bool CudaProxy::SendPostedLocked() {
  if (ring_ == nullptr) return false;
  const uint32_t before = taken_;
  Status sent = CatchAll("a message of a GPU", [this] {
    for (;;) {
      const Entry& entry = ring_->entries[taken_ % ProxyRing::kEntries];
      if (__atomic_load_n(&entry.number, __ATOMIC_ACQUIRE) != taken_ + 1) return Status();
      Take(entry);
      if (++taken_ % kPlacesAtOnce == 0) __atomic_store_n(&ring_->taken, taken_, __ATOMIC_RELEASE);
    }
  });
  if (taken_ != before) __atomic_store_n(&ring_->taken, taken_, __ATOMIC_RELEASE);
  if (!sent.ok()) status_ = std::move(sent);
  return taken_ != before;
}

uint32_t CudaProxy::AddChannel(const Channel* channel) {
  const std::lock_guard lock(mutex_);
  const auto free =
      std::find_if(channels_.begin(), channels_.end(), [](const auto& c) { return c.channel == nullptr; });
  const auto place = free != channels_.end() ? free : channels_.insert(free, Posting());
  place->channel = channel;
  place->recorded.assign(static_cast<size_t>(channel->size()), 0);
  place->copies = {};
  return static_cast<uint32_t>(place - channels_.begin());
}

void CudaProxy::RemoveChannel(uint32_t number) {
  const std::lock_guard lock(mutex_);
  (void)SendPostedLocked();
  channels_[number].channel = nullptr;
}

// As a peer would read it (CallLog::Compare). Returns false if the host has no record of that call.
bool CudaProxy::CopyRecord(const Channel& channel, uint32_t sequence, Posting::Copy* copy) {
  const OpRecord& record = *channel.own().layout.RecordOf(channel.own().block, sequence - 1);
  copy->sequence = 0;
  copy->words[0] = record.sequence.load(std::memory_order_acquire);
  if (static_cast<uint32_t>(copy->words[0]) != sequence) return false;
  for (size_t w = 0; w < OpRecord::kWords; ++w) copy->words[1 + w] = record.word[w].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != copy->words[0]) return false;
  copy->sequence = sequence;
  return true;
}

// The record of a call goes with the first line of it that a member gets, so that ranks whose calls differ can name
// both. The host keeps the records of the last calls only, and graphs have none.
void CudaProxy::SendRecord(const Entry& line) {
  Posting& posting = channels_[line.channel];
  const auto sequence = static_cast<uint32_t>(line.call >> 32);
  if (posting.channel == nullptr || posting.recorded[line.position] == sequence) return;
  posting.recorded[line.position] = sequence;
  Posting::Copy& copy = posting.copies[sequence % posting.copies.size()];
  if (copy.sequence != sequence && !CopyRecord(*posting.channel, sequence, &copy)) return;
  const Member& own = posting.channel->own();
  const Member& member = posting.channel->member(static_cast<int>(line.position));
  const uint64_t at = own.layout.OffsetOfRecord(sequence - 1) + offsetof(OpRecord, sequence);
  const Stretch stretch{at, sizeof(copy.words), false, true, reinterpret_cast<const std::byte*>(copy.words.data())};
  member.reach->PublishLater(member.mirror, {&stretch, 1}, transport::Reach::kNoLine);
}

void CudaProxy::Take(const Entry& entry) {
  const Far& far = far_[entry.rank];
  Waiting& waiting = waiting_[entry.rank];
  const auto send = [&](transport::Reach::LineAt line) {
    far.reach->Publish(far.block, std::span<const Stretch>(waiting.slots.data(), waiting.count), line);
    waiting.count = 0;
  };
  if (entry.bytes == 0) {
    DeviceLine line{};
    line.value = entry.value;
    line.signature = static_cast<uint32_t>(entry.call);
    line.sequence = static_cast<uint32_t>(entry.call >> 32);
    SendRecord(entry);
    if (entry.offset >= cleared_from_) waiting.lines.insert(entry.offset);
    return send({entry.offset, &line});
  }
  if (entry.on_device != 0) sent_from_device_.fetch_add(1, std::memory_order_relaxed);
  const Stretch slot{entry.offset, entry.bytes, entry.of_member != 0, false, nullptr, entry.on_device != 0};
  if (waiting.count > 0 && Extend(&waiting.slots[waiting.count - 1], slot)) return;
  if (waiting.count == waiting.slots.size()) send(transport::Reach::kNoLine);
  waiting.slots[waiting.count++] = slot;
}

}  // namespace axccl::exec
