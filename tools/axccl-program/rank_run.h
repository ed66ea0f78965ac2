// One rank's run of a program on the host, as a client of the library: collectives by the public API on channels in
// group order, so their bits are those of the reference; local operations by what its caller gives for them. A value is
// freed after its last use (liveness.h), and one that was sent when it has been received. A rank has one channel for
// each group of its collectives, and for each pair of ranks and channel number of its messages: some 4000 at most,
// which is the limit of a communicator.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "axccl/axccl.h"
#include "src/base/status.h"
#include "src/program/liveness.h"
#include "src/program/reference.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

// Used by one thread.
class RankRun {
 public:
  // All of these must outlive it. The calls of the rank are on `stream`, whose work it waits for.
  RankRun(const program::Program& program, const program::Liveness& liveness, int rank, ncclComm_t comm,
          axcclStream_t stream, const RunOptions& options, const program::Observer& observer);
  ~RankRun();
  RankRun(const RankRun&) = delete;

  // Inputs are of the types of the part's arguments. An error names rank, operation and what the library says. Sends
  // may be under way then, so the communicator must be aborted before this object is destroyed.
  Result<program::Tensors> Run(const program::Tensors& inputs);
  // Of all values that were alive at the same time, inputs included; as program::Simulate predicts it. What only a
  // message holds that is under way does not count, as that depends on when others receive it.
  size_t peak_bytes() const { return peak_; }
  // For each repetition, from the barrier until this rank had its outputs and others what it has sent.
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  using Shared = std::shared_ptr<const program::Tensor>;
  using Values = std::vector<Shared>;

  Result<Values> Execute(const program::Function& function, Values arguments);
  Result<Values> Execute(const program::Operation& operation);
  Result<Values> ExecuteWithoutExceptions(const program::Operation& operation);
  Result<program::Tensors> RunPart(const program::Function& function, const program::Tensors& inputs);
  Status WaitForAll();
  Status WaitForSent();
  Result<Values> While(const program::Operation& operation, Values carried);
  Result<Values> Collect(const program::Operation& operation, const Values& operands);
  Status Send(const program::Operation& operation, const Shared& value);
  // Drops what has been sent.
  Status DropSent();
  Result<Values> Receive(const program::Operation& operation);
  // The channel of a group's collectives, or that with this number of messages from ranks[0] to ranks[1].
  Result<axcclChannel_t> ChannelOf(const program::Ints& ranks, int64_t number);
  Status Call(const program::Operation& operation, const program::Ints& ranks, std::span<const axcclView_t> in,
              std::span<const axcclView_t> out, axcclChannel_t channel);
  Status Check(ncclResult_t result, const program::Operation& operation) const;
  Shared Keep(program::Tensor tensor) { return Count(std::make_shared<const program::Tensor>(std::move(tensor))); }
  Shared Count(Shared tensor);
  // The same tensor, not counted.
  static Shared Uncounted(const Shared& value) { return std::get_deleter<Counted>(value)->tensor; }
  Values Get(const std::vector<program::Id>& ids) const;
  void Drop(std::span<const program::Id> ids);

  const program::Program& program_;
  const program::Liveness& liveness_;
  const int rank_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
  const RunOptions& options_;
  const program::Observer& observer_;
  std::vector<double> seconds_;
  size_t live_ = 0, peak_ = 0;  // values that are dropped change them
  // What a value is, besides counted.
  struct Counted {
    Shared tensor;
    size_t* live;
    void operator()(const program::Tensor* dropped) const { *live -= dropped->bytes.size(); }
  };
  std::unordered_map<program::Id, Shared> values_;
  std::map<std::pair<int64_t, program::Ints>, axcclChannel_t> channels_;
  // The stream of each channel of messages, and those under way on it.
  struct Sending {
    axcclStream_t stream = nullptr;
    Values values;
  };
  std::map<axcclChannel_t, Sending> sending_;
  std::map<int64_t, std::deque<Shared>> to_itself_;  // messages, by channel number
};

// What a rank says of its run.
struct RankReport {
  uint64_t peak_bytes = 0;      // RankRun::peak_bytes
  std::vector<double> seconds;  // RankRun::seconds
};

// Of all ranks, as RunOnThreads returns it. Either may be null.
void PassOn(const std::vector<RankReport>& reports, std::vector<uint64_t>* peaks, std::vector<double>* steps);

// A rank from its first call of the library to its last, on the calling thread. An error is passed to `failed` before
// the communicator is aborted: what other ranks say after that is its consequence. `report`: of the run.
Result<program::Tensors> RunRank(const program::Program& program, const program::Liveness& liveness, int rank,
                                 const ncclUniqueId& id, const program::Tensors& inputs, const RunOptions& options,
                                 const program::Observer& observer, const std::function<void(const Status&)>& failed,
                                 RankReport* report);

}  // namespace axccl::tools
