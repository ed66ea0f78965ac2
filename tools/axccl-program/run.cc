#include "tools/axccl-program/run.h"

#include <future>
#include <mutex>
#include <system_error>
#include <thread>

#include "axccl/axccl.h"
#include "tools/axccl-program/rank_run.h"

namespace axccl::tools {

using program::Observer;
using program::Program;
using program::Tensors;

namespace {

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

Result<std::vector<Tensors>> RunOnThreads(const Program& program, const std::vector<Tensors>& inputs,
                                          const Observer& observer, std::vector<uint64_t>* peaks,
                                          const RunOptions& options, std::vector<double>* steps) {
  if (program.ranks > kMostRanks)
    return MakeStatus(Code::kInvalidUsage, "the program has %d ranks; at most %d can run", program.ranks, kMostRanks);
  const program::Liveness liveness(program);
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess)
    return MakeStatus(Code::kSystemError, "ncclGetUniqueId: %s", ncclGetLastError(nullptr));
  std::vector<Tensors> outputs(inputs.size());
  std::vector<RankReport> reports(inputs.size());
  FirstError first;
  // Ranks wait for each other, so none begins before there are threads for all.
  std::promise<bool> begin;
  const std::shared_future<bool> begins = begin.get_future().share();
  const auto run = [&](int rank) {
    if (!begins.get()) return;
    const auto failed = [&](const Status& status) { first.Set(status); };
    const auto r = static_cast<size_t>(rank);
    Result<Tensors> result = RunRank(program, liveness, rank, id, inputs[r], options, observer, failed, &reports[r]);
    if (result.ok()) outputs[r] = std::move(result.value());
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < program.ranks; ++rank) threads.emplace_back(run, rank);
    begin.set_value(true);
  } catch (const std::system_error& error) {
    first.Set(SystemError(error.code().value(), "thread of rank %zu of %d", threads.size(), program.ranks));
    begin.set_value(false);
  }
  for (std::thread& thread : threads) thread.join();
  if (const Status status = first.Get(); !status.ok()) return status;
  PassOn(reports, peaks, steps);
  return outputs;
}

}  // namespace axccl::tools
