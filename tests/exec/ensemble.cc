#include "tests/exec/ensemble.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "src/algo/algo.h"
#include "src/verify/verify.h"

namespace axccl::exec {
namespace {

void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
  std::abort();
}

// A machine on which a second lane always pays, or never does.
cost::Machine MakeMachine(const EnsembleOptions& options) {
  cost::Machine machine = options.machine.value_or(cost::Machine());
  machine.ranks = options.ranks;
  machine.cores = options.ranks * options.lanes;
  if (options.lanes > 1 && !options.machine)
    machine.signal_seconds = machine.op_seconds = machine.switch_seconds = 1e-15;
  return machine;
}

}  // namespace

const char* LayoutName(Layout layout) {
  static constexpr const char* kNames[] = {"threads", "heap", "call", "nothing", "mixed", "remote"};
  return kNames[static_cast<int>(layout)];
}

// ---- FakeOwner ----

Status FakeOwner::Failure() const { return failed() ? failure_ : Status(); }

// Like the communicator: the first failure stays, and peers can read it.
void FakeOwner::Fail(const Status& status) {
  if (failed()) return;
  failure_ = status;
  BlockHeader* header = ensemble_->header(rank_);
  const std::string_view text = status.message();
  std::memcpy(header->error_text, text.data(), std::min(text.size(), kErrorText - 1));
  header->error.store(static_cast<uint32_t>(status.code()), std::memory_order_seq_cst);
  failed_.store(true, std::memory_order_release);
}

Result<std::shared_ptr<const Program>> FakeOwner::GetProgram(const plan::Contract& contract, std::string_view algorithm,
                                                             int lanes, int rank, const plan::Placement& placement) {
  if (next_ != nullptr) return std::exchange(next_, nullptr);
  using Key = std::tuple<plan::Kind, int, int, std::string, int, plan::Placement>;
  struct Known {
    std::shared_ptr<const plan::Plan> plan;
    std::map<int, std::shared_ptr<const Program>> programs;  // by rank
  };
  static std::mutex mutex;
  static std::map<Key, Known> known;
  std::lock_guard lock(mutex);
  Known& entry = known[Key{contract.kind, contract.ranks, contract.root, std::string(algorithm), lanes, placement}];
  if (entry.plan == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(plan::Schedule schedule, algo::Generate(contract, algorithm, lanes, placement));
    AXCCL_ASSIGN_OR_RETURN(entry.plan, verify::MakePlan(std::move(schedule)));
  }
  auto& program = entry.programs[rank];
  if (program == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(program, Program::Make(entry.plan, rank));
  }
  return program;
}

const tune::Chooser& FakeOwner::chooser() const { return ensemble_->chooser(rank_); }
Deadline FakeOwner::deadline() const { return {ensemble_->options().timeout_seconds}; }

Result<std::byte*> FakeOwner::TakeShared(uint64_t bytes, uint64_t* offset) {
  FakeProcess& process = ensemble_->process(rank_);
  std::byte* const memory = process.AllocateHeap(bytes, 4096);
  *offset = static_cast<uint64_t>(memory - process.heap().own());
  return memory;
}

bool FakeOwner::InHeap(const void* p, size_t bytes, uint64_t* offset) const {
  const TwiceMapped& heap = ensemble_->process(rank_).heap();
  if (!heap.Contains(p, bytes)) return false;
  *offset = static_cast<uint64_t>(static_cast<const std::byte*>(p) - heap.own());
  return true;
}

Status FakeOwner::Read(FakeProcess* process, void* to, uint64_t from, size_t bytes) {
  if (before_reads_) before_reads_();
  if (process->gone()) return MakeStatus(Code::kRemoteError, "process %u is gone", process->pid());
  for (TwiceMapped* memory : {&process->secret(), &process->heap()}) {
    auto* const p = reinterpret_cast<std::byte*>(from);
    if (!memory->Contains(p, bytes)) continue;
    std::memcpy(to, memory->peer() + (p - memory->own()), bytes);
    bytes_read_ += bytes;
    return Status();
  }
  return MakeStatus(Code::kSystemError, "read outside the memory of process %u", process->pid());
}

// ---- Ensemble ----

Ensemble::Ensemble(const EnsembleOptions& options)
    : options_(options),
      layout_(BlockLayout::Make(static_cast<uint32_t>(options.ranks), static_cast<uint32_t>(options.lanes),
                                options.scratch_bytes)),
      post_(options.ranks, layout_.bytes) {
  std::vector<std::string> filters = options.algorithms_of;
  if (filters.empty()) filters = {options.algorithms};
  for (const std::string& filter : filters) {
    auto chooser =
        tune::Chooser::Create(MakeMachine(options), filter, options.scratch_bytes / plan::kRotation, options.lanes);
    Require(chooser.status());
    choosers_.push_back(std::move(chooser).value());
  }
  const int processes = one_process() ? 1 : options.ranks;
  const size_t ranks_each = one_process() ? static_cast<size_t>(options.ranks) : 1;
  for (int p = 0; p < processes; ++p) {
    processes_.push_back(std::make_unique<FakeProcess>(1000u + static_cast<uint32_t>(p),
                                                       ranks_each * (layout_.bytes + options.process_bytes),
                                                       ranks_each * options.process_bytes));
    if (!one_process()) processes_.back()->secret().SetAccessible(false);
  }
  for (int rank = 0; rank < options.ranks; ++rank) blocks_.push_back(process(rank).AllocateHeap(layout_.bytes, 4096));
  reaches_.resize(static_cast<size_t>(options.ranks) * static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    owners_.push_back(std::make_unique<FakeOwner>(this, rank));
    std::vector<Member> members;
    for (int peer = 0; peer < options.ranks; ++peer) members.push_back(MakeMember(rank, peer));
    channels_.push_back(
        std::make_unique<Channel>(owners_.back().get(), std::move(members), rank, ChannelOptions{.device = this}));
  }
}

FakeProcess& Ensemble::process(int rank) { return *processes_[one_process() ? 0 : static_cast<size_t>(rank)]; }

int Ensemble::MachineOf(int rank) const {
  if (options_.layout != Layout::kRemote) return 0;
  return options_.machine_of.empty() ? rank % 2 : options_.machine_of[static_cast<size_t>(rank)];
}

Member Ensemble::MakeMember(int viewer, int rank) {
  FakeProcess& owner = process(rank);
  const bool own_view = one_process() || viewer == rank;
  Member member;
  member.rank = rank;
  member.block = (own_view ? owner.heap().own() : owner.heap().peer()) + (Block(rank) - owner.heap().own());
  member.header = reinterpret_cast<BlockHeader*>(member.block);
  member.layout = layout_.channel;
  member.device = rank;
  member.machine = member.cores = MachineOf(rank);
  if (MachineOf(viewer) == MachineOf(rank)) {
    auto& reach = reaches_[static_cast<size_t>(viewer * ranks() + rank)];
    if (reach == nullptr) {
      reach = std::make_unique<FakeReach>(this->owner(viewer), &owner, own_view ? owner.self() : owner.peer(),
                                          member.block);
      reach->SetCalls(options_.layout == Layout::kCall || options_.layout == Layout::kMixed);
    }
    member.reach = reach.get();
  } else {
    member.reach = post_.Connect(viewer, rank, MakeMember(viewer, viewer).block);
    member.block = member.reach->block();
    member.header = reinterpret_cast<BlockHeader*>(member.block);
  }
  return member;
}

std::byte* Ensemble::Allocate(int rank, size_t bytes, size_t alignment, bool heap) {
  if (options_.layout == Layout::kHeap) heap = true;
  if (options_.layout == Layout::kCall || options_.layout == Layout::kNothing || options_.layout == Layout::kRemote)
    heap = false;
  return heap ? process(rank).AllocateHeap(bytes, alignment) : process(rank).AllocatePrivate(bytes, alignment);
}

std::byte* Ensemble::AlwaysAccessible(int rank, std::byte* p) {
  TwiceMapped& secret = process(rank).secret();
  return !one_process() && secret.Contains(p, 0) ? secret.peer() + (p - secret.own()) : p;
}

uint64_t Ensemble::Signals() const {
  const ChannelLayout& channel = layout_.channel;
  uint64_t sum = 0;
  for (std::byte* const block : blocks_) {
    const Line* const lines = channel.LineOf(block, 0, 0, 0);
    for (uint64_t i = 0; i < uint64_t{channel.lanes} * channel.endpoints * plan::kRotation; ++i)
      sum += lines[i].value.load(std::memory_order_relaxed);
  }
  return sum;
}

device::host::Poll Ensemble::Step(int rank, Operation* operation) {
  if (!one_process() && open_ != rank) {
    if (open_ >= 0) process(open_).secret().SetAccessible(false);
    process(rank).secret().SetAccessible(true);
    open_ = rank;
  }
  return operation->Progress();
}

}  // namespace axccl::exec
