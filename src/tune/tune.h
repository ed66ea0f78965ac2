// The choice of algorithm, lanes and tile for one operation. Deterministic in its inputs: ranks that hold the same
// Machine and filter choose the same, whatever the floating-point modes of their threads. Thread-safe. All Choosers of
// a process for equal Machines share the costs of algorithms. Only the first choice for a kind and group size is
// expensive, because it generates the candidates.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/types.h"
#include "src/cost/machine.h"
#include "src/plan/contract.h"
#include "src/plan/placement.h"

namespace axccl::tune {

// The least number of lanes of ranks on several machines, so that one lane works while others wait.
inline constexpr int kNetworkLanes = 4;

// How ranks may access each other's user buffers in this operation; the weakest access of all pairs counts.
enum class Access : uint8_t {
  kNone,    // only scratch is shared
  kCall,    // other ranks read by system call (process_vm_readv)
  kMapped,  // other ranks use loads and stores
};

// Which operations reach the slots of all ranks at once (NVLink SHARP).
enum class Multicast : uint8_t {
  kNone,
  kStores,  // copies
  kFolds,   // also the reduction of the operation, in its type
};

struct Query {
  plan::Contract contract;
  uint64_t block_bytes = 0;  // bytes of one block
  DataType type = DataType::kFloat32;
  Access access = Access::kNone;
  bool group_order = false;  // allow only algorithms that the verifier finds to fold in group order (plan::Plan)
  // Blocks lie side by side in the outputs, in runs so short that they share cache lines.
  bool short_runs = false;
  // Blocks lie side by side in the inputs, in rows of a few KiB.
  bool split_rows = false;
  plan::Placement placement = {};  // of the group
  int sharers = 0;                 // the most of its ranks that share cores (cost::Machine); 0: those of a machine
  Multicast multicast = Multicast::kNone;
  uint64_t multicast_bytes = 0;  // the scratch of those slots, per rotation copy; 0: as much as there is of other
  uint64_t scratch_bytes = 0;    // the other, per rotation copy; 0: that of the Chooser
  uint64_t flagged_bytes = 0;    // blocks of up to so many bytes may bring their own flags (NCCL's LL and LL128)
};

// The largest block of such a call on GPUs that brings its own flags, through the slots of oneshot (Query), 0 if none.
// `words`, `rows`: NCCL's LL and LL128 are allowed.
uint64_t MostFlaggedBytes(const plan::Contract& contract, bool words, bool rows);
// How many blocks a rank of oneshot reads at most.
uint64_t ReadBlocks(const plan::Contract& contract);

struct Choice {
  std::string_view algorithm;
  int lanes = 1;
  uint64_t tile_bytes = 0;  // bytes of a block a lane moves in one turn; 0 = all (direct schedules)
  double seconds = 0;       // predicted time
};

// The number of an algorithm, below 255, for words that ranks compare, and back; "?" for a number that no algorithm
// has.
unsigned NumberOf(std::string_view algorithm);
std::string_view AlgorithmOf(unsigned number);

// The algorithm of the barrier between two operations that need one, for ranks with this placement.
std::string_view BarrierAlgorithm(const plan::Placement& placement);

// The algorithm for blocks of different sizes. Its moves are of a whole block of some rank, and have that rank's or the
// mover's input or output among their operands, so the length of each is known.
std::string_view UnevenAlgorithm(plan::Kind kind, Access access, const plan::Placement& placement);

// Why something may not be chosen.
enum class Exclusion : uint8_t {
  kNone,
  kFilter,      // the filter does not admit the algorithm
  kNoGain,      // another algorithm is as good or better for such a group, for every size
  kGroupOrder,  // it does not fold in group order
  kAccess,      // it needs the other ranks' buffers, which cannot be reached
  kPushes,      // its ranks write into each other's buffers, which can only be read
  kScratch,     // not even one line for each of its slots fits into the scratch
  kNoPlan,      // no plan exists for such a group
  kTooLarge,    // the verifier does not take its plan of so many ranks and lanes
};

// One of the alternatives: an algorithm with a number of lanes and the tile that is fastest for them.
struct Candidate {
  Choice choice;  // infinite seconds if the time is unknown
  Exclusion excluded = Exclusion::kNone;
};

enum class Reason : uint8_t {
  kFastest,    // the shortest predicted time
  kShortRuns,  // the fastest was direct, but blocks share cache lines, which the model does not cover
  kSplitRows,  // likewise, but ranks would read a part of each page
  kNoScratch,  // no candidate fits
};

// A choice and the candidates that it was made from.
struct Decision {
  std::vector<Candidate> candidates;  // in the order in which they were examined
  int chosen = -1;                    // index of the choice in `candidates`; -1: nothing fits
  Choice choice;
  Reason reason = Reason::kFastest;
  bool filter_ignored = false;  // because it admits no candidate
};

// How often this process has computed what an algorithm costs.
uint64_t NumCosted();

// The components of a predicted time, in seconds. They add up to Choice::seconds.
struct Split {
  double steps = 0;     // operations, signals and system calls, independent of the size of the data
  double copies = 0;    // bytes inside machines, except those moved while others cross between machines
  double messages = 0;  // signals between machines, whatever they carry
  double link = 0;      // bytes between machines
};

class Chooser {
 public:
  // `filter`: NCCL_ALGO's grammar, `list` or `kind:list;kind:list`, `^list` excludes, case-insensitive; empty = all.
  // kInvalidArgument names the token that is unknown and lists the known ones. `scratch_bytes`: shared scratch that the
  // lanes of a rank may use per rotation copy, which bounds the tile. `min_lanes`: of operations that are large enough,
  // as far as there are cores for them.
  static Result<std::unique_ptr<Chooser>> Create(const cost::Machine& machine, std::string_view filter,
                                                 uint64_t scratch_bytes, int max_lanes, int min_lanes = 1);

  // The cheapest admissible choice. Never fails: a filter that admits nothing for a kind is ignored for that kind,
  // which is logged.
  Choice Choose(const Query& query) const { return Decide(query, false).choice; }
  // The same with all candidates; also times the excluded ones that could run.
  Decision Explain(const Query& query) const { return Decide(query, true); }
  // Each component is the time that would be saved if it cost nothing (the link first, then messages, then copies).
  Split SplitTime(const Query& query, const Choice& choice) const;

  const cost::Machine& machine() const { return machine_; }

 private:
  Chooser() = default;
  class Costs;
  struct Rule;
  Decision Decide(const Query& query, bool time_all) const;
  std::vector<int> LaneCounts(const Query& query, std::string_view algorithm) const;
  // Which candidates one pass over them leaves out.
  struct Pass {
    bool filtered;  // those that the filter excludes
    bool paying;    // those that do not pay
  };
  Exclusion Exclude(const Query& query, std::string_view algorithm, Pass pass) const;
  void Weigh(const Query& query, Pass pass, bool time_all, std::vector<Candidate>* candidates) const;
  void Try(const Query& query, Candidate* candidate) const;
  // If what travels brings its own flags (cost::Machine); infinity if it may not.
  double PackedSeconds(const Query& query, const Choice& choice) const;
  cost::Machine machine_;
  uint64_t scratch_bytes_ = 0;
  int max_lanes_ = 1, min_lanes_ = 1;
  std::shared_ptr<const Rule> rule_;
};

}  // namespace axccl::tune
