// Processes that die at random moments, some while the others shrink; the survivors go on by themselves.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"

namespace axccl::tests {

struct SurvivorsTrial {
  int ranks = 4;
  std::vector<int> victims;        // each a process of its own
  std::vector<uint64_t> delay_ns;  // of each one, from when all have met
  bool lists = true;               // whether survivors name the dead that they know of
  std::string text;

  int NumberOf(int rank) const {
    return static_cast<int>(std::find(victims.begin(), victims.end(), rank) - victims.begin());
  }
  bool Dies(int rank) const { return NumberOf(rank) < static_cast<int>(victims.size()); }
  uint64_t Survivors() const {
    uint64_t mask = (uint64_t{1} << ranks) - 1;
    for (const int victim : victims) mask &= ~(uint64_t{1} << victim);
    return mask;
  }
};

inline SurvivorsTrial MakeSurvivorsTrial(uint64_t seed, int most_ranks) {
  harness::Random random(seed);
  SurvivorsTrial trial;
  trial.ranks = static_cast<int>(3 + random.Below(static_cast<uint64_t>(most_ranks - 2)));
  const uint64_t first = 5'000'000 + random.Below(20'000'000);
  const auto deaths = 1 + random.Below(std::min<uint64_t>(3, static_cast<uint64_t>(trial.ranks) - 1));
  while (trial.victims.size() < deaths) {
    const int victim = static_cast<int>(random.Below(static_cast<uint64_t>(trial.ranks)));
    if (trial.Dies(victim)) continue;
    // Those after the first die while the others notice its death, agree, or form the new communicator.
    trial.delay_ns.push_back(first + (trial.victims.empty() ? 0 : random.Below(uint64_t{1} << (18 + random.Below(8)))));
    trial.victims.push_back(victim);
  }
  trial.lists = random.OneIn(2);
  trial.text = "seed " + std::to_string(seed) + ", ranks " + std::to_string(trial.ranks) + ", dead";
  for (size_t i = 0; i < trial.victims.size(); ++i)
    trial.text += " " + std::to_string(trial.victims[i]) + " after " + std::to_string(trial.delay_ns[i] / 1000) + " us";
  return trial;
}

constexpr int kTrialDeathCell = 48;  // + the victim's number
constexpr int kTrialWorksCell = 52;  // + rank: when the survivors' communicator has worked

// Combines `mine` over all ranks.
inline ncclResult_t Combine(ncclComm_t comm, axcclStream_t stream, uint64_t mine, uint64_t* sum) {
  thread_local harness::DeviceVector<uint64_t> words(2);
  words = {mine, 0};
  const ncclResult_t result = harness::AwaitCall(
      ncclAllReduce(&words[0], &words[1], 1, ncclUint64, ncclSum, comm, harness::Cuda(stream)), stream, comm);
  *sum = words[1];
  return result;
}

// Calls until all survivors, and nobody else, are in a communicator that works.
inline void GoOn(harness::RankContext& context, const SurvivorsTrial& trial, harness::Clique* clique) {
  const uint64_t self = uint64_t{1} << context.rank();
  ncclComm_t comm = clique->comm();
  std::vector<ncclComm_t> old;
  for (uint64_t sum = 0; sum != trial.Survivors();) {
    const ncclResult_t result = Combine(comm, clique->stream(), self, &sum);
    if (result == ncclSuccess) continue;
    ASSERT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
    std::vector<int> dead;
    // Ranks have other numbers in the communicators that follow.
    for (size_t i = 0; i < trial.victims.size() && old.empty() && trial.lists; ++i) {
      if (context.Get(kTrialDeathCell + static_cast<int>(i)) != 0) dead.push_back(trial.victims[i]);
    }
    ncclComm_t rest = nullptr;
    ASSERT_TRUE(context.Step("shrink %zu", old.size()));
    ASSERT_OK(ncclCommShrink(comm, dead.data(), static_cast<int>(dead.size()), &rest, nullptr, NCCL_SHRINK_ABORT));
    old.push_back(comm);
    comm = rest;
    clique->ForgetComms();
    ASSERT_TRUE(clique->Adopt(comm));
    ASSERT_TRUE(context.Step("after shrink %zu", old.size()));
  }
  context.Set(kTrialWorksCell + context.rank(), harness::NowNs());
  int size = 0;
  EXPECT_OK(ncclCommCount(comm, &size));
  EXPECT_EQ(size, trial.ranks - static_cast<int>(trial.victims.size()));
  for (ncclComm_t one : old) EXPECT_OK(ncclCommAbort(one));
}

// Nanoseconds from the last death until all survivors' communicator has worked.
inline uint64_t TimeOf(const harness::RankContext& context, const SurvivorsTrial& trial) {
  uint64_t death = 0, works = 0;
  for (size_t i = 0; i < trial.victims.size(); ++i)
    death = std::max(death, context.Get(kTrialDeathCell + static_cast<int>(i)));
  for (int rank = 0; rank < trial.ranks; ++rank) works = std::max(works, context.Get(kTrialWorksCell + rank));
  return works > death ? works - death : 0;
}

// How long that took in each trial, in memory that all processes share.
class TrialTimes {
 public:
  explicit TrialTimes(int trials)
      : bytes_(sizeof(uint64_t) * static_cast<size_t>(trials)), trials_(static_cast<size_t>(trials)) {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    times_ = static_cast<uint64_t*>(memory);
  }
  ~TrialTimes() { munmap(times_, bytes_); }
  TrialTimes(const TrialTimes&) = delete;
  TrialTimes& operator=(const TrialTimes&) = delete;

  uint64_t& operator[](int trial) const { return times_[trial]; }
  void Print() const {
    std::vector<uint64_t> sorted(times_, times_ + trials_);
    std::sort(sorted.begin(), sorted.end());
    std::printf("from the last death to a communicator that works: median %.1f ms, longest %.1f ms of %zu\n",
                1e-6 * static_cast<double>(sorted[trials_ / 2]), 1e-6 * static_cast<double>(sorted.back()), trials_);
  }

 private:
  const size_t bytes_, trials_;
  uint64_t* times_ = nullptr;
};

inline void RunSurvivorsTrial(harness::RankContext& context, const SurvivorsTrial& trial, uint64_t* time) {
  harness::Clique clique;
  ASSERT_TRUE(clique.Init(context));
  ASSERT_TRUE(context.Barrier());
  if (!trial.Dies(context.rank())) {
    ASSERT_NO_FATAL_FAILURE(GoOn(context, trial, &clique));
    for (int rank = 0; rank < trial.ranks; ++rank) {
      if (!trial.Dies(rank)) context.Await(kTrialWorksCell + rank);
    }
    *time = TimeOf(context, trial);
    EXPECT_LT(*time, static_cast<uint64_t>(harness::AllowedNs(2000)));
    return;
  }
  std::thread([&context, &trial] {
    const auto number = static_cast<size_t>(trial.NumberOf(context.rank()));
    const uint64_t until = harness::NowNs() + trial.delay_ns[number];
    while (harness::NowNs() < until) std::this_thread::yield();
    context.Set(kTrialDeathCell + static_cast<int>(number), harness::NowNs());
    context.Die();
  }).detach();
  // Does what the others do, until it dies.
  uint64_t sum = 0;
  while (Combine(clique.comm(), clique.stream(), 1, &sum) == ncclSuccess) continue;
  ncclComm_t rest = nullptr;
  (void)ncclCommShrink(clique.comm(), nullptr, 0, &rest, nullptr, NCCL_SHRINK_ABORT);
  while (rest != nullptr && Combine(rest, clique.stream(), 1, &sum) == ncclSuccess) continue;
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

}  // namespace axccl::tests
