#include "tools/axccl-program/ranks.h"

#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "tools/axccl-program/gpus.h"

namespace axccl::tools {
namespace {

Status ErrorOf(int rank, const char* what) {
  return MakeStatus(Code::kRemoteError, "rank %d in %s: %s", rank, what, ncclGetLastError(nullptr));
}

Status UseDeviceOf(int rank) {
  if (!GpusWanted())
    return axcclHostSetDevice(rank % kMostRanks) == ncclSuccess ? Status() : ErrorOf(rank, "axcclHostSetDevice");
  AXCCL_ASSIGN_OR_RETURN(const Gpus* const gpus, Gpus::Get());
  return gpus->Use(rank);
}

// The first error of any rank.
class FirstError {
 public:
  void Set(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  Status Get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace

Result<RankResult> RunRank(int ranks, int rank, const ncclUniqueId& id, const MakeTask& make,
                           const std::function<void(const Status&)>& failed) {
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;
  Result<RankResult> result = RankResult();
  if (const Status used = UseDeviceOf(rank); !used.ok()) {
    result = used;
  } else if (ncclCommInitRank(&comm, ranks, id, rank) != ncclSuccess) {
    comm = nullptr;
    result = ErrorOf(rank, "ncclCommInitRank");
  } else if (!GpusWanted() && axcclStreamCreate(&stream, axcclStreamNonBlocking) != ncclSuccess) {
    result = ErrorOf(rank, "axcclStreamCreate");
  }
  std::unique_ptr<RankTask> task;
  if (result.ok()) {
    task = make(rank, comm, stream);
    result = task->Run();
  }
  if (!result.ok()) {
    failed(result.status());
    if (comm != nullptr) (void)ncclCommAbort(comm);
    comm = nullptr;
  }
  task.reset();
  if (stream != nullptr) (void)axcclStreamDestroy(stream);
  if (comm != nullptr && ncclCommDestroy(comm) != ncclSuccess) {
    result = ErrorOf(rank, "ncclCommDestroy");
    failed(result.status());
  }
  return result;
}

Result<std::vector<RankResult>> RunRanksHere(int ranks, RankRange here, const MakeTask& make) {
  if (here.count > kMostRanks)
    return MakeStatus(Code::kInvalidUsage, "the program has %d ranks; at most %d can run in a process", here.count,
                      kMostRanks);
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess)
    return MakeStatus(Code::kSystemError, "ncclGetUniqueId: %s", ncclGetLastError(nullptr));
  std::vector<RankResult> results(static_cast<size_t>(ranks));
  FirstError first;
  // Ranks wait for each other, so none begins before there are threads for all.
  std::promise<bool> begin;
  const std::shared_future<bool> begins = begin.get_future().share();
  const auto run = [&](int rank) {
    if (!begins.get()) return;
    Result<RankResult> result = RunRank(ranks, rank, id, make, [&](const Status& status) { first.Set(status); });
    if (result.ok()) results[static_cast<size_t>(rank)] = std::move(result.value());
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = here.first; rank < here.first + here.count; ++rank) threads.emplace_back(run, rank);
    begin.set_value(true);
  } catch (const std::system_error& error) {
    first.Set(SystemError(error.code().value(), "thread %zu of %d ranks", threads.size(), here.count));
    begin.set_value(false);
  }
  for (std::thread& thread : threads) thread.join();
  if (const Status status = first.Get(); !status.ok()) return status;
  return results;
}

Result<std::vector<RankResult>> RunRanksOnThreads(int ranks, const MakeTask& make) {
  return RunRanksHere(ranks, {0, ranks}, make);
}

}  // namespace axccl::tools
