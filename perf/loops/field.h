// What the contestants of strided_perf share in one process: ranks, memory, and how they are timed.
//
// All processes construct one each and call the same methods in the same order. Failures end the process. Not
// thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "perf/common/exchange.h"
#include "perf/common/operands.h"

namespace axccl::perf {

// Bytes of the buffers of one rank.
struct FieldSizes {
  size_t in = 0;
  size_t out = 0;
  size_t staging = 0;
  size_t loop_in = 0;
  size_t loop_out = 0;
};

// One way to get a result.
struct Contestant {
  std::string name;
  std::string how;                     // which one, of several ways
  std::function<void()> run;           // returns when the result is complete
  std::shared_ptr<Operands> expected;  // aimed at the result; null: nothing to check
  std::function<void()> after = {};    // untimed, after the operations of a round
  // Ranks do not wait for each other. The slowest rank's median counts, not the median of the slowest: with more ranks
  // than cores, one of them is always suspended.
  bool alone = false;
};

class Field {
 public:
  // Memory that the plain loops of all ranks can access; call it before processes are forked.
  static char* MapForLoops(const FieldSizes& sizes, int ranks);

  Field(SharedPage* page, int rank, int ranks, const FieldSizes& sizes, char* for_loops);
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Exchange* exchange() { return &exchange_; }
  ncclComm_t comm() const { return comm_; }
  axcclChannel_t channel() const { return axcclDefaultChannel(comm_); }
  cudaStream_t stream() const { return axcclStreamToCuda(stream_); }
  // Memory of ncclMemAlloc.
  char* in() const { return in_; }
  char* out() const { return out_; }
  char* staging() const { return staging_; }
  // Every rank's.
  char* loop_in(int rank) const;
  char* loop_out(int rank) const;

  void Synchronize();
  // Seconds of this rank, with all ranks starting together.
  double TimeHere(const std::function<void()>& run);
  // Seconds of the slowest rank.
  double TimeOnce(const std::function<void()>& run);
  // The fastest way of `count`.
  size_t Fastest(size_t count, const std::function<void(size_t way)>& run);
  // Ends the program if a contestant's result is wrong.
  void Check(const std::string& what, const Contestant& contestant, const Sequence& sequence);
  // Seconds of each contestant: the median of several rounds in which they alternate.
  std::vector<double> Compete(const std::vector<Contestant>& contestants, int rounds);

 private:
  int rank_;
  int ranks_;
  FieldSizes sizes_;
  char* for_loops_;
  PageExchange exchange_;
  ncclComm_t comm_ = nullptr;
  axcclStream_t stream_ = nullptr;
  char* in_ = nullptr;
  char* out_ = nullptr;
  char* staging_ = nullptr;
};

}  // namespace axccl::perf
