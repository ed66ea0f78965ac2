// Checks before the calls of a group are enqueued: whether their streams fit together, all of them captured or none,
// whether their channels have room on the device, and whether all devices may access the buffers that they would.
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "src/exec/cuda/rank.h"

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Current;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::OnStream;

const Device* DeviceOf(const StreamCall& call) { return static_cast<CudaRank*>(call.device)->device(); }

std::string Describe(const StreamCall& call) {
  char text[64];
  std::snprintf(text, sizeof(text), " on stream %p", call.stream.cuda);
  return "rank " + std::to_string(static_cast<const CudaRank*>(call.device)->rank()) + " calls " +
         DescribeCall(call.call) + text;
}

// Checks two calls of a group.
Status CheckTogether(const StreamCall& a, const StreamCall& b) {
  if ((a.capture == 0) != (b.capture == 0)) {
    const bool a_is = a.capture != 0;
    return MakeStatus(Code::kInvalidUsage,
                      "%s, which is being captured, and %s, which is not; capture both (let the second "
                      "stream wait for an event of the first), or make the calls in groups of their own",
                      Describe(a_is ? a : b).c_str(), Describe(a_is ? b : a).c_str());
  }
  const bool one_device = DeviceOf(a) == DeviceOf(b);
  if (!one_device || a.capture == b.capture) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s and %s, and these streams are captured into different graphs; make one capture "
                    "of them (let the second stream wait for an event of the first), or make the calls in groups of "
                    "their own",
                    Describe(a).c_str(), Describe(b).c_str());
}

Status CheckStreams(std::vector<StreamCall>* calls) {
  const StreamCall* before = nullptr;
  for (StreamCall& call : *calls) {
    // Most groups use one stream only, so this saves a call of the driver for every further call.
    if (before != nullptr && before->stream.cuda == call.stream.cuda && DeviceOf(*before) == DeviceOf(call)) {
      call.capture = before->capture;
    } else {
      AXCCL_ASSIGN_OR_RETURN(call.capture, CaptureOf(*DeviceOf(call), static_cast<CUstream>(call.stream.cuda)));
    }
    before = &call;
  }
  std::map<const Device*, size_t> firsts;  // indices of calls
  for (size_t i = 0; i < calls->size(); ++i) {
    const size_t of_device = firsts.try_emplace(DeviceOf((*calls)[i]), i).first->second;
    for (const size_t first : {size_t{0}, of_device})
      AXCCL_RETURN_IF_ERROR(CheckTogether((*calls)[first], (*calls)[i]));
  }
  return Status();
}

}  // namespace

Result<uint64_t> CaptureOf(const Device& device, CUstream stream) {
  std::optional<Current> current;
  if (device::cuda::IsOfCurrentContext(stream)) current.emplace(device);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult result = OnStream(
      device, [&] { return Driver::Loaded().cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr); });
  AXCCL_RETURN_IF_ERROR(Check(result, "cuStreamGetCaptureInfo"));
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    return MakeStatus(Code::kInvalidUsage,
                      "an earlier error has ended the capture of stream %p; end it, and begin again",
                      static_cast<void*>(stream));
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

Status PrepareOnGpus(std::vector<StreamCall>* calls) {
  AXCCL_RETURN_IF_ERROR(CheckStreams(calls));
  for (const StreamCall& call : *calls) {
    auto* const rank = static_cast<CudaRank*>(call.device);
    if (call.local || !(IsCreated(*call.channel) || rank->links().SharesBuffers())) continue;
    const std::lock_guard lock(rank->launching());
    // Copy engines read windows, which are mapped for them.
    if (PlaceOf(call) == CudaPlace::kDefault && rank->CopiedFor(call.call)) continue;
    const Result<CudaChannel*> channel = rank->ChannelOf(call.channel, PlaceOf(call));
    if (channel.ok()) {
      AXCCL_RETURN_IF_ERROR(channel.value()->CheckBuffers(call.call));
    } else if (IsCreated(*call.channel)) {
      return channel.status();
    }
  }
  return Status();
}

}  // namespace axccl::exec
