// The end of a pipeline on one rank: the channels, plans and registered memory that it keeps, and what runs it.
//
// The API's handle keeps it alive. The communicator may end before it: then only its destruction is left to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/comm/channels.h"
#include "src/comm/communicator.h"
#include "src/exec/platform/pipeline.h"
#include "src/exec/prepared/program.h"

namespace axccl::comm {

class Pipeline {
 public:
  struct Request {
    exec::Channel* on = nullptr;
    std::string on_name;
    // On one view, with slices, whose form and strides have the dimension of the slices first. For a permute, kSendRecv
    // with both sides.
    exec::Call call;
    // For a permute: positions of the rank's target and source in the group, -1: none.
    int target = -1, source = -1;
    // Copy engines are to move the data, if all ranks want that.
    bool copies = false;
  };

  // kInvalidUsage if the device has no pipelines.
  static Result<std::shared_ptr<Pipeline>> Make(Communicator* comm, const Request& request);
  ~Pipeline();

  exec::Pipeline& run() { return *run_; }
  // Gives back what belongs to the communicator, which is alive. Nothing runs any more, and nothing can.
  void Close(Communicator* comm);

  const char* algorithm() const { return algorithm_; }
  const plan::Hash& plan_hash() const { return plan_hash_; }
  size_t memory_bytes() const { return memory_bytes_ + run_->memory_bytes(); }
  // The blocks of each side, in the order in which they come or are needed.
  const std::vector<int>& Order(exec::Pipeline::Side side) const { return order_[side]; }

 private:
  struct Registration {
    const void* buffer;
    size_t bytes;
    uint64_t number;
  };

  Pipeline() = default;
  Status AddParts(Communicator* comm, const Request& request);
  Status AddPermuted(Communicator* comm, const Request& request);
  Status AddPart(Communicator* comm, const exec::Call& call, plan::Contract contract, int position,
                 std::vector<int32_t> ranks);
  void Register(Communicator* comm, const exec::PipelinePart& part);

  std::vector<exec::PipelinePart> parts_;  // until `run_` is made of them
  // Of the parts with channels; before them, of a channel on which nothing runs, if none of theirs has all ranks.
  std::vector<ChannelTable::Needs> needs_;
  std::vector<GroupChannel*> channels_;  // alive as long as this and the communicator are
  std::vector<Registration> registered_;
  std::shared_ptr<exec::Pipeline> run_;
  const char* algorithm_ = "";
  plan::Hash plan_hash_{};
  size_t memory_bytes_ = 0;
  std::vector<int> order_[2];
};

}  // namespace axccl::comm
