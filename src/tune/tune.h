// The choice of algorithm, lanes and tile for one operation. Deterministic in its inputs: ranks that hold the same
// Machine and filter choose the same. Thread-safe. What algorithms cost is found once a process, whichever of the
// Choosers for equal Machines asks first: only the first choice for a kind and group size is dear (it generates the
// candidates).
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

// Lanes of a communicator's ranks, at least, where they are on several machines: one works while others wait.
inline constexpr int kNetworkLanes = 4;

// What ranks may do with each other's user buffers in this operation; the weakest of all pairs.
enum class Access : uint8_t {
  kNone,    // only scratch is shared
  kCall,    // read, by system call (process_vm_readv)
  kMapped,  // loads and stores
};

struct Query {
  plan::Contract contract;
  uint64_t block_bytes = 0;  // bytes of one block
  DataType type = DataType::kFloat32;
  Access access = Access::kNone;
  bool group_order = false;  // only algorithms that the verifier finds to fold in group order (plan::Plan)
  // Blocks lie side by side in the outputs, in runs so short that they share cache lines.
  bool short_runs = false;
  // Blocks lie side by side in the inputs, in rows of a few KiB.
  bool split_rows = false;
  plan::Placement placement = {};  // of the group
};

struct Choice {
  std::string_view algorithm;
  int lanes = 1;
  uint64_t tile_bytes = 0;  // bytes of a block a lane moves in one turn; 0 = all (direct schedules)
  double seconds = 0;       // predicted time
};

// Algorithms by number, below 255, for words that ranks compare; "?" for a number that none has.
unsigned NumberOf(std::string_view algorithm);
std::string_view AlgorithmOf(unsigned number);

// What ranks so placed meet by between two operations that need it.
std::string_view BarrierAlgorithm(const plan::Placement& placement);

// Why something may not be chosen.
enum class Exclusion : uint8_t {
  kNone,
  kFilter,      // the filter does not admit the algorithm
  kNoGain,      // another one is as good or better for such a group, whatever the size
  kGroupOrder,  // it does not fold in group order
  kAccess,      // it needs the other ranks' buffers, which they do not reach
  kPushes,      // its ranks write into each other's buffers, which they only read
  kScratch,     // not even a line for each of its slots fits into the scratch
  kNoPlan,      // it has no plan for such a group
};

// One of those that are chosen from: an algorithm with so many lanes, in the tile that suits it best.
struct Candidate {
  Choice choice;  // infinite seconds where they are not known
  Exclusion excluded = Exclusion::kNone;
};

enum class Reason : uint8_t {
  kFastest,    // the shortest predicted time
  kShortRuns,  // that was direct, and blocks share cache lines, of which the model knows nothing
  kSplitRows,  // likewise, and ranks would read a part of each page
  kNoScratch,  // nothing fits
};

// A choice and what it was made from.
struct Decision {
  std::vector<Candidate> candidates;  // in the order in which they were looked at
  int chosen = -1;                    // which of them it is; -1: none of them, as nothing fits
  Choice choice;
  Reason reason = Reason::kFastest;
  bool filter_ignored = false;  // as it left nothing
};

// How often this process has found out what an algorithm costs.
uint64_t NumCosted();

// Where a predicted time goes, in seconds. The parts add up to Choice::seconds.
struct Split {
  double steps = 0;     // operations, signals and system calls, whatever the size of the data
  double copies = 0;    // bytes inside machines, as far as they are not moved while others cross
  double messages = 0;  // signals between machines, whatever they carry
  double link = 0;      // bytes between machines
};

class Chooser {
 public:
  // `filter`: NCCL_ALGO's grammar, `list` or `kind:list;kind:list`, `^list` excludes, case-insensitive; empty = all.
  // kInvalidArgument names the token that is unknown and lists the known ones. `scratch_bytes`: shared scratch a rank
  // may use per lane and rotation copy, which bounds the tile.
  static Result<std::unique_ptr<Chooser>> Create(const cost::Machine& machine, std::string_view filter,
                                                 uint64_t scratch_bytes, int max_lanes);

  // The cheapest admissible choice. Never fails: a filter that leaves nothing for a kind is ignored for it, and the log
  // says so.
  Choice Choose(const Query& query) const { return Decide(query, false).choice; }
  // The same with all there was to choose from; also times what is excluded, where it could run.
  Decision Explain(const Query& query) const { return Decide(query, true); }
  // Each part is what the time is shorter by where there is nothing to it (the link first, then messages, then copies).
  Split SplitTime(const Query& query, const Choice& choice) const;

  const cost::Machine& machine() const { return machine_; }

 private:
  Chooser() = default;
  class Costs;
  struct Rule;
  Decision Decide(const Query& query, bool time_all) const;
  std::vector<int> LaneCounts(const Query& query, std::string_view algorithm) const;
  // What is left out at a look at the candidates.
  struct Pass {
    bool filtered;  // by the filter
    bool paying;    // what does not pay
  };
  Exclusion Exclude(const Query& query, std::string_view algorithm, Pass pass) const;
  void Weigh(const Query& query, Pass pass, bool time_all, std::vector<Candidate>* candidates) const;
  void Try(const Query& query, Candidate* candidate) const;
  cost::Machine machine_;
  uint64_t scratch_bytes_ = 0;
  int max_lanes_ = 1;
  std::shared_ptr<const Rule> rule_;
};

}  // namespace axccl::tune
