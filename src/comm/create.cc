#include "src/comm/create.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/comm/setup.h"
#include "src/device/host/current.h"

namespace axccl::comm {
namespace {

std::chrono::steady_clock::time_point Deadline() {
  const double seconds = param::GetSeconds("AXCCL_INIT_TIMEOUT");
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

SetupOptions MakeOptions(int rank, int ranks, DeviceId device, const Config& config, const std::atomic<bool>* abort) {
  SetupOptions options;
  options.identity.rank = rank;
  options.identity.ranks = ranks;
  options.identity.device = device;
  options.identity.name = config.name;
  options.min_lanes = config.min_lanes;
  options.deadline = Deadline();
  options.abort = abort;
  return options;
}

// The members of a new communicator in their order there, as parent ranks; each takes part in the setup through the
// parent, and those that are no members pass their turns.
class ChildExchange : public Exchange {
 public:
  ChildExchange(Exchange* parent, std::vector<int> positions) : parent_(parent), positions_(std::move(positions)) {}

  Status AllGather(const void* mine, size_t bytes, void* all) override {
    std::vector<std::byte> gathered(bytes * total_);
    AXCCL_RETURN_IF_ERROR(parent_->AllGather(mine, bytes, gathered.data()));
    for (size_t i = 0; i < positions_.size(); ++i)
      std::memcpy(static_cast<std::byte*>(all) + i * bytes, gathered.data() + bytes * static_cast<size_t>(positions_[i]),
                  bytes);
    return Status();
  }
  void Fail(const Status& reason) override { parent_->Fail(reason); }
  void set_total(size_t total) { total_ = total; }

 private:
  Exchange* const parent_;
  const std::vector<int> positions_;
  size_t total_ = 0;
};

struct SplitChoice {
  int32_t color;
  int32_t key;
};

}  // namespace

Result<bool> RanksOnGpus() {
  const std::string device = param::Get("AXCCL_DEVICE");
  if (device == "host") return false;
  // A driver does not come or go while a process runs.
  static const auto* const gpus = [] {
    auto* const found = new Result<int>(exec::NumGpus());
    if (const Status status = found->status(); !status.ok())
      AXCCL_INFO(kInit, "no GPUs: %.*s", static_cast<int>(status.message().size()), status.message().data());
    return found;
  }();
  if (device == "auto") return gpus->ok() && gpus->value() > 0 && !device::host::ChoseDevice();
  AXCCL_RETURN_IF_ERROR(gpus->status());
  if (gpus->value() == 0) return MakeStatus(Code::kInvalidUsage, "AXCCL_DEVICE=cuda: this process sees no GPU");
  return true;
}

Result<DeviceId> CurrentDevice() {
  AXCCL_ASSIGN_OR_RETURN(const bool on_gpus, RanksOnGpus());
  if (!on_gpus) {
    AXCCL_ASSIGN_OR_RETURN(const int ordinal, device::host::ClaimDevice());
    return DeviceId{ordinal, false, device::host::Device::Get(ordinal)->Hold()};
  }
  AXCCL_ASSIGN_OR_RETURN(const int gpu, exec::CurrentGpu());
  return DeviceId{gpu, true};
}

Result<std::shared_ptr<Communicator>> CreateFromId(std::span<const boot::UniqueId> ids, int rank, int ranks, DeviceId device,
                                                   const Config& config, const std::atomic<bool>* abort) {
  const SetupOptions options = MakeOptions(rank, ranks, device, config, abort);
  AXCCL_ASSIGN_OR_RETURN(auto session, boot::Session::Join(ids, rank, ranks, options.deadline, abort));
  const auto exchange = MakeBootExchange(std::move(session));
  return Setup(exchange.get(), options);
}

std::vector<Result<std::shared_ptr<Communicator>>> CreateAll(const std::vector<DeviceId>& devices, const Config& config,
                                                             const std::atomic<bool>* abort) {
  const int ranks = static_cast<int>(devices.size());
  LocalMeeting meeting(ranks);
  std::vector<Result<std::shared_ptr<Communicator>>> results(devices.size(),
                                                             Result<std::shared_ptr<Communicator>>(Status(
                                                                 Code::kInternalError, "not created")));
  auto create = [&](int rank) {
    const auto exchange = meeting.Join(rank);
    const SetupOptions options = MakeOptions(rank, ranks, devices[static_cast<size_t>(rank)], config, abort);
    results[static_cast<size_t>(rank)] = Setup(exchange.get(), options);
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(create, rank);
  create(0);
  for (std::thread& thread : threads) thread.join();
  return results;
}

Result<std::shared_ptr<Communicator>> Split(const std::shared_ptr<Communicator>& parent, int color, int key,
                                            const Config& config, const std::atomic<bool>* abort) {
  const int rank = parent->identity().rank, ranks = parent->identity().ranks;
  std::vector<int> everyone(static_cast<size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto exchange = MakeParentExchange(parent, everyone, abort);
  std::vector<SplitChoice> choices(static_cast<size_t>(ranks));
  const SplitChoice mine{color, key};
  AXCCL_RETURN_IF_ERROR(exchange->AllGather(&mine, sizeof(mine), choices.data()));

  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) {
    if (color >= 0 && choices[static_cast<size_t>(r)].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
  });
  // Each colour meets on its own from here on; ranks without one are done.
  if (members.empty()) return std::shared_ptr<Communicator>();
  std::vector<int> ascending = members;
  std::sort(ascending.begin(), ascending.end());
  const auto among = MakeParentExchange(parent, ascending, abort);
  std::vector<int> positions;
  for (const int r : members)
    positions.push_back(static_cast<int>(std::lower_bound(ascending.begin(), ascending.end(), r) - ascending.begin()));
  ChildExchange child(among.get(), positions);
  child.set_total(ascending.size());
  const int new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  SetupOptions options =
      MakeOptions(new_rank, static_cast<int>(members.size()), parent->identity().device, config, abort);
  options.inherit = &parent->settings();
  return Setup(&child, options);
}

Result<std::shared_ptr<Communicator>> Shrink(const std::shared_ptr<Communicator>& parent, const std::vector<int>& excluded,
                                             const Config& config, const std::atomic<bool>* abort) {
  std::vector<int> members;
  for (int r = 0; r < parent->identity().ranks; ++r) {
    if (!std::binary_search(excluded.begin(), excluded.end(), r)) members.push_back(r);
  }
  const auto exchange = MakeParentExchange(parent, members, abort);
  const int new_rank =
      static_cast<int>(std::find(members.begin(), members.end(), parent->identity().rank) - members.begin());
  SetupOptions options =
      MakeOptions(new_rank, static_cast<int>(members.size()), parent->identity().device, config, abort);
  options.inherit = &parent->settings();
  return Setup(exchange.get(), options);
}

}  // namespace axccl::comm
