#include "src/comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>

#include "src/base/closer.h"
#include "src/base/log.h"
#include "src/base/param.h"
#include "src/comm/op_board.h"
#include "src/comm/programs.h"
#include "src/comm/watchdog.h"
#include "src/device/host/waiting.h"
#include "transports/shm/registered_memory.h"

namespace axccl::comm {
namespace {

using device::host::Poll;
using device::host::Scheduler;

// What ranks hold of each other when the communicator ends.
struct Remains {
  int rank;
  std::unique_ptr<exec::RankDevice> device;
  std::unique_ptr<Block> block;
  std::vector<exec::Member> members;
  std::vector<std::shared_ptr<transport::Reach>> reaches;
  bool failed = false;
};

// Does not throw, because destructors call it. If memory runs out, the block stays for as long as the process lives,
// because peers may still write to it.
void LetGo(Remains* remains) {
  const Status gone = CatchAll("giving memory back", [&] {
    std::vector<Holder> holders(remains->reaches.size());
    remains->device->Disconnect();
    if (remains->device->traits().outlives_rank)
      remains->block->Keep(std::shared_ptr<void>(std::move(remains->device)));
    // For a communicator that has failed, the remaining data is the reason, which is worth a short wait for all of them
    // together, because aborting takes no longer either.
    PartFromPeers(remains->block->header(), remains->reaches, std::chrono::milliseconds(remains->failed ? 50 : 10'000));
    for (const exec::Member& member : remains->members) {
      if (member.rank != remains->rank && !exec::IsMirror(member))
        remains->block->layout().ReleasedBy(member.block, remains->rank)->store(1, std::memory_order_release);
    }
    remains->reaches[static_cast<size_t>(remains->rank)] = nullptr;
    for (size_t i = 0; i < holders.size(); ++i) holders[i].reach = std::move(remains->reaches[i]);
    Block::Release(std::move(remains->block), std::move(holders));
    return Status();
  });
  if (gone.ok()) return;
  AXCCL_WARN("%s", gone.message().data());
  (void)remains->block.release();
}

// For peers whose memory is mapped. Waits for a while, because programs may end next.
void LetGoInBackground(Remains remains) {
  constexpr std::chrono::milliseconds kPatience(100);
  std::shared_ptr<Remains> work;
  const Status handed = CatchAll("giving memory back", [&] {
    work = std::make_shared<Remains>(std::move(remains));
    return Closer::Process().Add([work] { LetGo(work.get()); }), Status();
  });
  if (!handed.ok()) return LetGo(work != nullptr ? work.get() : &remains);
  (void)Closer::Process().Await(kPatience);
}

bool SpanMachines(const std::vector<exec::Member>& members) {
  const auto elsewhere = [&](const exec::Member& member) { return member.machine != members[0].machine; };
  return std::any_of(members.begin(), members.end(), elsewhere);
}

}  // namespace

Communicator::Communicator(Identity identity, Settings settings, std::unique_ptr<tune::Chooser> chooser,
                           std::unique_ptr<Block>&& block, std::vector<exec::Member> members,
                           std::vector<std::shared_ptr<transport::Reach>> reaches,
                           std::unique_ptr<exec::RankDevice>&& device, int crowding)
    : identity_(std::move(identity)),
      settings_(settings),
      usual_timeout_(param::GetSeconds("AXCCL_TIMEOUT")),
      chooser_(std::move(chooser)),
      heap_(shm::Heap::Get().value()),
      members_(std::move(members)),
      crowd_(crowding, SpanMachines(members_)),
      reaches_(std::move(reaches)),
      host_device_(identity_.device.platform->HostDevice(identity_.device.ordinal)),
      launches_(std::make_shared<device::host::Timeline>()),
      channel_(this, members_, identity_.rank,
               {.order = launches_, .group_order = settings_.group_order != 0, .device = device.get()}),
      pairs_(this, identity_.ranks),
      control_(&members_, block->data(), block->layout(), identity_.rank),
      failure_(identity_.rank, block->header()) {
  block_ = std::move(block);
  device_ = std::move(device);
}

std::optional<double> Communicator::set_timeout() const {
  const double seconds = timeout_seconds_.load(std::memory_order_relaxed);
  return seconds == kNotSet ? std::nullopt : std::optional(seconds);
}

exec::Deadline Communicator::deadline() const {
  if (const std::optional<double> seconds = set_timeout()) return {*seconds, "of axcclCommSetTimeout"};
  return {usual_timeout_};
}

Communicator::~Communicator() {
  if (!far_.ids.empty()) StopListening(far_, this);
  if (device_->traits().needs_watch) Unwatch(this);
  device_->WaitIdle();
  device_->ReleaseChannels();
  const Status kept = CatchAll("giving memory back", [&] { return block_->Keep(channels_.Close()), Status(); });
  if (!kept.ok()) AXCCL_WARN("%s", kept.message().data());
  const bool slow = device_->slow_to_disconnect();
  Remains remains{identity_.rank,      std::move(device_),  std::move(block_),
                  std::move(members_), std::move(reaches_), failed()};
  slow ? LetGoInBackground(std::move(remains)) : LetGo(&remains);
}

// A peer on another machine that has failed may have done so because the communicator was revoked.
void Communicator::Fail(const Status& status) {
  for (const exec::Member& member : members_) {
    const uint32_t by = exec::RevokedInError(member.header->error.load(std::memory_order_relaxed));
    if (by != 0 && !failure_.revoked()) OnRevoked(static_cast<int>(by) - 1);
  }
  if (!failure_.Set(status)) return;
  AXCCL_WARN("communicator %s rank %d of %d: %.*s", identity_.name.c_str(), identity_.rank, identity_.ranks,
             static_cast<int>(status.message().size()), status.message().data());
  device_->Abort();
  failure_.Publish(members_);
}

// How many ranks of the process may ask for the program of a group of `ranks`, or more.
int Communicator::Sharers(int ranks) const {
  const auto here =
      std::count_if(members_.begin(), members_.end(), [](const auto& m) { return m.reach->same_process(); });
  return std::min(static_cast<int>(here), ranks);
}

Result<std::shared_ptr<const exec::Program>> Communicator::GetProgram(const plan::Contract& contract,
                                                                      std::string_view algorithm, int lanes, int rank,
                                                                      const plan::Placement& placement) {
  return Programs::Process().Get(
      {contract, algorithm, lanes, rank, placement, Sharers(contract.ranks), device_->traits().wants_whole_programs});
}

Result<std::shared_ptr<const exec::Program>> Communicator::GetSlicedProgram(const plan::Contract& contract,
                                                                            std::string_view algorithm,
                                                                            const algo::Chunking& chunking, int rank,
                                                                            bool messages) {
  return Programs::Process().Get({contract,
                                  algorithm,
                                  1,
                                  rank,
                                  {},
                                  Sharers(contract.ranks),
                                  device_->traits().wants_whole_programs,
                                  chunking,
                                  messages});
}

uint64_t Communicator::Register(const void* buffer, size_t bytes) {
  const bool useful = device_->traits().maps_registered && channel_.members().plain_access() != tune::Access::kMapped;
  if (!useful || param::GetInt("NCCL_LOCAL_REGISTER") == 0) return 0;
  const Result<uint64_t> number = shm::RegisteredMemory::Process().Add(heap_, buffer, bytes);
  if (number.ok()) return number.value();
  AXCCL_INFO(kReg, "registered memory at %p, %zu bytes, stays as it is: %.*s; peers copy it", buffer, bytes,
             static_cast<int>(number.status().message().size()), number.status().message().data());
  return 0;
}

Status Communicator::Deregister(const void* buffer, size_t bytes, uint64_t number) {
  return number == 0 ? Status() : shm::RegisteredMemory::Process().Remove(buffer, bytes, number);
}

bool Communicator::InHeap(const void* p, size_t bytes, uint64_t* offset) const {
  return heap_->Contains(p, bytes, offset) || shm::RegisteredMemory::Process().Contains(p, bytes, offset);
}

Status Communicator::TakeBack(const void* p, size_t bytes) {
  AXCCL_RETURN_IF_ERROR(heap_->TakeBack(p, bytes));
  return shm::RegisteredMemory::Process().TakeBack(p, bytes);
}

bool Communicator::TakenBack(const void* p, size_t bytes) const {
  return heap_->TakenBack(p, bytes) || shm::RegisteredMemory::Process().TakenBack(p, bytes);
}

// Operations that wait check their peers themselves (Operation::SlowCheck, CudaWaits), so a peer that leaves does not
// affect ranks that need nothing from it. But calls that differ are an error on all ranks, including those that have
// done their part of one.
void Communicator::LookForFailures() {
  if (failure_.only_revoked()) {
    Fail(Failure());
    SpreadRevoke(failure_.revoked_by());
  } else if (!failed()) {
    Status status = channel_.members().CheckFailures();
    if (status.ok()) status = device_->CheckReport();
    if (!status.ok()) Fail(status);
  }
}

void Communicator::AttendDevice() {
  if (failed()) return device_->Relieve();
  const Status status = device_->Attend();
  if (!status.ok()) Fail(status);
}

Status Communicator::AsyncError() {
  if (!device_->traits().needs_watch || (!failed() && device_->has_report())) LookForFailures();
  return failed() ? Failure() : Status();
}

void Communicator::Abort(const Status& reason) {
  const bool first =
      failure_.Set(reason, MakeStatus(Code::kRemoteError, "rank %d aborted its communicator", identity_.rank));
  device_->Abort();
  device_->Relieve();
  if (first) failure_.Publish(members_);
  StopAsking(this);
  LeaveOperations();
}

void Communicator::Revoke() {
  SpreadRevoke(identity_.rank);
  Fail(MakeStatus(Code::kRemoteError, "rank %d revoked the communicator", identity_.rank));
  LeaveOperations();
}

// Blocks of this machine are marked, then the other machines are told; ranks there do the same. A rank that only finds
// its block marked tells the others, too, because the one that marked it may have died since.
void Communicator::SpreadRevoke(int by) {
  if (spread_.exchange(true, std::memory_order_acq_rel)) return;
  failure_.Revoke(by, members_);
  TellRevoked(far_, failure_.revoked_by());
}

void Communicator::OnRevoked(int rank) {
  if (rank >= 0 && rank < identity_.ranks) SpreadRevoke(rank);
}

std::vector<std::byte> Communicator::OnAsked(int rank, size_t limit) {
  if (rank < 0 || rank >= identity_.ranks || !IsNear(rank)) return {};
  return PackBoard(ReadLocalBoard(*this, rank), limit);
}

void Communicator::Correspond(FarProcesses far) {
  far_ = std::move(far);
  if (!far_.ids.empty()) ListenForNotices(far_, this);
}

// The steps that are running now are the last ones: those of this rank, and those of ranks of this process that access
// its buffers, in any queue.
void Communicator::LeaveOperations() {
  // Two callbacks that abort would wait for each other. Their steps end with them.
  if (!Scheduler::Process().InStep()) Scheduler::Process().Quiesce();
  Scheduler::Process().Notify();
  WaitUntilUnreached();
}

void Communicator::WaitUntilUnreached() {
  if (Scheduler::Process().InStep()) return;
  Scheduler::Process().Wait(
      host_device_->queue(), [this] { return !HasExposed(); }, [] { return false; });
}

bool Communicator::WaitIdle(const std::atomic<bool>* give_up) {
  device_->WaitIdle();
  if (device_->traits().needs_watch) {  // the watchdog may not have seen how the work ended
    LookForFailures();
    AttendDevice();
  }
  std::vector<device::host::Mark> marks = channels_.Outstanding();
  marks.push_back({launches_, launches_->issued()});
  return Scheduler::Process().Wait(
      host_device_->queue(),
      [&] { return std::all_of(marks.begin(), marks.end(), [](const auto& m) { return m.Reached(); }); },
      [&] { return give_up != nullptr && give_up->load(std::memory_order_relaxed); });
}

const char* LinkName(const Communicator& comm, int peer) {
  return comm.device().LinkName(comm.members()[static_cast<size_t>(peer)]);
}

int CountLocalProcesses(const Communicator& comm) {
  std::set<const transport::ProcessPage*> distinct;
  for (const exec::Member& member : comm.members()) distinct.insert(member.reach->page());
  return static_cast<int>(distinct.size());
}

}  // namespace axccl::comm
