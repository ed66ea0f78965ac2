// The measurements of one thread: set-up of its ranks' buffers and streams, warm-up, timing, data check.
//
// All threads of all processes construct one each and call the same methods in the same order; results are the same in
// all of them. Failures end the process.
#pragma once

#include <vector>

#include "perf/common/collective.h"
#include "perf/common/exchange.h"
#include "perf/common/operands.h"
#include "perf/common/report.h"
#include "perf/common/run.h"

namespace axccl::perf {

class Bench {
 public:
  Bench(Run* run, int thread, Exchange* exchange);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // The largest size that fits in memory, up to the one on the command line.
  size_t max_bytes() const { return max_bytes_; }

  // Selects type, op and root of the following calls. kMove's op index is -1.
  void Select(int type, int op, int root);
  void SetSize(size_t bytes);
  const Counts& counts() const { return counts_; }

  // Untimed operations of the selected size.
  void Warmup();
  // Times and checks one half of a row. `iterations` is filled under -I.
  Measurement Measure(bool in_place, IterationReport* iterations);

  // Failed checks of all ranks so far.
  int failed_checks() const { return failed_checks_; }

 private:
  struct Timing {
    double seconds;      // per operation, this thread
    double cpu_seconds;  // until all was enqueued
    std::vector<double> iterations;
  };

  void AgreeOnMaxBytes();
  void SetUpRanks();
  void RegisterBuffers(LocalRank* rank);
  void MakeOperands();
  Call CallOf(const LocalRank& rank, bool in_place, size_t shift) const;
  void Start(bool in_place, int iteration);
  ncclResult_t RunOne(size_t local, bool in_place, size_t shift, int step);
  ncclResult_t RunCall(size_t local, bool in_place, const Call& call);
  void Synchronize();
  Timing TimeLoop(bool in_place);
  void FillBuffers(bool in_place, uint64_t rep);
  uint64_t CountWrongHere(bool in_place) const;
  uint64_t Check(bool in_place);
  void CollectIterations(const Timing& timing, IterationReport* report);
  void UseDeviceOf(const LocalRank& rank) const;
  bool Blocks() const { return run_->options.blocking != Blocking::kNone; }
  bool OnViews() const { return run_->options.views.given; }
  // Whether the in-place columns measure an in-place form; otherwise they measure the operation with exchanged buffers.
  bool HasInPlace() const;
  bool reports() const { return run_->report != nullptr && thread_ == 0; }

  Run* run_;
  int thread_;
  Exchange* exchange_;
  const Collective& collective_;
  LocalRank* ranks_;  // this thread's
  size_t rank_count_;
  size_t max_bytes_;

  int type_ = 0;
  int op_ = 0;
  int root_ = 0;
  size_t element_bytes_ = 1;
  size_t misalignment_ = 0;
  Counts counts_;
  size_t span_ = 0;                    // bytes of a buffer that one operation spans
  std::vector<Operands> operands_[2];  // on views: of every rank of the thread, out of place and in place
  int failed_checks_ = 0;
  uint64_t rep_ = 0;
};

}  // namespace axccl::perf
