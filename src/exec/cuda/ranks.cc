#include "src/exec/cuda/ranks.h"

#include <mutex>
#include <vector>

#include "src/exec/cuda/rank.h"

namespace axccl::exec {
namespace {

struct AllRanks {
  std::mutex mutex;
  std::vector<CudaRank*> all;
};

AllRanks& Process() {
  static AllRanks* const ranks = new AllRanks;
  return *ranks;
}

}  // namespace

void EnterCudaRank(CudaRank* rank) {
  const std::lock_guard lock(Process().mutex);
  Process().all.push_back(rank);
}

void LeaveCudaRank(CudaRank* rank) {
  const std::lock_guard lock(Process().mutex);
  std::erase(Process().all, rank);
}

// Only tries to lock the ranks, so that it does not matter in which order others lock them.
void IfRanksAreIdle(const CudaRank* caller, const std::function<void()>& action) {
  const std::lock_guard lock(Process().mutex);
  std::vector<std::unique_lock<std::mutex>> launching;
  for (CudaRank* const rank : Process().all) {
    if (rank != caller && !launching.emplace_back(rank->launching(), std::try_to_lock).owns_lock()) return;
    if (!rank->idle()) return;
  }
  action();
}

}  // namespace axccl::exec
