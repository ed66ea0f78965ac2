// The choice of algorithm, lanes and tile for one operation. Deterministic in its inputs: ranks that hold the same
// Machine and filter choose the same. Thread-safe; a Chooser remembers the cost of each algorithm it has looked at,
// so that only the first choice for a kind and group size is dear (it generates the candidates).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/base/types.h"
#include "src/cost/machine.h"
#include "src/plan/contract.h"
#include "src/plan/placement.h"

namespace axccl::tune {

// What ranks may do with each other's user buffers in this operation; the weakest of all pairs.
enum class Access : uint8_t {
  kNone,    // only scratch is shared
  kCall,    // by system call (process_vm_readv and process_vm_writev)
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

class Chooser {
 public:
  // `filter`: NCCL_ALGO's grammar, `list` or `kind:list;kind:list`, `^list` excludes, case-insensitive; empty = all.
  // kInvalidArgument names the token that is unknown and lists the known ones. `scratch_bytes`: shared scratch a rank
  // may use per lane and rotation copy, which bounds the tile.
  static Result<std::unique_ptr<Chooser>> Create(const cost::Machine& machine, std::string_view filter,
                                                 uint64_t scratch_bytes, int max_lanes);

  // The cheapest admissible choice. Never fails: a filter that leaves nothing for a kind is ignored for it, and the log
  // says so.
  Choice Choose(const Query& query) const;

 private:
  Chooser() = default;
  struct Rule;
  Choice Try(const Query& query, std::string_view algorithm, int lanes) const;
  cost::Machine machine_;
  uint64_t scratch_bytes_ = 0;
  int max_lanes_ = 1;
  std::shared_ptr<const Rule> rule_;
};

}  // namespace axccl::tune
