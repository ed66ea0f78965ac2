#include "src/comm/group.h"

#include <algorithm>
#include <map>
#include <thread>

namespace axccl::comm {

Group& Group::Current() {
  static thread_local Group group;
  return group;
}

void Group::Note(bool blocking) { (blocking ? any_blocking_ : any_nonblocking_) = true; }

void Group::Add(StreamCall call, bool blocking) {
  Note(blocking);
  calls_.push_back(std::move(call));
}

void Group::AddSelf(StreamCall call, bool sending, bool blocking) {
  Note(blocking);
  self_.push_back(SelfMessage{std::move(call), sending});
}

void Group::AddJob(GroupJob job) {
  Note(job.blocking);
  jobs_.push_back(std::move(job));
}

void Group::Keep(const Status& status) {
  if (open() && error_.ok()) error_ = status;
}

Status Group::Check() const {
  AXCCL_RETURN_IF_ERROR(error_);
  if (any_blocking_ && any_nonblocking_)
    return MakeStatus(Code::kInvalidArgument,
                      "ncclGroupEnd: the group mixes blocking and non-blocking communicators; use one group for each");
  return Status();
}

// The k-th send to self of a communicator goes to its k-th receive.
Status Group::MatchSelf() {
  std::map<Communicator*, std::pair<std::vector<StreamCall*>, std::vector<StreamCall*>>> messages;
  for (SelfMessage& message : self_) {
    auto& [sends, receives] = messages[message.call.comm.get()];
    (message.sending ? sends : receives).push_back(&message.call);
  }
  for (auto& [comm, both] : messages) {
    auto& [sends, receives] = both;
    const int rank = comm->identity().rank;
    if (sends.size() != receives.size())
      return MakeStatus(Code::kInvalidUsage,
                        "ncclGroupEnd: rank %d has %zu ncclSend and %zu ncclRecv to itself in the group; each needs its match in "
                        "the same group", rank, sends.size(), receives.size());
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i]->call.count != receives[i]->call.count)
        return MakeStatus(Code::kInvalidUsage, "ncclGroupEnd: rank %d sends itself %llu bytes and receives %llu", rank,
                          static_cast<unsigned long long>(sends[i]->call.count),
                          static_cast<unsigned long long>(receives[i]->call.count));
      receives[i]->call.input = sends[i]->call.input;
      // The copy belongs to both streams; the send's part is a call of no bytes.
      sends[i]->call.count = 0;
      calls_.push_back(std::move(*receives[i]));
      calls_.push_back(std::move(*sends[i]));
    }
  }
  return Status();
}

Status Group::RunJobs() {
  std::vector<Status> results(jobs_.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < jobs_.size(); ++i) threads.emplace_back([&, i] { results[i] = jobs_[i].run(); });
  if (!jobs_.empty()) results[0] = jobs_[0].run();
  for (std::thread& thread : threads) thread.join();
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

double Group::Predict() const {
  std::map<const Communicator*, double> seconds;
  for (const StreamCall& call : calls_) {
    if (call.channel == nullptr) continue;
    const tune::Query query{plan::Contract{call.call.kind, call.channel->size(), call.call.root},
                            call.call.count * ElementSize(call.call.type), call.call.type, tune::Access::kMapped};
    seconds[call.comm.get()] += call.comm->chooser().Choose(query).seconds;
  }
  double most = 0;
  for (const auto& [comm, total] : seconds) most = std::max(most, total);
  return most;
}

void Group::Clear() {
  any_blocking_ = any_nonblocking_ = false;
  error_ = Status();
  calls_.clear();
  self_.clear();
  jobs_.clear();
}

Status Group::End(double* seconds) {
  if (depth_ == 0)
    return MakeStatus(Code::kInvalidUsage, "ncclGroupEnd: called without a matching ncclGroupStart on this thread");
  if (--depth_ != 0) return Status();
  Status status = Check();
  if (status.ok()) status = MatchSelf();
  if (!status.ok() || seconds != nullptr) {
    if (status.ok()) *seconds = Predict();
    for (GroupJob& job : jobs_) {
      if (job.discard) job.discard();
    }
    Clear();
    return status;
  }
  // Jobs and calls may themselves use groups: leave this one first.
  std::vector<StreamCall> calls = std::move(calls_);
  if (!jobs_.empty()) status = RunJobs();
  Clear();
  if (!calls.empty() && (status.ok() || status.code() == Code::kInProgress)) LaunchGroup(std::move(calls));
  return status;
}

}  // namespace axccl::comm
