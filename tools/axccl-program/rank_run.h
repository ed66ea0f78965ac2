// One rank's run of a program on the host, as a client of the library: its calls by rank_calls.h, local operations by
// what its caller gives for them. A value is freed after its last use (liveness.h), and one that was sent when it has
// been received.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/program/buffer_pool.h"
#include "src/program/liveness.h"
#include "src/program/reference.h"
#include "tools/axccl-program/ranks.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

// What is the same for all ranks of a run.
struct WholeRun {
  const program::Program& program;
  const program::Liveness& liveness;
  const program::Observer& observer;
  const RunOptions& options;
  bool events = false;  // whether to keep what happened when
};

// Used by one thread.
class RankRun : public RankTask {
 public:
  // All of these must outlive it. The calls of the rank are on `stream`, whose work it waits for. Inputs are of the
  // types of the part's arguments.
  RankRun(const WholeRun& whole, const program::Tensors& inputs, int rank, ncclComm_t comm, axcclStream_t stream);

  // peak_bytes: of all values that were alive at the same time, inputs included; as program::Simulate predicts it. What
  // only a message holds that is under way does not count, as that depends on when others receive it. events: those for
  // which a simulation has some, in the order of the program; a send ends when it has been received. Of several
  // repetitions, outputs and events are those of the last. An error names rank, operation and what the library says.
  Result<RankResult> Run() override;
  // After Run, and with all other ranks. Only the observer sees what it gives.
  Status RunOnceMore();

 private:
  using Shared = RankCalls::Shared;
  using Values = std::vector<Shared>;

  Result<Values> Execute(const program::Function& function, Values arguments);
  Result<Values> Execute(const program::Operation& operation, RankEvent* event);
  Result<Values> ExecuteWithoutExceptions(const program::Operation& operation, RankEvent* event);
  Result<Values> ExecuteMeasured(const program::Operation& operation);
  Result<program::Tensors> RunPart();
  Result<program::Tensors> Repeat();
  Result<Values> While(const program::Operation& operation, Values carried);
  Result<Values> Collect(const program::Operation& operation, const Values& operands);
  Result<Values> Receive(const program::Operation& operation);
  Shared Keep(program::Tensor tensor);
  Shared Count(Shared tensor);
  // The same tensor, not counted.
  static Shared Uncounted(const Shared& value) { return std::get_deleter<Counted>(value)->tensor; }
  Values Get(const std::vector<program::Id>& ids) const;
  void Drop(std::span<const program::Id> ids);

  const WholeRun& whole_;
  const program::Tensors& inputs_;
  const int rank_;
  const program::Function* function_;  // of its part
  size_t live_ = 0, peak_ = 0;         // values that are dropped change them
  // What a value is, besides counted.
  struct Counted {
    Shared tensor;
    size_t* live;
    void operator()(const program::Tensor* dropped) const { *live -= dropped->bytes.size(); }
  };
  std::vector<double> seconds_;
  program::BufferPool pool_;  // of the values, which return to it
  std::deque<RankEvent> events_;
  RankCalls calls_;
  std::unordered_map<program::Id, Shared> values_;
};

}  // namespace axccl::tools
