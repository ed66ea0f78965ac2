#include "src/comm/control_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/hash.h"
#include "src/comm/communicator.h"
#include "src/device/host/scheduler.h"

namespace axccl::comm {
namespace {

using device::host::Poll;
using device::host::Scheduler;

// The tag of a round; never 0. Calls of different kinds may have the same name, until a rank that waits sees that.
uint64_t TagOf(Making what, uint64_t name, uint64_t round) {
  return Mix(Mix(name, static_cast<uint64_t>(what)), round) | 1;
}

void StoreWords(const void* from, size_t bytes, std::atomic<uint64_t>* words) {
  const auto* plain = static_cast<const std::byte*>(from);
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, plain + done, std::min(sizeof(word), bytes - done));
    words[done / sizeof(word)].store(word, std::memory_order_relaxed);
  }
}

void LoadWords(const std::atomic<uint64_t>* words, size_t bytes, void* to) {
  auto* const plain = static_cast<std::byte*>(to);
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
    const uint64_t word = words[done / sizeof(word)].load(std::memory_order_relaxed);
    std::memcpy(plain + done, &word, std::min(sizeof(word), bytes - done));
  }
}

}  // namespace

// ---- slots ----

ControlExchange::ControlExchange(const std::vector<exec::Member>* members, std::byte* block,
                                 const exec::BlockLayout& layout, int self)
    : members_(members), block_(block), layout_(layout), self_(self), log_(members, block, layout, self) {}

std::byte* ControlExchange::BlockOf(int rank) const {
  return rank == self_ ? block_ : (*members_)[static_cast<size_t>(rank)].block;
}

// A failed call's slot is needed by no rank, though it may still be on its way to other machines.
bool ControlExchange::Free(const Use& use) const {
  if (use.name == 0) return true;
  if (!use.left) return false;
  return std::all_of(use.group.begin(), use.group.end(), [&](int rank) {
    const exec::Member& member = (*members_)[static_cast<size_t>(rank)];
    if (rank == self_ || member.reach->Died()) return true;
    if (use.failed) return !member.reach->sending();
    return member.header->closed.load(std::memory_order_acquire) != 0 || log_.Ended(rank, use.name);
  });
}

int ControlExchange::TryTake(const LoggedCall& call) {
  if (!log_.IsTurnOf(call)) return -1;
  std::lock_guard lock(mutex_);
  const auto use = std::find_if(uses_.begin(), uses_.end(), [this](const Use& other) { return Free(other); });
  if (use == uses_.end()) return -1;
  *use = Use{call.name, call.group, false, false};
  return static_cast<int>(use - uses_.begin());
}

void ControlExchange::Leave(int slot, bool failed) {
  std::lock_guard lock(mutex_);
  Use& use = uses_[static_cast<size_t>(slot)];
  use.left = true;
  use.failed = failed;
}

void ControlExchange::Contribute(int slot, const LoggedCall& call, uint64_t round, const void* data, size_t bytes) {
  std::atomic<uint64_t>* const words = layout_.ContributionOf(block_, slot, round);
  words[0].store(0, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_release);  // before what follows, because other ranks may be reading
  StoreWords(data, bytes, words + 1);
  words[0].store(TagOf(call.what, call.name, round), std::memory_order_seq_cst);
  const auto offset = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(words) - block_);
  const transport::Reach::Stretch stretch{offset, static_cast<uint32_t>(sizeof(uint64_t) + bytes), false, true};
  for (const int rank : call.group) {
    log_.Tell((*members_)[static_cast<size_t>(rank)], call, {&stretch, 1}, transport::Reach::kNoLine);
  }
}

bool ControlExchange::Read(int rank, Making what, uint64_t name, uint64_t round, void* data, size_t bytes) const {
  const uint64_t tag = TagOf(what, name, round);
  for (int slot = 0; slot < exec::kControlSlots; ++slot) {
    const std::atomic<uint64_t>* const words = layout_.ContributionOf(BlockOf(rank), slot, round);
    if (words[0].load(std::memory_order_seq_cst) != tag) continue;
    LoadWords(words + 1, bytes, data);
    // A rank that gives up releases its slot at once.
    std::atomic_thread_fence(std::memory_order_acquire);
    return words[0].load(std::memory_order_relaxed) == tag;
  }
  return false;
}

// ---- calls ----

// Waits, as work of the device's queue, until every member's contribution is there. Notes who goes meanwhile. Owns what
// it reads, because another thread may be in it when its own thread has given up.
class MakingCall::Wait : public device::host::Work {
 public:
  Wait(std::shared_ptr<Communicator> comm, const LoggedCall& call, uint64_t round, size_t bytes)
      : comm_(std::move(comm)),
        group_(call.group),
        what_(call.what),
        name_(call.name),
        round_(round),
        bytes_(bytes),
        found_(group_.size()),
        gone_(group_.size()),
        data_(bytes * group_.size()) {}

  Poll Progress() override {
    std::lock_guard lock(mutex_);
    if (cancelled_) return Poll::kDone;
    bool all = true;
    for (size_t i = 0; i < group_.size(); ++i) {
      if (found_[i]) continue;
      // First, because what it wrote before it went counts.
      const bool gone = !gone_[i] && IsGone(comm_->members()[static_cast<size_t>(group_[i])]);
      found_[i] = comm_->control().Read(group_[i], what_, name_, round_, data_.data() + i * bytes_, bytes_);
      all &= found_[i];
      if (found_[i] || !gone) continue;
      gone_[i] = true;
      any_gone_.store(true, std::memory_order_release);
    }
    if (!all) return Poll::kBlocked;
    done_.store(true, std::memory_order_release);
    return Poll::kDone;
  }
  void Arm(int doorbell) override {
    comm_->members()[static_cast<size_t>(comm_->identity().rank)].header->waiter.store(
        static_cast<uint32_t>(doorbell) + 1, std::memory_order_seq_cst);
  }
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Whether one has gone since the last time.
  bool TakeGone() { return any_gone_.load(std::memory_order_acquire) && any_gone_.exchange(false); }
  void Cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  // Valid once it is done.
  const std::vector<std::byte>& data() const { return data_; }
  std::vector<int> Missing() {
    std::lock_guard lock(mutex_);
    std::vector<int> missing;
    for (size_t i = 0; i < group_.size(); ++i) {
      if (!found_[i]) missing.push_back(group_[i]);
    }
    return missing;
  }

 private:
  const std::shared_ptr<Communicator> comm_;
  const std::vector<int> group_;
  const Making what_;
  const uint64_t name_, round_;
  const size_t bytes_;
  std::mutex mutex_;
  std::vector<bool> found_, gone_;
  std::vector<std::byte> data_;
  bool cancelled_ = false;
  std::atomic<bool> done_{false}, any_gone_{false};
};

MakingCall::MakingCall(std::shared_ptr<Communicator> comm) : comm_(std::move(comm)) {}

Status MakingCall::Begin(Making what, std::vector<int> group) {
  AXCCL_ASSIGN_OR_RETURN(call_, comm_->control().log().Begin(what, std::move(group)));
  ended_ = false;
  return Status();
}

MakingCall::~MakingCall() {
  if (!ended_) Fail(MakeStatus(Code::kInvalidUsage, "%s was not carried out, as its group failed", NameOf(call_.what)));
}

void MakingCall::SetLimits(Clock::time_point deadline, const std::atomic<bool>* abort) {
  deadline_ = deadline;
  abort_ = abort;
}

Trouble MakingCall::WhyStop(const std::vector<int>& missing) {
  Trouble trouble = TroubleAmong(missing);
  if (trouble.why.ok() && Clock::now() >= deadline_) return comm_->control().log().NotInTime(call_, missing);
  return trouble;
}

Trouble MakingCall::TroubleAmong(const std::vector<int>& missing) {
  ControlLog& log = comm_->control().log();
  Trouble trouble = log.FindTrouble(&call_, missing);
  if (!trouble.why.ok()) return trouble;
  for (const int rank : missing) {
    const exec::Member& member = comm_->members()[static_cast<size_t>(rank)];
    if (rank == comm_->identity().rank) continue;
    const bool closed = member.header->closed.load(std::memory_order_acquire) != 0;
    if (closed || member.reach->Died())
      return {MakeStatus(Code::kRemoteError, "rank %d (pid %u) %s while %s was being made", rank, member.reach->pid(),
                         closed ? "destroyed its communicator" : "died", ProductOf(call_.what))};
    if (!comm_->revoked() && exec::HasFailed(*member.header))
      return {MakeStatus(Code::kRemoteError, "the communicator of rank %d failed while %s was being made from it", rank,
                         ProductOf(call_.what))};
  }
  if (const Trouble aborted = Aborted(); !aborted.why.ok()) return aborted;
  if (comm_->failed() && !comm_->revoked()) {
    const Status failure = comm_->Failure();
    return {MakeStatus(failure.code(), "the communicator of rank %d failed while %s was being made from it: %.*s",
                       comm_->identity().rank, ProductOf(call_.what), static_cast<int>(failure.message().size()),
                       failure.message().data())};
  }
  return {};
}

Trouble MakingCall::Aborted() const {
  if (abort_ == nullptr || !abort_->load(std::memory_order_relaxed)) return {};
  return {MakeStatus(Code::kInvalidUsage, "rank %d aborted while %s was being made", comm_->identity().rank,
                     ProductOf(call_.what))};
}

// Once one rank has finished, all have met, so the state of their communicator is no longer a reason to stop.
Status MakingCall::WhyBroken() {
  Trouble trouble;
  const auto finished = [this](int rank) { return comm_->control().log().Finished(rank, call_.name); };
  const auto why = [&]() -> Trouble {
    const Trouble found = TroubleAmong(call_.group);
    return std::any_of(call_.group.begin(), call_.group.end(), finished) ? Aborted() : found;
  };
  (void)MustStop(why, &trouble);
  return trouble.why;
}

// If memory runs out while checking, stops for that reason.
template <class Why>
bool MakingCall::MustStop(const Why& why, Trouble* trouble) const {
  const Status asked = CatchAll(NameOf(call_.what), [&] { return *trouble = why(), Status(); });
  if (!asked.ok()) *trouble = comm_->control().log().GivenUp(asked);
  return !trouble->why.ok();
}

// Waits for a slot if there is none.
Status MakingCall::TakeSlot() {
  Trouble trouble;
  const bool taken = Scheduler::Process().Wait(
      nullptr, [&] { return slot_ >= 0 || (slot_ = comm_->control().TryTake(call_)) >= 0; },
      [&] { return MustStop([&] { return WhyStop(call_.group); }, &trouble); });
  if (taken) return Status();
  End(trouble);
  return trouble.why;
}

Status MakingCall::AllGather(const void* mine, size_t bytes, void* all) {
  if (bytes > exec::kControlBytes)
    return MakeStatus(Code::kInternalError, "%zu bytes do not fit into a control slot", bytes);
  if (slot_ < 0) AXCCL_RETURN_IF_ERROR(TakeSlot());
  const uint64_t round = round_++;
  comm_->control().Contribute(slot_, call_, round, mine, bytes);
  const auto wait = std::make_shared<Wait>(comm_, call_, round, bytes);
  auto item = std::make_unique<device::host::Item>();
  item->work = wait;
  device::host::Queue* const queue = comm_->host_device()->queue();
  // However the wait ends, no thread continues with what it has enqueued.
  struct CancelAtEnd {
    Wait* const wait;
    device::host::Queue* const queue;
    ~CancelAtEnd() {
      if (wait->done()) return;
      wait->Cancel();
      queue->Drive();
    }
  } const cancel{wait.get(), queue};
  queue->Push(std::move(item));
  Trouble trouble;
  const auto must_stop = [&] { return MustStop([&] { return WhyStop(wait->Missing()); }, &trouble); };
  // Who goes is a reason to look at once. But any reason may have come after what this rank waits for.
  while (!wait->done()) {
    const bool moved = Scheduler::Process().Wait(
        queue, [&] { return wait->done() || wait->TakeGone(); }, must_stop);
    if (wait->done() || (moved && !must_stop())) continue;
    if (wait->Progress() == Poll::kDone) queue->Drive();  // ends the item
    if (wait->done() || !must_stop()) continue;
    End(trouble);
    return trouble.why;
  }
  std::memcpy(all, wait->data().data(), wait->data().size());
  return Status();
}

void MakingCall::End(const Trouble& trouble) {
  ended_ = true;
  if (slot_ >= 0) comm_->control().Leave(std::exchange(slot_, -1), !trouble.why.ok());
  if (trouble.regroups) {
    comm_->control().log().Abandon(call_);
  } else if (trouble.why.ok()) {
    comm_->control().log().Finish(call_);
  } else {
    comm_->control().log().Fail(call_, trouble);
  }
  Scheduler::Process().Notify();  // calls may wait for a slot
}

void MakingCall::Fail(const Status& reason) {
  if (!ended_) End(comm_->control().log().GivenUp(reason));
}

void MakingCall::Finish() {
  if (!ended_) End({});
}

std::shared_ptr<MakingCall> MakingCall::Continue(std::vector<int> group) {
  auto rest = std::make_shared<MakingCall>(comm_);
  rest->call_ = comm_->control().log().Continue(call_, std::move(group));
  rest->ended_ = false;
  rest->SetLimits(deadline_, abort_);
  return rest;
}

Result<std::shared_ptr<MakingCall>> BeginMaking(const std::shared_ptr<Communicator>& comm, Making what,
                                                std::vector<int> group) {
  auto call = std::make_shared<MakingCall>(comm);
  AXCCL_RETURN_IF_ERROR(call->Begin(what, std::move(group)));
  return call;
}

}  // namespace axccl::comm
