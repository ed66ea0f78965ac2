// The programs of a process, which its communicators share because they depend only on their keys.
//
// A plan has the operations of all ranks, so its size grows with the square of their number; plans of broadcasts from
// every root grow with the cube. So a rank keeps its own program and only the head of the plan. The plan itself stays
// while other ranks of the process may request their programs. Unused ones are kept up to a limit. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "src/algo/algo.h"
#include "src/base/lru_cache.h"
#include "src/base/status.h"
#include "src/exec/prepared/program.h"
#include "src/plan/contract.h"
#include "src/plan/placement.h"

namespace axccl::comm {

class Programs {
 public:
  struct Request {
    plan::Contract contract;
    std::string_view algorithm;
    int lanes = 1;
    int rank = 0;
    plan::Placement placement = {};
    int sharers = 1;                          // ranks of the group in this process, or more
    bool whole = false;                       // with the operations of all ranks, as GPU ranks need them
    algo::Chunking chunking = {.slices = 0};  // slices above 0: a plan with slices
    bool messages = false;                    // some ranks have mirrors of others, whatever the placement
  };
  struct Usage {
    size_t plans = 0, plan_bytes = 0;        // that are kept
    size_t programs = 0, program_bytes = 0;  // that are kept
    uint64_t made = 0;                       // plans so far
    double verify_seconds = 0;
  };

  static Programs& Process();
  // The limits on what is kept in addition to what is in use.
  Programs(size_t most_plan_bytes, size_t most_program_bytes)
      : plans_(most_plan_bytes), programs_(most_program_bytes) {}

  Result<std::shared_ptr<const exec::Program>> Get(const Request& request);
  Usage usage() const;

 private:
  using PlanKey = std::tuple<plan::Kind, int, int, std::string, int, plan::Placement, int, bool, algo::ChunkOrder>;
  using Key = std::tuple<PlanKey, int, bool, bool>;
  struct Known {
    exec::ProgramMaker maker;
    std::shared_ptr<const plan::Plan> head;  // the plan without operations
    std::set<int> served;                    // ranks
  };

  Result<Known*> GetPlan(const PlanKey& key, const Request& request);
  std::shared_ptr<const exec::Program> FindUsed(const Key& key);
  void NoteUsed(const Key& key, const std::shared_ptr<const exec::Program>& program);

  mutable std::mutex mutex_;
  LruCache<PlanKey, Known> plans_;
  LruCache<Key, std::shared_ptr<const exec::Program>> programs_;
  std::map<Key, std::weak_ptr<const exec::Program>> used_;  // every program that may still exist
  size_t next_sweep_ = 64;
  uint64_t made_ = 0;
  double verify_seconds_ = 0;
};

}  // namespace axccl::comm
