// One rank's part of a plan, flattened for execution. Immutable; shared by all operations that use the plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/exec/prepared/outbound.h"
#include "src/plan/plan.h"

namespace axccl::exec {

struct Step {
  plan::OpKind kind = plan::OpKind::kNop;
  bool finish = false;
  int16_t peer = 0;        // signal: destination or kAllPeers; wait: source
  uint16_t from_lane = 0;  // wait
  uint16_t endpoint = 0;
  uint16_t value = 0;  // signal: the value it sets; wait: the value it needs
  uint16_t num_dst = 0;
  uint16_t num_src = 0;
  uint16_t parts = 0;  // moves: number of parts
  // How many steps from this one on may run as one (plan::FindTogether).
  uint16_t together = 1;
  uint16_t chunk = 0;       // await and notify
  uint32_t operands = 0;    // moves: first of num_dst + num_src operands
  uint32_t data_parts = 0;  // moves: first of `parts` entries of Program::data_parts
};

// Which of a rank's buffers other ranks read or write where they are.
struct BuffersForOthers {
  bool input = false, output = false;
};

struct Program {
  std::shared_ptr<const plan::Plan> plan;  // without its operations, unless those of other ranks are needed
  const char* algorithm = "";              // its name, static text
  int rank = 0;
  std::vector<std::vector<Step>> lanes;
  std::vector<plan::Operand> operands;
  // Which part of a tile the i-th part of a move is, and therefore its length: a slot is as long as the data that it
  // holds.
  std::vector<uint16_t> data_parts;
  size_t prologue = 0;  // direct plans: steps of lane 0 in the exchange that announces buffers
  // Slots that may live in an endpoint's line, as plan::Schedule::inline_endpoint, -1 if two slots share one. All -1 if
  // several slots are moved at a time.
  std::vector<int16_t> inline_endpoint;
  size_t max_operands = 0;  // of one step
  bool multicast = false;   // some operands are slots of all ranks; then its slots are where these are
  BuffersForOthers for_others;
  // Of all ranks together: the same numbers on each rank.
  size_t plan_ops = 0, plan_operands = 0;
  std::shared_ptr<const Outbound> outbound;  // if ranks are on several machines and the plan has no operations

  size_t bytes() const;  // without the plan

  // The program of one rank alone. It keeps the plan.
  static Result<std::shared_ptr<const Program>> Make(std::shared_ptr<const plan::Plan> plan, int rank);
};

// Makes the programs of the ranks of a plan. What takes a look at the operations of all ranks is found once, so the
// programs of all together take as long as the plan has operations. Immutable.
class ProgramMaker {
 public:
  static Result<ProgramMaker> Of(std::shared_ptr<const plan::Plan> plan);

  const std::shared_ptr<const plan::Plan>& plan() const { return plan_; }
  // The program does not keep the plan: the caller sets what it is to keep.
  std::shared_ptr<Program> Make(int rank) const;
  size_t bytes() const;  // without the plan

 private:
  std::shared_ptr<const plan::Plan> plan_;
  // The parts of each move of a strand, one move after the other.
  std::vector<std::vector<uint16_t>> data_parts_;  // [rank * lanes + lane]
  // See Program.
  std::vector<int16_t> inline_endpoint_;
  std::vector<BuffersForOthers> for_others_;  // by rank
  size_t plan_ops_ = 0, plan_operands_ = 0;
};

}  // namespace axccl::exec
