// How long a program would take on devices that are not at hand, and how much memory.
//
// A rank has two streams, one for local operations and one for communication. Each executes its operations in the order
// of the program; one starts when its operands are there and its stream is free. A collective starts when the last rank
// of its group has come to it. A `send` keeps the communication stream of its rank for as long as the message travels,
// and waits for nobody; the message then travels once more beside the receiver's other communication, from when both
// ranks have come to it. So a rank does one communication at a time, and as ranks have links of their own, no two share
// a link. A Model tells how long an operation takes, and may put both streams into one.
//
// Live bytes follow the order of the program, by the rules of liveness.h: results are added while the operands are
// there, and what is used no more is dropped when the operation has ended. Arguments are there from the beginning. What
// only a message holds that is under way does not count. `axccl-program run` counts by the same rules.
//
// Programs must have passed Check (check.h). Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// What ranks do together. Refers to the program.
struct Transfer {
  const Operation& operation;
  const Ints& ranks;  // of the group, in its order; those of all pairs of a collective_permute; source and target
  double operand_bytes = 0, result_bytes = 0;  // of one rank, all operands and results together
};

// Used by one thread.
class Model {
 public:
  virtual ~Model() = default;
  // Of an operation that one rank executes by itself, not one with regions. 0: it needs no stream.
  virtual double LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const = 0;
  // Of a collective, or of the message of a send and its recv.
  virtual Result<double> Seconds(const Transfer& transfer) = 0;
  // Whether a rank computes and communicates at the same time.
  virtual bool overlaps() const { return true; }
  // Whether a send waits for its recv.
  virtual bool send_waits() const { return !overlaps(); }
  // Whether donated arguments are dropped after their last use.
  virtual bool drops_donated() const { return true; }
};

struct SimulateOptions {
  // The rounds of every loop whose number does not follow from constants.
  std::optional<int64_t> trips = std::nullopt;
  // The branch of every `if`: 0 is `then`, 1 `else`.
  std::optional<int> branch = std::nullopt;
  bool events = false;  // whether to keep what happened when
  // If a part needs more bytes, its memory is all that is found out: times are 0. 0: no limit.
  uint64_t most_bytes = 0;
};

struct RankTimes {
  double compute = 0;        // seconds for which the compute stream is busy
  double communication = 0;  // the same of the communication stream
  double exposed = 0;        // of these, with an idle compute stream
};

// All ranks of a part allocate the same.
struct PartMemory {
  uint64_t arguments = 0;  // bytes
  uint64_t peak = 0;
  const Operation* at = nullptr;  // the first that reaches the peak; null: the arguments
};

struct SimulatedEvent {
  const Operation* operation;
  int rank;
  bool communication;
  double begin, end;    // seconds
  uint64_t live_bytes;  // while it is executed
};

struct Simulation {
  double seconds = 0;
  std::vector<RankTimes> ranks;        // of the program
  std::vector<PartMemory> parts;       // of the program
  std::vector<SimulatedEvent> events;  // those of a rank and stream are in their order
};

// kInvalidArgument, which names part and operation, for a loop or branch about which the options must say something.
// kInvalidUsage for more than 2^23 operations of all parts, loops written out; and where sends wait, if ranks wait for
// each other for ever. Otherwise the errors are those of the model. Refers to the program.
Result<Simulation> Simulate(const Program& program, Model* model, const SimulateOptions& options = {});

}  // namespace axccl::program
