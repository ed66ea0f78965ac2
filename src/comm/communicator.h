// A communicator on the side of one rank: its peers, its channels, and its state.
//
// Made by Setup (setup.h) once all ranks agree; shared by the API handle and the running work. It is closed when the
// handle is destroyed or aborted, and freed when the last work has dropped it. Thread-safe; calls of several threads
// get some order, which must be the same on all ranks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/base/status.h"
#include "src/comm/block.h"
#include "src/comm/channels.h"
#include "src/comm/control_exchange.h"
#include "src/comm/failure.h"
#include "src/comm/net/notices.h"
#include "src/comm/pair_channels.h"
#include "src/comm/settings.h"
#include "src/cost/machine.h"
#include "src/device/host/stream.h"
#include "src/device/host/waiting.h"
#include "src/exec/channel/channel.h"
#include "src/exec/platform/rank_device.h"
#include "src/tune/tune.h"
#include "transports/shm/heap.h"

namespace axccl::comm {

struct Identity {
  int rank = 0;
  int ranks = 1;
  exec::DeviceId device;
  uint64_t hash = 0;  // the same on all ranks, for logs
  std::string name;
};

class Communicator : public exec::ChannelOwner, public NoticeListener {
 public:
  // Takes the block and the device only once nothing can throw any more: peers may already use them, and until then the
  // caller decides how to give them up. `crowding`: the ranks that a processor of this rank has to serve.
  Communicator(Identity identity, Settings settings, std::unique_ptr<tune::Chooser> chooser,
               std::unique_ptr<Block>&& block, std::vector<exec::Member> members,
               std::vector<std::shared_ptr<transport::Reach>> reaches, std::unique_ptr<exec::RankDevice>&& device,
               int crowding);
  ~Communicator() override;

  const Identity& identity() const { return identity_; }
  const Settings& settings() const { return settings_; }
  // The device that runs the rank's calls.
  exec::RankDevice& device() const { return *device_; }
  // The host device that serves exchanges apart from the calls; on the host, the calls run there, too.
  device::host::Device* host_device() const { return host_device_; }
  // The order of launches on the default channel and the pair channels.
  const device::host::TimelinePtr& launches() const { return launches_; }
  exec::Channel* channel() { return &channel_; }
  PairChannels& pairs() { return pairs_; }
  // The channels that the application created; each has an order of its own.
  ChannelTable& channels() { return channels_; }
  const std::vector<exec::Member>& members() const { return members_; }
  // Whether the rank is on this machine.
  bool IsNear(int rank) const {
    return members_[static_cast<size_t>(rank)].machine == members_[static_cast<size_t>(identity_.rank)].machine;
  }
  const Block& block() const { return *block_; }

  // Makes memory of the application as fast to reach for peers as can be. Returns a number for Deregister, 0 if there
  // is nothing to undo. The application can do without, so the log alone tells why a buffer stays as it is.
  uint64_t Register(const void* buffer, size_t bytes);
  Status Deregister(const void* buffer, size_t bytes, uint64_t number);

  // The program of a rank of a pipeline.
  Result<std::shared_ptr<const exec::Program>> GetSlicedProgram(const plan::Contract& contract,
                                                                std::string_view algorithm,
                                                                const algo::Chunking& chunking, int rank,
                                                                bool messages);

  // exec::ChannelOwner
  bool failed() const final { return failure_.failed(); }
  Status Failure() const override { return failure_.Get(); }
  void Fail(const Status& status) override;
  Result<std::shared_ptr<const exec::Program>> GetProgram(const plan::Contract& contract, std::string_view algorithm,
                                                          int lanes, int rank,
                                                          const plan::Placement& placement) override;
  const tune::Chooser& chooser() const override { return *chooser_; }
  bool InHeap(const void* p, size_t bytes, uint64_t* offset) const override;
  Status TakeBack(const void* p, size_t bytes) override;
  bool TakenBack(const void* p, size_t bytes) const override;
  Result<std::byte*> TakeShared(uint64_t bytes, uint64_t* offset) override { return block_->Take(bytes, offset); }
  uint64_t cache_bytes() const override { return settings_.machine.RankCacheBytes(); }
  exec::Deadline deadline() const override;
  double notice_seconds() const override { return settings_.notice_seconds; }

  // The failure of this rank, or of a peer that one of its operations needs; ok when there is none. Cheap enough to be
  // called after every call: where the watchdog looks for failures, it reads what is known.
  Status AsyncError();
  // Looks for failures in memory of the host, and fails if there is one. Does not wait for the device's driver.
  void LookForFailures();
  // The same on the device (RankDevice::Attend).
  void AttendDevice();
  // Ends all operations, here and on all other ranks, and refuses new ones there, too.
  void Revoke();
  bool revoked() const { return failure_.revoked(); }
  void OnRevoked(int rank) override;
  std::vector<std::byte> OnAsked(int rank, size_t limit) override;
  // From now on, ranks of these processes are told, too.
  void Correspond(FarProcesses far);
  const FarProcesses& far() const { return far_; }
  // Ends all operations with `reason` and wakes everything that waits for them. Local; any thread.
  void Abort(const Status& reason);
  // Called after a failure: waits until ranks of other processes no longer write into this rank's buffers, which takes
  // no longer than exec::Operation::Leave. Not for a callback of a reduction, which would wait for itself.
  void WaitUntilUnreached();
  // Waits until all launches so far are done, or *give_up, or, on a device, Abort. Returns false if it gave up.
  bool WaitIdle(const std::atomic<bool>* give_up);

  // A wait may last that long from now on, running ones included; 0: forever.
  void SetTimeout(double seconds) { timeout_seconds_.store(seconds, std::memory_order_relaxed); }
  std::optional<double> set_timeout() const;

  // The exchange by which other communicators are made from this one.
  ControlExchange& control() { return control_; }

 private:
  int Sharers(int ranks) const;
  void SpreadRevoke(int by);
  void LeaveOperations();

  const Identity identity_;
  const Settings settings_;
  static constexpr double kNotSet = -1;
  const double usual_timeout_;  // AXCCL_TIMEOUT
  std::atomic<double> timeout_seconds_{kNotSet};
  const std::unique_ptr<tune::Chooser> chooser_;
  shm::Heap* const heap_;  // of the process
  std::unique_ptr<Block> block_;
  std::vector<exec::Member> members_;  // until the end
  const device::host::Crowd crowd_;
  std::vector<std::shared_ptr<transport::Reach>> reaches_;
  device::host::Device* const host_device_;
  std::unique_ptr<exec::RankDevice> device_;  // may outlive this object together with the block
  const device::host::TimelinePtr launches_;
  exec::Channel channel_;
  PairChannels pairs_;
  ChannelTable channels_{this};
  ControlExchange control_;
  RankFailure failure_;
  FarProcesses far_;
  std::atomic<bool> spread_{false};
};

// As RankDevice::LinkName.
const char* LinkName(const Communicator& comm, int peer);
// The number of processes of this machine that have ranks of the communicator.
int CountLocalProcesses(const Communicator& comm);

}  // namespace axccl::comm
