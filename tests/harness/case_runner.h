// Runs oracle cases on a thread's communicators: buffers, call, check.
//
// Enqueue starts a case on every rank of the thread and returns without waiting, so a sequence of Enqueue calls is a
// sequence of operations without synchronisation in between. Finish waits and checks every byte: results, inputs that
// must not change, buffers the call must ignore, sentinels. All ranks enqueue the same cases in the same order; each
// rank places its buffers as it likes (Style). Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"
#include "tests/harness/oracle.h"
#include "tests/harness/random.h"

namespace axccl::harness {

enum class Choice : uint8_t { kNo, kYes, kRandom };  // random: each rank decides for each case

struct Style {
  Choice in_place = Choice::kRandom;
  Choice mem_alloc = Choice::kRandom;   // ncclMemAlloc memory, otherwise malloc
  Choice misaligned = Choice::kRandom;  // start at a multiple of the element only
};

// The built-in operation of that fold, if there is one.
ncclRedOp_t BuiltinOp(Fold fold);
// Makes the call of case `c`, with `op` if it folds.
ncclResult_t Launch(const Case& c, const void* send, void* recv, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

class CaseRunner {
 public:
  // `arena_bytes`: memory of each kind for each rank. A case that does not fit waits for the earlier ones, and fails if
  // it does not fit alone.
  CaseRunner(RankContext& context, Clique& clique, size_t arena_bytes);
  ~CaseRunner();

  // Returns false when the case could not be started or an earlier one was wrong.
  bool Enqueue(const Case& c, const Style& style, int stream = 0);
  bool Finish();
  // Enqueue and Finish.
  bool Run(const Case& c, const Style& style);

 private:
  // One rank's part in one case.
  struct Part {
    Case c;
    int member;
    GuardedArena* arena;
    void* send = nullptr;
    void* recv = nullptr;
    void* scalar = nullptr;
    bool in_place = false;
    void* ignored = nullptr;  // a buffer the call was given but must not use
    size_t ignored_bytes = 0;
  };
  struct MemberArenas {
    std::unique_ptr<GuardedArena> by_memory[2];
  };

  bool Fits(const Case& c) const;
  bool MakeRoom(const Case& c);
  Part Prepare(const Case& c, const Style& style, int member);
  void PlaceInPlace(Part* part, size_t misalignment);
  void PlaceIgnored(Part* part, Random* random);
  ncclResult_t LaunchPart(const Part& part, cudaStream_t stream);
  std::string Check(const Part& part) const;

  RankContext& context_;
  Clique& clique_;
  std::vector<MemberArenas> arenas_;
  std::vector<Part> parts_;
  bool good_ = true;
};

}  // namespace axccl::harness
