// A rank on the host: threads that drive the host device's queue run its calls.
#pragma once

#include <memory>
#include <vector>

#include "src/exec/host/channel.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::exec {

class HostRank final : public RankDevice {
 public:
  HostRank(device::host::Device* device, int rank) : device_(device), rank_(rank) {}

  device::host::Device* device() const { return device_; }

  const Platform& platform() const override { return Platform::Host(); }
  const Traits& traits() const override;
  Status Share(Setup*, const std::vector<Member>&) override { return Status(); }
  Status FindStream(void* handle, const char* call, StreamRef* stream) const override;
  Status CheckCall(const Call&) const override { return Status(); }
  Status CheckMemory(const void* memory, size_t bytes, const char* name) const override;
  std::unique_ptr<ChannelState> MakeState(const Members& members) override {
    return std::make_unique<HostChannel>(members);
  }
  Status LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) override;
  Status ReceiveAny(ChannelOwner* owner, AnySource any, StreamRef stream) override;
  Result<std::shared_ptr<Pipeline>> MakePipeline(Channel* on, std::vector<PipelinePart> parts) override;
  // Operations check their peers themselves, and end when their communicator has failed.
  Status CheckReport() override { return Status(); }
  void Abort() override {}
  void WaitIdle() override {}
  void ReleaseChannels() override {}
  void Disconnect() override {}
  bool slow_to_disconnect() const override { return false; }
  const char* LinkName(const Member& peer) const override;
  DeviceStatistics statistics() const override { return {}; }
  size_t PreparedCalls(const Channel& channel) const override { return HostChannel::Of(channel)->plans().size(); }
  void LetGoOf(const void*) override {}

 private:
  device::host::Device* const device_;
  const int rank_;
};

// Enqueues a call of a rank on `device`, which must start behind others or concurrently with others (lone_call.cc).
Status EnqueueCall(device::host::Device* device, ChannelOwner* owner, Channel* channel, const Call& call,
                   device::host::Stream* stream);

// Enqueues the calls of a group, all of ranks on the host (launch.cc).
Status LaunchOnHost(std::vector<StreamCall> calls);

}  // namespace axccl::exec
