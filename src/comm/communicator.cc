#include "src/comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "src/algo/algo.h"
#include "src/base/closer.h"
#include "src/base/log.h"
#include "src/comm/watchdog.h"
#include "src/device/host/waiting.h"
#include "src/verify/verify.h"
#include "transports/shm/attach.h"
#include "transports/shm/heap.h"

namespace axccl::comm {
namespace {

using device::host::Poll;
using device::host::Scheduler;

// Programs of the process. They depend on nothing but the key, so communicators share them; a process uses few.
struct ProgramCache {
  using Key = std::tuple<plan::Kind, int, int, std::string, int, int, plan::Placement>;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const exec::Program>> programs;
  std::map<Key, std::shared_ptr<const plan::Plan>> plans;  // rank -1
  double verify_seconds = 0;
};

ProgramCache& Programs() {
  static ProgramCache* cache = new ProgramCache;
  return *cache;
}

// What ranks hold of each other, at the end.
struct Remains {
  int rank;
  std::unique_ptr<exec::GpuRank> gpu;
  std::unique_ptr<Block> block;
  std::vector<exec::Member> members;
  std::vector<std::shared_ptr<transport::PeerProcess>> processes;
  bool failed = false;
};

// Ranks on other machines are told with a line of the block, and what they still have to get is waited for: nobody sends
// it once the process has ended. They hold nothing of this rank, so none of them has to let go.
void PartFromRemotes(Remains* remains) {
  constexpr std::chrono::milliseconds kPatience(10'000), kShortPatience(50);
  std::vector<std::shared_ptr<transport::RemoteRank>> remotes;
  for (const exec::Member& member : remains->members) {
    if (member.remote == nullptr) continue;
    auto& process = remains->processes[static_cast<size_t>(member.rank)];
    remotes.push_back(std::static_pointer_cast<transport::RemoteRank>(std::move(process)));
    process = nullptr;
  }
  remains->block->header()->closed.store(1, std::memory_order_seq_cst);
  for (const auto& remote : remotes) remote->Send(nullptr, {}, offsetof(exec::BlockHeader, closed));
  // Of a communicator that has failed it is why, which is worth a moment; all of them together, as aborting takes no longer.
  const auto limit = std::chrono::steady_clock::now() + (remains->failed ? kShortPatience : kPatience);
  for (const auto& remote : remotes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    remote->Flush(std::max(left, std::chrono::milliseconds(0)));
  }
  for (const auto& remote : remotes) remote->Detach();
  remains->block->KeepWhileSending(std::move(remotes));
}

void LetGo(Remains remains) {
  if (remains.gpu != nullptr) {
    remains.gpu->Disconnect();
    remains.block->Keep(std::shared_ptr<void>(std::move(remains.gpu)));
  }
  PartFromRemotes(&remains);
  for (const exec::Member& member : remains.members) {
    if (member.rank != remains.rank && member.remote == nullptr)
      remains.block->layout().ReleasedBy(member.block, remains.rank)->store(1, std::memory_order_release);
  }
  remains.processes[static_cast<size_t>(remains.rank)] = nullptr;
  std::vector<Holder> holders;
  for (auto& process : remains.processes) holders.push_back({std::move(process)});
  Block::Release(std::move(remains.block), std::move(holders));
}

// Where peers' memory is mapped. It is given a while, as programs may end next.
void LetGoInBackground(Remains remains) {
  constexpr std::chrono::milliseconds kPatience(100);
  auto work = std::make_shared<Remains>(std::move(remains));
  Closer::Process().Add([work] { LetGo(std::move(*work)); });
  (void)Closer::Process().Await(kPatience);
}

}  // namespace

double VerifySeconds() {
  std::lock_guard lock(Programs().mutex);
  return Programs().verify_seconds;
}

Communicator::Communicator(Identity identity, Settings settings, std::unique_ptr<tune::Chooser> chooser,
                           std::unique_ptr<Block> block, std::vector<exec::Member> members,
                           std::vector<std::shared_ptr<transport::PeerProcess>> processes,
                           std::unique_ptr<exec::GpuRank> gpu)
    : identity_(std::move(identity)),
      settings_(settings),
      chooser_(std::move(chooser)),
      block_(std::move(block)),
      members_(std::move(members)),
      processes_(std::move(processes)),
      device_(device::host::Device::Get(identity_.device.gpu ? 0 : identity_.device.ordinal)),
      gpu_(std::move(gpu)),
      launches_(std::make_shared<device::host::Timeline>()),
      channel_(this, members_, identity_.rank, launches_),
      pairs_(2 * static_cast<size_t>(identity_.ranks)) {
  channel_.group_order = settings_.group_order != 0;
  if (gpu_ != nullptr) Watch(this);
}

Communicator::~Communicator() {
  if (gpu_ != nullptr) {
    Unwatch(this);
    gpu_->WaitIdle();
    gpu_->ReleaseChannels();
  }
  block_->Keep(channels_.Close());
  Remains remains{identity_.rank, std::move(gpu_), std::move(block_), members_, std::move(processes_), failed()};
  const bool maps = remains.gpu != nullptr && (!channel_.all_same_process() || remains.gpu->on_host());
  maps ? LetGoInBackground(std::move(remains)) : LetGo(std::move(remains));
}

int Communicator::local_processes() const {
  std::set<const std::byte*> distinct;
  for (const exec::Member& member : members_) distinct.insert(member.process->heap());
  return static_cast<int>(distinct.size());
}

const char* Communicator::LinkName(int peer) const {
  const exec::Member& member = members_[static_cast<size_t>(peer)];
  if (peer == identity_.rank) return "self";
  if (gpu_ != nullptr) return gpu_->on_host() ? "pinned" : member.same_process ? "inproc" : "cuda_ipc";
  if (member.remote != nullptr) return "ucx";
  if (member.same_process) return "inproc";
  return member.call_copy ? "shm+cma" : "shm";
}

// A pair's group is (source, destination): position 0 sends.
std::vector<exec::Member> Communicator::PairMembers(int src, int dst) const {
  std::vector<exec::Member> pair{members_[static_cast<size_t>(src)], members_[static_cast<size_t>(dst)]};
  for (exec::Member& member : pair)
    member.layout = block_->layout().Pair(static_cast<uint32_t>(src), static_cast<uint32_t>(dst),
                                          static_cast<uint32_t>(member.rank));
  return pair;
}

exec::Channel* Communicator::PairChannel(int peer, bool sending) {
  std::lock_guard lock(pairs_mutex_);
  auto& pair = pairs_[2 * static_cast<size_t>(peer) + (sending ? 0 : 1)];
  if (pair == nullptr) {
    const int src = sending ? identity_.rank : peer, dst = sending ? peer : identity_.rank;
    pair = std::make_unique<exec::Channel>(this, PairMembers(src, dst), sending ? 0 : 1, launches_);
  }
  return pair.get();
}

Status Communicator::Failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Communicator::Fail(const Status& status) {
  {
    std::lock_guard lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
  }
  failed_.store(true, std::memory_order_seq_cst);
  AXCCL_WARN("communicator %s rank %d of %d: %.*s", identity_.name.c_str(), identity_.rank, identity_.ranks,
             static_cast<int>(status.message().size()), status.message().data());
  Interrupt();
  Publish(status);
}

// Tells the peers; the first word stays.
void Communicator::Publish(const Status& status) {
  if (published_.exchange(true, std::memory_order_relaxed)) return;
  exec::BlockHeader* header = block_->header();
  status.message().copy(header->error_text, exec::kErrorText - 1);
  header->error.store(static_cast<uint32_t>(status.code()), std::memory_order_seq_cst);
  const transport::RemoteRank::Stretch message{offsetof(exec::BlockHeader, error_text), exec::kErrorText, false, false};
  for (const exec::Member& member : members_) {
    if (member.rank != identity_.rank) exec::WakeMember(member);
    if (member.remote != nullptr) member.remote->Send(nullptr, {&message, 1}, offsetof(exec::BlockHeader, error));
  }
  Scheduler::Process().Notify();
}

Result<std::shared_ptr<const exec::Program>> Communicator::GetProgram(const plan::Contract& contract,
                                                                      std::string_view algorithm, int lanes, int rank,
                                                                      const plan::Placement& placement) {
  ProgramCache& cache = Programs();
  std::lock_guard lock(cache.mutex);
  const ProgramCache::Key key{contract.kind, contract.ranks, contract.root, std::string(algorithm), lanes, rank, placement};
  auto& program = cache.programs[key];
  if (program != nullptr) return program;
  ProgramCache::Key plan_key = key;
  std::get<5>(plan_key) = -1;
  auto& plan = cache.plans[plan_key];
  if (plan == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(plan::Schedule schedule, algo::Generate(contract, algorithm, lanes, placement));
    const auto start = std::chrono::steady_clock::now();
    AXCCL_ASSIGN_OR_RETURN(plan, verify::MakePlan(std::move(schedule)));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    cache.verify_seconds += seconds;
    AXCCL_INFO(kTuning, "plan %s: %s of %d ranks, root %d, %d lanes: verified in %.3f ms",
               plan::ToString(plan->hash).c_str(), plan->schedule.algorithm.c_str(), contract.ranks, contract.root, lanes,
               seconds * 1e3);
  }
  AXCCL_ASSIGN_OR_RETURN(program, exec::Program::Make(plan, rank));
  return program;
}

bool Communicator::InHeap(const void* p, size_t bytes, uint64_t* offset) const {
  const transport::PeerProcess* own = members_[static_cast<size_t>(identity_.rank)].process;
  const auto* begin = static_cast<const std::byte*>(p);
  if (begin < own->heap() || begin >= own->heap() + own->heap_bytes()) return false;
  auto heap = shm::Heap::Get();
  return heap.ok() && heap.value()->Contains(p, bytes, offset);
}

Status Communicator::CallRead(uint32_t pid, void* local, uint64_t remote, size_t bytes) {
  return shm::CallRead(pid, local, remote, bytes);
}

Status Communicator::CallWrite(uint32_t pid, const void* local, uint64_t remote, size_t bytes) {
  return shm::CallWrite(pid, local, remote, bytes);
}

// Operations that wait look after their peers themselves (Operation::SlowCheck, CudaWaits): a peer that leaves harms nobody
// who needs nothing from it. But calls that differ are everybody's error, also of those that have done their part of one.
Status Communicator::AsyncError() {
  if (!failed()) {
    Status status = channel_.CheckFailures();
    if (status.ok() && gpu_ != nullptr) status = gpu_->CheckReport();
    if (!status.ok()) Fail(status);
  }
  return failed() ? Failure() : Status();
}

void Communicator::Abort(const Status& reason) {
  {
    std::lock_guard lock(failure_mutex_);
    if (failure_.ok()) failure_ = reason;
  }
  failed_.store(true, std::memory_order_seq_cst);
  Interrupt();
  Publish(MakeStatus(Code::kRemoteError, "rank %d aborted its communicator", identity_.rank));
  // The step that may be under way here, or in a rank of this process that works on this rank's buffers, is the last one.
  for (const exec::Member& member : members_) {
    if (member.same_process) device::host::Device::Get(member.device)->queue()->Quiesce();
  }
  Scheduler::Process().Notify();
}

void Communicator::Interrupt() {
  if (gpu_ != nullptr) gpu_->Abort();
}

bool Communicator::WaitIdle(const std::atomic<bool>* give_up) {
  if (gpu_ != nullptr) gpu_->WaitIdle();
  std::vector<device::host::Mark> marks = channels_.Outstanding();
  marks.push_back({launches_, launches_->issued()});
  return Scheduler::Process().Wait(
      device_->queue(), [&] { return std::all_of(marks.begin(), marks.end(), [](const auto& m) { return m.Reached(); }); },
      [&] { return give_up != nullptr && give_up->load(std::memory_order_relaxed); });
}

// ---- control exchange ----

namespace {

// Waits, as work of the device's queue, until every member's contribution is there.
class ControlWait : public device::host::Work {
 public:
  ControlWait(const std::vector<exec::Member>* members, const exec::BlockLayout* layout, std::vector<int> group, int self,
              uint64_t tag)
      : members_(members), layout_(layout), group_(std::move(group)), self_(self), tag_(tag), found_(group_.size()) {}

  Poll Progress() override {
    if (cancelled_.load(std::memory_order_acquire)) return Poll::kDone;
    for (size_t i = 0; i < group_.size(); ++i) {
      if (found_[i] == nullptr) found_[i] = Find((*members_)[static_cast<size_t>(group_[i])].block);
      if (found_[i] == nullptr) return Poll::kBlocked;
    }
    done_.store(true, std::memory_order_release);
    return Poll::kDone;
  }
  void Arm(int doorbell) override {
    (*members_)[static_cast<size_t>(self_)].header->waiter.store(static_cast<uint32_t>(doorbell) + 1,
                                                                   std::memory_order_seq_cst);
  }
  bool done() const { return done_.load(std::memory_order_acquire); }
  void Cancel() { cancelled_.store(true, std::memory_order_release); }
  const exec::ControlSlot* found(size_t i) const { return found_[i]; }

 private:
  const exec::ControlSlot* Find(std::byte* block) const {
    const exec::ControlSlot* slots = layout_->ControlSlots(block);
    for (int i = 0; i < exec::kControlSlots; ++i) {
      if (slots[i].tag.load(std::memory_order_seq_cst) == tag_) return &slots[i];
    }
    return nullptr;
  }

  const std::vector<exec::Member>* const members_;
  const exec::BlockLayout* const layout_;
  const std::vector<int> group_;
  const int self_;
  const uint64_t tag_;
  std::vector<const exec::ControlSlot*> found_;
  std::atomic<bool> done_{false}, cancelled_{false};
};

// Names the `count`-th exchange of a group; never 0.
uint64_t ControlTag(const std::vector<int>& group, uint64_t count) {
  uint64_t tag = count * 0x9e3779b97f4a7c15ull + group.size();
  for (const int rank : group) {
    tag = (tag ^ static_cast<uint64_t>(rank)) * 0xff51afd7ed558ccdull;
    tag ^= tag >> 32;
  }
  return tag | 1;
}

}  // namespace

Status Communicator::CheckGroup(const std::vector<int>& group) const {
  for (const int rank : group) {
    const exec::Member& member = members_[static_cast<size_t>(rank)];
    const bool closed = member.header->closed.load(std::memory_order_acquire) != 0;
    if (rank != identity_.rank && (closed || member.process->Died()))
      return MakeStatus(Code::kRemoteError, "rank %d (pid %u) %s while a new communicator was being made", rank,
                        member.process->pid(), closed ? "destroyed its communicator" : "died");
  }
  return Status();
}

Status Communicator::ControlAllGather(const std::vector<int>& group, const void* mine, size_t bytes, void* all,
                                      const std::atomic<bool>* abort) {
  std::lock_guard lock(control_mutex_);
  const uint64_t tag = ControlTag(group, ++exchanges_[group]);
  exec::ControlSlot& slot = block_->layout().ControlSlots(block_->data())[contributions_++ % exec::kControlSlots];
  slot.tag.store(0, std::memory_order_seq_cst);
  std::memcpy(slot.data, mine, bytes);
  slot.tag.store(tag, std::memory_order_seq_cst);
  const auto offset = static_cast<uint64_t>(reinterpret_cast<std::byte*>(&slot) - block_->data());
  const transport::RemoteRank::Stretch data{offset + offsetof(exec::ControlSlot, data), static_cast<uint32_t>(bytes), false, false};
  for (const int rank : group) {
    const exec::Member& member = members_[static_cast<size_t>(rank)];
    if (rank != identity_.rank) exec::WakeMember(member);
    if (member.remote != nullptr) member.remote->Send(nullptr, {&data, 1}, offset);
  }
  auto wait = std::make_shared<ControlWait>(&members_, &block_->layout(), group, identity_.rank, tag);
  auto item = std::make_unique<device::host::Item>();
  item->work = wait;
  device_->queue()->Push(std::move(item));
  Status trouble;
  const bool done = Scheduler::Process().Wait(
      device_->queue(), [&] { return wait->done(); },
      [&] {
        trouble = CheckGroup(group);
        if (trouble.ok() && abort != nullptr && abort->load(std::memory_order_relaxed))
          trouble = MakeStatus(Code::kInvalidUsage, "aborted while a new communicator was being made");
        return !trouble.ok();
      });
  if (!done) {
    wait->Cancel();
    device_->queue()->Drive();
    return trouble;
  }
  for (size_t i = 0; i < group.size(); ++i)
    std::memcpy(static_cast<std::byte*>(all) + i * bytes, wait->found(i)->data, bytes);
  return Status();
}

namespace {

class ParentExchange : public Exchange {
 public:
  ParentExchange(std::shared_ptr<Communicator> parent, std::vector<int> group, const std::atomic<bool>* abort)
      : parent_(std::move(parent)), group_(std::move(group)), abort_(abort) {}

  // A rank that gave up still takes part, with its reason in place of its data, so that nobody waits for it.
  Status AllGather(const void* mine, size_t bytes, void* all) override {
    struct Envelope {
      uint32_t code;
      char text[252];
      std::byte data[exec::kControlBytes - 256];
    } envelope{};
    static_assert(sizeof(Envelope) == exec::kControlBytes);
    std::memcpy(envelope.data, mine, bytes);
    std::vector<Envelope> gathered(group_.size());
    AXCCL_RETURN_IF_ERROR(
        parent_->ControlAllGather(group_, &envelope, sizeof(envelope), gathered.data(), abort_));
    for (size_t i = 0; i < gathered.size(); ++i) {
      if (gathered[i].code != 0) {
        gathered[i].text[sizeof(gathered[i].text) - 1] = 0;
        failed_ = true;
        return MakeStatus(Code::kRemoteError, "rank %d gave up: %s", group_[i], gathered[i].text);
      }
      std::memcpy(static_cast<std::byte*>(all) + i * bytes, gathered[i].data, bytes);
    }
    return Status();
  }

  void Fail(const Status& reason) override {
    if (failed_) return;
    failed_ = true;
    struct {
      uint32_t code;
      char text[252];
    } head{static_cast<uint32_t>(reason.code()), {}};
    reason.message().copy(head.text, sizeof(head.text) - 1);
    std::byte envelope[exec::kControlBytes] = {};
    std::memcpy(envelope, &head, sizeof(head));
    std::vector<std::byte> gathered(sizeof(envelope) * group_.size());
    (void)parent_->ControlAllGather(group_, envelope, sizeof(envelope), gathered.data(), abort_).ok();
  }

 private:
  const std::shared_ptr<Communicator> parent_;
  const std::vector<int> group_;
  const std::atomic<bool>* const abort_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Exchange> MakeParentExchange(std::shared_ptr<Communicator> parent, std::vector<int> group,
                                             const std::atomic<bool>* abort) {
  return std::make_unique<ParentExchange>(std::move(parent), std::move(group), abort);
}

}  // namespace axccl::comm
