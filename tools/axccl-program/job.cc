#include "tools/axccl-program/job.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/launcher.h"

namespace axccl::tools {
namespace {

class ComparedTask : public RankTask {
 public:
  ComparedTask(uint64_t number, int ranks, const char* what, int rank, ncclComm_t comm, axcclStream_t stream,
               std::unique_ptr<RankTask> task)
      : number_(number),
        all_(static_cast<size_t>(ranks)),
        what_(what),
        rank_(rank),
        comm_(comm),
        stream_(stream),
        task_(std::move(task)) {}

  Result<RankResult> Run() override {
    if (ncclAllGather(&number_, all_.data(), 1, ncclUint64, comm_, axcclStreamToCuda(stream_)) != ncclSuccess ||
        axcclStreamSynchronize(stream_) != ncclSuccess)
      return MakeStatus(Code::kRemoteError, "rank %d at the beginning: %s", rank_, ncclGetLastError(comm_));
    for (size_t other = 0; other < all_.size(); ++other) {
      if (all_[other] == all_[0]) continue;
      return MakeStatus(Code::kInvalidUsage, "rank %zu has not the same %s as rank 0; give all processes the same",
                        other, what_);
    }
    return task_->Run();
  }

 private:
  const uint64_t number_;
  std::vector<uint64_t> all_;
  const char* const what_;
  const int rank_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
  const std::unique_ptr<RankTask> task_;
};

}  // namespace

Result<Job> FindJob(int ranks, const Environment& get) {
  AXCCL_RETURN_IF_ERROR(CheckLauncherComplete(get));
  AXCCL_ASSIGN_OR_RETURN(const std::optional<Launched> launched, DetectLauncher(get));
  if (!launched.has_value() || launched->size == 1) return Job{{0, ranks}, 1, ""};
  if (ranks % launched->size != 0)
    return MakeStatus(Code::kInvalidUsage,
                      "%s has started %d processes, and the program has %d ranks; start one for each rank, or a number "
                      "that divides theirs",
                      launched->launcher.c_str(), launched->size, ranks);
  const int each = ranks / launched->size;
  Job job{{launched->rank * each, each}, launched->size, ""};
  if (get("NCCL_COMM_ID") != nullptr) return job;
  if (launched->coordinator.empty())
    return MakeStatus(Code::kInvalidUsage,
                      "%s has started %d processes; set NCCL_COMM_ID to an address of process 0 and a free port of it, "
                      "such as 10.0.0.1:4711, for all of them",
                      launched->launcher.c_str(), launched->size);
  job.meeting_point = launched->coordinator;
  return job;
}

MakeTask ComparedFirst(uint64_t number, int ranks, const char* what, const MakeTask& make) {
  return [=](int rank, ncclComm_t comm, axcclStream_t stream) {
    return std::make_unique<ComparedTask>(number, ranks, what, rank, comm, stream, make(rank, comm, stream));
  };
}

std::string WithRank(const std::string& name, RankRange here) {
  constexpr std::string_view kPlace = "{rank}";
  const size_t at = name.find(kPlace);
  if (at == std::string::npos) return name;
  return name.substr(0, at) + std::to_string(here.first) + name.substr(at + kPlace.size());
}

Result<std::string> NameHere(const char* option, const std::string& name, const Job& job) {
  const std::string here = WithRank(name, job.here);
  if (job.processes == 1 || name.empty() || here != name) return here;
  return MakeStatus(Code::kInvalidUsage,
                    "%s %s: each of %d processes would write this file; put {rank} into the name, which becomes the "
                    "first rank of a process",
                    option, name.c_str(), job.processes);
}

}  // namespace axccl::tools
