// The running machine: decoded instructions, warps and blocks. A warp keeps one column of 32 values, one per lane, for
// each virtual register; an instruction is a handler that iterates over the active lanes of its columns.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tools/softgpu/engine/bulk.h"
#include "tools/softgpu/engine/engine.h"
#include "tools/softgpu/engine/ptx_ir.h"
#include "tools/softgpu/engine/trace.h"

namespace softgpu::engine {

constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffff;
constexpr uint32_t kBarriers = 16;
constexpr uint32_t kMultiprocessors = 132;

struct Instr;
struct Block;
struct Procedure;
struct CallSite;
class Decoder;
class Warp;
class ExecutionState;

// A column: index of its first value among the registers, or, below zero, among the program's constants.
using ColumnId = int32_t;
constexpr ColumnId kSinkColumn = 0;
// A predicate as a source: index * 2, plus 1 to negate. Predicate 0 is always true; predicate 1 is written and never
// read.
using PredicateId = uint32_t;
constexpr PredicateId kTrue = 0;
constexpr uint32_t kSinkPredicate = 1;
constexpr uint32_t kCarryPredicate = 2;

using Handler = void (*)(Warp&, const Instr&, uint32_t lanes);

// Lanes that arrived at the same warp-wide instruction (or at its twins in several places).
struct SyncGroup {
  const Instr* instr;
  uint32_t lanes;
};
using Collective = void (*)(Warp&, std::span<const SyncGroup>);

enum class Order : uint8_t { kPlain, kRelaxed, kAcquire, kRelease, kAcqRel };

struct Instr {
  Handler run = nullptr;
  Collective collective = nullptr;
  PredicateId guard = kTrue;
  uint32_t target = 0;  // branch: pc; branch by a table, call: index of that
  ColumnId d = kSinkColumn, d2 = kSinkColumn;
  ColumnId a = kSinkColumn, b = kSinkColumn, c = kSinkColumn, e = kSinkColumn;
  uint32_t pd = kSinkPredicate, pd2 = kSinkPredicate;  // predicate targets
  PredicateId pa = kTrue, pb = kTrue, pc = kTrue;      // predicate sources
  int64_t offset = 0;                                  // of an address; or an immediate of the operation
  uint8_t count = 1;                                   // elements of a vector
  uint8_t bytes = 0;                                   // of an element
  Order order = Order::kPlain;
  Space space = Space::kGeneric;
  uint8_t kind = 0;  // the family's own sub-operation
  uint8_t kind2 = 0;
  bool flag = false;
  bool saturate = false, flush = false;
  uint8_t hint = 0;    // distinguishes instructions that stay within one address range each
  ColumnId v[8] = {};  // elements of a vector; more sources
  const StatementIr* statement = nullptr;
};

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kDynamicSharedSize,
  kTotalSharedSize,
  kZero,
  kOne,
  kEnvironment1,
  kEnvironment2,
  kLocalBase,
  kParameterBase,
  kDynamicShared,
};
// A column that is filled in when a lane enters its procedure.
struct SpecialColumn {
  Special special;
  int64_t addend;
  ColumnId column;
};

// Uninitialised memory, because most of it is never used.
template <class T>
using RawArray = std::unique_ptr<T[]>;
template <class T>
RawArray<T> MakeRaw(uint64_t count) {
  return std::make_unique_for_overwrite<T[]>(count);
}

// Memory of blocks that have ended, for the next launch: fresh pages take longer than what most launches do.
// Thread-safe.
class SpareMemory {
 public:
  struct Piece {
    RawArray<uint64_t> words;
    uint64_t count = 0;
  };
  Piece Take(uint64_t count);
  void Put(Piece piece);

 private:
  static constexpr size_t kMost = 64;
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

// A pc is the number of a procedure and the number of an instruction in it.
constexpr uint32_t kProcedureBits = 18;
constexpr size_t kMostProcedures = (size_t{1} << (32 - kProcedureBits)) - 1;

// Bytes that move between two places of a thread's local memory (or columns) at a call or a return.
struct Passing {
  int32_t from = 0, to = 0;  // offsets of local memory
  uint32_t bytes = 0;        // 0: a register, then these are columns
};
struct CallSite {
  int32_t procedure = -1;  // index; < 0: by address
  std::vector<Passing> results, arguments;
};
// A function inside a program. Its registers and variables have fixed places, so a recursive call saves them first.
// This does not support a recursive function that passes the address of its own local array down: the callee's array is
// there then.
struct Procedure {
  const FunctionIr* function = nullptr;
  uint32_t entry = 0;  // pc
  ColumnId first_value = 0, last_value = 0;
  uint32_t first_predicate = 0, last_predicate = 0;
  uint32_t local_begin = 0, local_end = 0;
  bool recursive = false;
  // What follows exists once it is ready (Program::Ready).
  std::atomic<bool> ready{false};
  std::string error;  // why it never will be
  std::vector<Instr> code;
  std::vector<SpecialColumn> specials;
  std::vector<std::vector<uint32_t>> branch_tables;
  std::vector<CallSite> calls;
  std::vector<Passing> results, parameters;  // `to`/`from` of the formal ones; the call has the other side
};

// A kernel that is ready to run, with the functions that it calls. These are decoded when they are called first:
// kernels that switch over types consist of many functions, of which a launch calls few.
struct Program {
  std::string name;
  std::vector<Procedure> procedures;
  RawArray<uint64_t> constants;  // columns
  uint64_t most_constants = 0;   // columns that there is room for
  uint32_t entry = 0;            // pc
  uint32_t values = 0;           // in all columns of a warp
  uint32_t predicates = 0;
  uint32_t shared_bytes = 0, local_bytes = 0;
  uint64_t const_begin = 0, const_end = 0;  // the module's .const variables
  bool reads_shared_in_bulk = false;
  std::shared_ptr<Decoder> decoder;
  mutable SpareMemory spare;  // of blocks

  // Null if the function cannot be run, as `error` says. Thread-safe.
  const Procedure* Ready(int32_t index, std::string* error) const;
  // An instruction that has been run, or is about to be.
  const Procedure& ProcedureAt(uint32_t pc) const { return procedures[pc >> kProcedureBits]; }
  const Instr& At(uint32_t pc) const {
    const Procedure& procedure = ProcedureAt(pc);
    return procedure.code[pc - procedure.entry];
  }
};

// The calls that a lane has entered.
struct Frame {
  uint32_t return_to = 0;
  const CallSite* call = nullptr;
  const Procedure* procedure = nullptr;
  std::vector<uint64_t> saved;  // of a recursive procedure
  std::vector<std::byte> saved_local;
};

class Warp {
 public:
  // Hot: used by every instruction.
  uint64_t* values = nullptr;
  const uint64_t* constants = nullptr;
  uint32_t* predicates = nullptr;
  uint32_t active = 0;    // lanes that run now, all at `pc`
  uint32_t pc = 0;        // the next instruction
  uint32_t stop = 0;      // leave the loop when pc gets here; 0 requests a new choice of lanes
  int64_t budget = 0;     // instructions left in this burst
  int64_t forfeited = 0;  // and instructions that were given up
  int64_t burst_length = 0;

  Block* block = nullptr;
  ExecutionState* execution = nullptr;
  const Program* program = nullptr;
  uint32_t index = 0;  // in its block
  uint32_t lanes = 0;  // that exist
  uint32_t exited = 0;
  uint32_t blocked = 0;          // in a barrier or waiting for other lanes
  uint32_t cluster_pending = 0;  // has arrived at barrier.cluster, but not all have
  uint32_t waiting = 0;          // the part of `blocked` that waits for other lanes of this warp
  uint32_t lane_pc[kWarpLanes] = {};
  uint32_t member_mask[kWarpLanes] = {};
  std::vector<std::vector<Frame>> frames;  // per lane; empty until the first call

  // What the burst did, to distinguish waiting from working.
  bool progressed = false, looped = false, slept = false, fair = false;
  uint32_t repeats = 0;
  uint32_t turn = 0;
  uint64_t idle_epoch = 0;
  bool fenced = false;               // it ran a fence
  const void* recent_polls[4] = {};  // what a fence acquires; only for ThreadSanitizer
  uint32_t recent_poll = 0;
  struct PollEntry {
    uint64_t key = 0, value = 0;
  } polls[32];
  std::unique_ptr<WarpTrace> trace;  // null: the launch is not traced

  const uint64_t* In(ColumnId column) const { return column >= 0 ? values + column : constants - column; }
  uint64_t* Out(ColumnId column) { return values + column; }
  uint32_t Predicate(PredicateId id) const { return predicates[id >> 1] ^ (0u - (id & 1)); }
  void SetPredicate(uint32_t index, uint32_t lanes_written, uint32_t bits) {
    predicates[index] = (predicates[index] & ~lanes_written) | (bits & lanes_written);
  }

  uint32_t live() const { return lanes & ~exited; }
  uint32_t runnable() const { return live() & ~blocked; }
  bool diverged() const { return active != live(); }

  // Moves some of the active lanes to `target`; they are no longer active.
  void Detach(uint32_t part, uint32_t target);
  void Exit(uint32_t part);
  // Stops lanes until Unblock(); they continue at `resume`.
  void BlockLanes(uint32_t part, uint32_t resume);
  void Unblock(uint32_t part);
  // Called for a synchronising load (or an atomic that changed nothing): equal values identify waiting loops.
  void Poll(const Instr& instr, uint64_t address_hash, uint64_t value_hash);
  // Ends the burst after the present instruction.
  void Yield();
  // Releases lanes that waited for others that have arrived or exited.
  void RecheckWaiting();
  // Ends the launch with an error about the lane.
  void Fail(const Instr& instr, uint32_t lane, const std::string& what);

  // Runs up to `instructions`; returns how many were run.
  uint64_t Burst(uint64_t instructions);
  void Start(Block* owner, uint32_t warp_index);
  // The special registers of a procedure that the lane is about to run.
  void FillSpecials(const Procedure& procedure, uint32_t lane);

 private:
  bool Select();
  void WriteBack();
  void RunTraced(const Procedure& procedure);
};

// Lanes of one warp in a barrier.
struct Arrival {
  Warp* warp;
  const Instr* instr;
  uint32_t lanes;
};
struct Barrier {
  std::vector<Arrival> arrivals;
  uint32_t expected = 0;  // 0: all threads of the block
  uint32_t true_count = 0;
};

struct Block {
  ExecutionState* execution = nullptr;
  uint32_t id[3] = {};
  uint64_t linear = 0;
  std::byte* shared = nullptr;
  uint32_t shared_bytes = 0;
  std::byte* local = nullptr;  // one thread after the other
  uint32_t local_stride = 0;
  uint64_t local_bytes = 0;
  uint32_t threads = 0, live_threads = 0;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  BulkUnit bulk;
  // barrier.cluster, of a cluster of one block
  uint32_t cluster_arrived = 0;
  std::vector<Arrival> cluster_waiting;
  // Registers and local variables; not cleared, because PTX writes them before it reads them.
  SpareMemory::Piece storage;
  std::vector<uint32_t> predicate_storage;
  std::unique_ptr<std::byte[]> shared_storage;

  // Adds the lanes to the barrier; releases all if they were the last.
  void Arrive(uint32_t barrier, const Arrival& arrival, uint32_t expected, uint32_t true_count, bool wait);
  void ArriveCluster(const Arrival& arrival);
  void WaitCluster(const Arrival& arrival);
  // Called when threads have exited, so fewer are expected.
  void RecheckBarriers();

 private:
  void ReleaseIfComplete(uint32_t barrier);
  void WriteReduction(const Arrival& arrival, const Barrier& barrier);
  void ReleaseClusterIfComplete();
  uint32_t Count(const Barrier& barrier) const;
};

// Calls f(lane) for each of the lanes.
template <class F>
inline void ForLanes(uint32_t lanes, F&& f) {
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) f(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(static_cast<uint32_t>(std::countr_zero(lanes)));
  }
}

// A column's value as a type, and back (narrow values are kept zero-extended).
template <class T>
inline T As(uint64_t value) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(value);
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(static_cast<uint32_t>(value));
  if constexpr (sizeof(T) == 2) return std::bit_cast<T>(static_cast<uint16_t>(value));
  if constexpr (sizeof(T) == 1) return std::bit_cast<T>(static_cast<uint8_t>(value));
}
template <class T>
inline uint64_t Bits(T value) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<uint64_t>(value);
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
  if constexpr (sizeof(T) == 2) return std::bit_cast<uint16_t>(value);
  if constexpr (sizeof(T) == 1) return std::bit_cast<uint8_t>(value);
}

}  // namespace softgpu::engine
