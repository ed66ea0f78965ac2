#include "src/comm/shrink.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/rank_list.h"
#include "src/comm/child_setup.h"
#include "src/device/host/scheduler.h"
#include "transports/remote/doors.h"

namespace axccl::comm {
namespace {

using device::host::Scheduler;
using Made = Result<std::shared_ptr<Communicator>>;

// What failed may have failed because a rank has died, which is noticed a little later.
constexpr std::chrono::milliseconds kToNotice(500);
// A machine that does not answer for so long is not reached.
constexpr std::chrono::milliseconds kToAnswer(300);

// The other members, of which those are left out that are known to be gone: they will never make the call.
RankSet GroupOf(const Communicator& comm, const RankSet& excluded) {
  RankSet group;
  for (const exec::Member& member : comm.members()) {
    const bool gone = member.rank != comm.identity().rank && exec::IsGone(member);
    if (!gone && !Contains(excluded, member.rank)) group.push_back(member.rank);
  }
  return group;
}

}  // namespace

// One attempt. It fails where the call has to regroup, too; Next says so.
class ShrinkCall::Try : public MakingCall {
 public:
  Try(ShrinkCall* whole, std::shared_ptr<Communicator> comm) : MakingCall(std::move(comm)), whole_(whole) {}

  void Follow(const Try& before, LoggedCall call) {
    call_ = std::move(call);
    ended_ = false;
    SetLimits(before.deadline_, before.abort_);
  }
  const LoggedCall& logged() const { return call_; }
  Clock::time_point deadline() const { return deadline_; }

  // Not yet: it may become another attempt.
  void Fail(const Status&) override {}
  void GiveUp(const Status& reason) { MakingCall::Fail(reason); }
  // Whatever fails now has nothing to do with who is left.
  void Decide() { decided_ = true; }

  // What follows after this attempt has failed with `status`.
  NextStep Next(const Status& status) {
    const auto limit = std::min(deadline_, Clock::now() + kToNotice);
    const auto regroups = [this] { return next_.what == NextStep::kRegroup || next_.what == NextStep::kAdopt; };
    if (ended_) return next_;
    next_ = {};  // of an earlier exchange, which has succeeded
    if (decided_ || status.code() != Code::kRemoteError) return next_;
    (void)Scheduler::Process().Wait(
        nullptr, [&] { return Look(call_.group), regroups(); },
        [&] { return Clock::now() >= limit || !Aborted().why.ok(); });
    if (regroups()) End(Changed());
    return next_;
  }

 private:
  Trouble TroubleAmong(const std::vector<int>& missing) override {
    ControlLog& log = comm_->control().log();
    Trouble trouble = log.FindTrouble(&call_, missing);
    if (!trouble.why.ok()) return trouble;
    Look(missing);
    const bool left_out = log.IsApart(next_.what == NextStep::kLeftOut, &left_out_since_);
    if (left_out || next_.what == NextStep::kFail) return log.TroubleWith(call_, next_.rank);
    if (next_.what == NextStep::kRegroup || next_.what == NextStep::kAdopt) return Changed();
    return Aborted();
  }

  static Trouble Changed() {
    return {.why = MakeStatus(Code::kRemoteError, "the group has changed"), .regroups = true};
  }

  void Look(const std::vector<int>& missing) {
    std::vector<SeenRank> seen;
    for (const int rank : missing) {
      if (rank == comm_->identity().rank) continue;
      const exec::Member& member = comm_->members()[static_cast<size_t>(rank)];
      const bool gone = exec::IsGone(member);  // before its log, so that what it wrote before is seen
      seen.push_back({rank, gone, comm_->control().log().AttemptsOf(rank)});
    }
    std::vector<Attempt> mine;
    for (const Attempted& attempted : whole_->attempts_) mine.push_back(attempted.attempt);
    next_ = NextOf(comm_->identity().rank, mine, seen);
  }

  ShrinkCall* const whole_;
  NextStep next_;
  bool decided_ = false;
  Clock::time_point left_out_since_ = Clock::time_point::max();
};

Result<std::shared_ptr<ShrinkCall>> ShrinkCall::Begin(const std::shared_ptr<Communicator>& parent,
                                                      const RankSet& excluded) {
  auto call = std::make_shared<ShrinkCall>();
  call->parent_ = parent;
  call->now_ = std::make_shared<Try>(call.get(), parent);
  AXCCL_RETURN_IF_ERROR(call->now_->Begin(Making::kShrink, GroupOf(*parent, excluded)));
  const LoggedCall& logged = call->now_->logged();
  call->attempts_.push_back({{logged.ordinal, logged.group}, logged, nullptr});
  return call;
}

Made ShrinkCall::Run(const Config& config, const std::atomic<bool>* abort) {
  now_->SetLimits(MakeOptions(0, 0, parent_->identity().device, config, abort).deadline, abort);
  for (;;) {
    Made made = CatchAll("making a communicator", [&] { return Form(config, abort); });
    if (made.ok()) {
      now_->Finish();
      return made;
    }
    const NextStep next = now_->Next(made.status());
    if (next.what == NextStep::kAdopt) return Adopt(next.index);
    if (next.what != NextStep::kRegroup) {
      now_->GiveUp(made.status());
      return made;
    }
    const int ranks = parent_->identity().ranks;
    const auto out = [&](int rank) { return !Contains(next.attempt.group, rank); };
    AXCCL_INFO(kInit, "comm %s rank %d: shrinks without %s of %d", parent_->identity().name.c_str(),
               parent_->identity().rank, ListRanks(ranks, out).c_str(), ranks);
    auto following = std::make_shared<Try>(this, parent_);
    following->Follow(*now_, parent_->control().log().Attempt(now_->logged(), next.attempt));
    now_ = std::move(following);
    attempts_.push_back({next.attempt, now_->logged(), nullptr});
  }
}

// The last exchange carries nothing: survivors.h says what it is for.
Made ShrinkCall::Form(const Config& config, const std::atomic<bool>* abort) {
  const Identity& identity = parent_->identity();
  const RankSet& group = now_->group();
  AXCCL_RETURN_IF_ERROR(CheckQuorum());
  SetupOptions options =
      MakeOptions(PositionOf(identity.rank, group), static_cast<int>(group.size()), identity.device, config, abort);
  options.deadline = now_->deadline();
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> comm, SetupAmong(now_.get(), group, options));
  attempts_.back().formed = comm;
  const std::byte nothing{};
  std::vector<std::byte> all(group.size());
  AXCCL_RETURN_IF_ERROR(now_->AllGather(&nothing, sizeof(nothing), all.data()));
  return comm;
}

Made ShrinkCall::Adopt(size_t index) {
  const Attempted& attempted = attempts_[index];
  if (attempted.formed == nullptr)
    return MakeStatus(Code::kInternalError, "the other ranks have formed a communicator that this rank has not");
  parent_->control().log().Adopt(attempted.call);
  return attempted.formed;
}

// A rank counts as unreachable if no rank of the group knows that its process has ended.
Status ShrinkCall::CheckQuorum() {
  const auto& members = parent_->members();
  const bool apart = std::any_of(members.begin(), members.end(),
                                 [&](const exec::Member& m) { return m.machine != members.front().machine; });
  if (!apart) return Status();
  const size_t bytes = (members.size() + 7) / 8;
  const RankSet& group = now_->group();
  std::vector<uint8_t> mine(bytes), all(bytes * group.size());
  for (const int rank : UnreachableRanks()) mine[static_cast<size_t>(rank) / 8] |= static_cast<uint8_t>(1 << rank % 8);
  AXCCL_RETURN_IF_ERROR(now_->AllGather(mine.data(), bytes, all.data()));
  RankSet others;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    bool unreachable = true;
    for (size_t i = 0; i < group.size(); ++i) unreachable &= (all[i * bytes + rank / 8] >> rank % 8 & 1) != 0;
    if (unreachable) others.push_back(static_cast<int>(rank));
  }
  if (HasQuorum(group, others) || param::Get("AXCCL_QUORUM") == "0") return Status();
  now_->Decide();
  const auto in = [&](const RankSet& set) { return [&](int rank) { return Contains(set, rank); }; };
  const int ranks = parent_->identity().ranks;
  return MakeStatus(Code::kRemoteError,
                    "%s of %d cannot reach %s, which may go on without them: only the larger part of what is left, or "
                    "the half with the lowest rank, goes on, unless AXCCL_QUORUM=0",
                    ListRanks(ranks, in(group)).c_str(), ranks, ListRanks(ranks, in(others)).c_str());
}

// Ranks left out that may be alive although they have been given up, or cannot be asked. Those that answer, and have
// not been given up, are left out because the application says so.
RankSet ShrinkCall::UnreachableRanks() const {
  std::map<int, size_t> processes;
  std::vector<std::vector<sockaddr_storage>> doors;
  std::vector<std::pair<int, size_t>> asked;
  for (const exec::Member& member : parent_->members()) {
    if (!exec::IsMirror(member) || Contains(now_->group(), member.rank)) continue;
    const auto [process, fresh] = processes.try_emplace(member.process, doors.size());
    if (fresh) doors.push_back(member.reach->Doors());
    asked.emplace_back(member.rank, process->second);
  }
  const auto states = remote::LookAtDoors(doors, MakingCall::Clock::now() + kToAnswer);
  RankSet unreachable;
  for (const auto& [rank, process] : asked) {
    const bool given_up = parent_->members()[static_cast<size_t>(rank)].reach->Died();
    const remote::Door door = states[process];
    if (door == remote::Door::kSilent || (door == remote::Door::kOpen && given_up)) unreachable.push_back(rank);
  }
  return unreachable;
}

}  // namespace axccl::comm
