#include "src/comm/child_setup.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/param.h"

namespace axccl::comm {
namespace {

// The members of a new communicator in its order, as parent ranks. Each takes part in the setup through the parent;
// ranks that are not members pass their turns.
class ChildExchange : public Exchange {
 public:
  ChildExchange(Exchange* parent, std::vector<int> positions) : parent_(parent), positions_(std::move(positions)) {}

  Status AllGather(const void* mine, size_t bytes, void* all) override {
    std::vector<std::byte> gathered(bytes * total_);
    AXCCL_RETURN_IF_ERROR(parent_->AllGather(mine, bytes, gathered.data()));
    for (size_t i = 0; i < positions_.size(); ++i)
      std::memcpy(static_cast<std::byte*>(all) + i * bytes,
                  gathered.data() + bytes * static_cast<size_t>(positions_[i]), bytes);
    return Status();
  }
  void Fail(const Status& reason) override { parent_->Fail(reason); }
  void set_total(size_t total) { total_ = total; }

 private:
  Exchange* const parent_;
  const std::vector<int> positions_;
  size_t total_ = 0;
};

}  // namespace

std::chrono::steady_clock::time_point SetupDeadline() {
  const double seconds = param::GetSeconds("AXCCL_INIT_TIMEOUT");
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

SetupOptions MakeOptions(int rank, int ranks, exec::DeviceId device, const Config& config,
                         const std::atomic<bool>* abort) {
  SetupOptions options;
  options.identity.rank = rank;
  options.identity.ranks = ranks;
  options.identity.device = device;
  options.identity.name = config.name;
  options.lanes = config.lanes;
  options.spares_blocks = config.spares_blocks;
  options.mixes_graphs = config.mixes_graphs;
  options.deadline = SetupDeadline();
  options.abort = abort;
  return options;
}

int PositionOf(int rank, const std::vector<int>& group) {
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

Result<std::shared_ptr<Communicator>> SetupAmong(MakingCall* call, const std::vector<int>& members,
                                                 SetupOptions options) {
  std::vector<int> positions;
  for (const int rank : members) positions.push_back(PositionOf(rank, call->group()));
  ChildExchange child(call, positions);
  child.set_total(positions.size());
  options.inherit = &call->comm()->settings();
  options.timeout_seconds = call->comm()->set_timeout();
  return Setup(&child, options);
}

}  // namespace axccl::comm
