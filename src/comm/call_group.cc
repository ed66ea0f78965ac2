#include "src/comm/call_group.h"

#include <algorithm>
#include <map>

#include "src/base/run_together.h"
#include "src/exec/platform/platform.h"

namespace axccl::comm {

CallGroup& CallGroup::Current() { return PerThread<CallGroup>::Get(); }

void CallGroup::Keep(const Status& status) noexcept {
  CallGroup* const group = PerThread<CallGroup>::Find();
  if (group != nullptr && group->open() && group->error_.ok()) group->error_ = status;
}

void CallGroup::Note(bool blocking) { (blocking ? any_blocking_ : any_nonblocking_) = true; }

void CallGroup::Add(exec::StreamCall call, bool blocking) {
  Note(blocking);
  calls_.push_back(std::move(call));
}

void CallGroup::AddSelf(exec::StreamCall call, bool sending, bool blocking) {
  Note(blocking);
  call.local = true;
  self_.push_back(SelfMessage{std::move(call), sending});
}

void CallGroup::AddStart(std::function<Status()> start, bool blocking) {
  Note(blocking);
  starts_.push_back(std::move(start));
}

void CallGroup::AddJob(GroupJob job) {
  if (job.blocking.has_value()) Note(*job.blocking);
  jobs_.push_back(std::move(job));
}

Status CallGroup::Check(const char* call) const {
  AXCCL_RETURN_IF_ERROR(error_);
  if (any_blocking_ && any_nonblocking_)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: the group mixes blocking and non-blocking communicators; use one group for each", call);
  return Status();
}

namespace {

// Joins a rank's send and receive to itself into a copy, which becomes `receive`.
Status JoinSelf(const char* call, const exec::StreamCall& send, exec::StreamCall* receive) {
  const int rank = send.channel->own().rank;
  exec::Call& to = receive->call;
  const bool fit = to.views == nullptr || send.call.views == nullptr
                       ? to.views == send.call.views && to.count == send.call.count && to.type == send.call.type
                       : to.views->Hash() == send.call.views->Hash();
  if (!fit)
    return MakeStatus(Code::kInvalidUsage, "%s: rank %d sends itself %s and receives %s; they must agree", call, rank,
                      exec::DescribeCall(send.call).c_str(), exec::DescribeCall(to).c_str());
  to.input = send.call.input;
  if (to.views == nullptr) return Status();
  auto list = std::make_shared<exec::ViewList>(*to.views);
  for (size_t i = 0; i < list->operands.size(); ++i) {
    const exec::ViewOperand& from = send.call.views->operands[i];
    list->operands[i].input = from.input;
    std::copy_n(from.input_strides, tensor::kMaxDims, list->operands[i].input_strides);
  }
  to.views = std::move(list);
  return Status();
}

}  // namespace

// The k-th send to self on a channel matches its k-th receive.
Status CallGroup::MatchSelf(const char* call) {
  std::map<exec::Channel*, std::pair<std::vector<exec::StreamCall*>, std::vector<exec::StreamCall*>>> messages;
  for (SelfMessage& message : self_) {
    auto& [sends, receives] = messages[message.call.channel];
    (message.sending ? sends : receives).push_back(&message.call);
  }
  for (auto& [channel, both] : messages) {
    auto& [sends, receives] = both;
    if (sends.size() != receives.size())
      return MakeStatus(
          Code::kInvalidUsage,
          "%s: rank %d has %zu sends and %zu receives to itself in the group; each needs its match in the same group",
          call, channel->own().rank, sends.size(), receives.size());
    for (size_t i = 0; i < sends.size(); ++i) {
      AXCCL_RETURN_IF_ERROR(JoinSelf(call, *sends[i], receives[i]));
      // The copy belongs to both streams; the send's part is a call of no bytes.
      sends[i]->call.count = 0;
      sends[i]->call.views = nullptr;
      calls_.push_back(std::move(*receives[i]));
      calls_.push_back(std::move(*sends[i]));
    }
  }
  return Status();
}

void CallGroup::Discard() {
  for (GroupJob& job : jobs_) {
    if (job.discard) job.discard();
  }
}

Status CallGroup::RunJobs(const char* call) {
  std::vector<Status> results;
  if (const Status room = CatchAll(call, [&] { return results.resize(jobs_.size()), Status(); }); !room.ok()) {
    Discard();
    return room;
  }
  const auto run = [&](size_t i) { results[i] = CatchAll(call, [&] { return jobs_[i].run(); }); };
  if (any_nonblocking_) {
    for (size_t i = 0; i < jobs_.size(); ++i) run(i);  // non-blocking jobs continue in the background
  } else if (const Status together = RunTogether(call, jobs_.size(), run); !together.ok()) {
    if (!std::all_of(jobs_.begin(), jobs_.end(), [](const GroupJob& job) { return job.in_turn; })) {
      Discard();
      return together;
    }
    for (size_t i = 0; i < jobs_.size(); ++i) run(i);
  }
  Status progress;
  for (Status& result : results) {
    if (result.code() == Code::kInProgress) {
      progress = result;
    } else if (!result.ok()) {
      return result;
    }
  }
  return progress;
}

double CallGroup::Predict() const {
  std::map<const exec::ChannelOwner*, double> seconds;
  for (const exec::StreamCall& call : calls_) {
    if (call.local) continue;
    tune::Query query{plan::Contract{call.call.kind, call.channel->size(), call.call.root},
                      call.call.count * ElementSize(call.call.type), call.call.type,
                      call.channel->members().heap_access()};
    query.placement = call.channel->members().placement();
    query.sharers = call.channel->members().sharers();
    call.device->AddToQuery(call, &query);
    seconds[call.owner.get()] += call.owner->chooser().Choose(query).seconds;
  }
  double most = 0;
  for (const auto& [comm, total] : seconds) most = std::max(most, total);
  return most;
}

void CallGroup::Clear() {
  any_blocking_ = any_nonblocking_ = false;
  error_ = Status();
  calls_.clear();
  self_.clear();
  jobs_.clear();
  starts_.clear();
}

Status CallGroup::End(const char* call, double* seconds) {
  if (depth_ == 0)
    return MakeStatus(Code::kInvalidUsage, "%s: called without a matching ncclGroupStart on this thread", call);
  if (--depth_ != 0) return Status();
  // Whatever is thrown, the thread's next group starts empty.
  Status status = CatchAll(call, [&] {
    AXCCL_RETURN_IF_ERROR(Check(call));
    AXCCL_RETURN_IF_ERROR(MatchSelf(call));
    if (seconds != nullptr) *seconds = Predict();
    return Status();
  });
  if (!status.ok() || seconds != nullptr) {
    Discard();
    Clear();
    return status;
  }
  // Jobs and calls may themselves use groups, so this one must be left first.
  std::vector<exec::StreamCall> calls = std::move(calls_);
  const std::vector<std::function<Status()>> starts = std::move(starts_);
  if (!jobs_.empty()) status = CatchAll(call, [&] { return RunJobs(call); });
  Clear();
  if (!calls.empty() && (status.ok() || status.code() == Code::kInProgress)) {
    const Status launched = Prefixed(call, exec::LaunchGroup(std::move(calls)));
    if (!launched.ok()) return launched;
  }
  for (const std::function<Status()>& start : starts) {
    if (status.ok() || status.code() == Code::kInProgress) AXCCL_RETURN_IF_ERROR(CatchAll(call, start));
  }
  return status;
}

}  // namespace axccl::comm
