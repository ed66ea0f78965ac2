// Checks before the calls of a group are enqueued: whether their streams are of the ranks' devices and fit together,
// all of them captured or none, whether their channels have room on the device, and whether all devices may access the
// buffers that they would.
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "src/base/per_thread.h"
#include "src/exec/cuda/rank.h"

namespace axccl::exec {
namespace {

using device::cuda::Check;
using device::cuda::Current;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::OnStream;

const Device* DeviceOf(const StreamCall& call) { return static_cast<CudaRank*>(call.device)->device(); }

std::string DescribeWithRank(const StreamCall& call) {
  return "rank " + std::to_string(static_cast<const CudaRank*>(call.device)->rank()) + " calls " +
         DescribeCall(call.call);
}

std::string Describe(const StreamCall& call) {
  char text[64];
  std::snprintf(text, sizeof(text), " on stream %p", call.stream.cuda);
  return DescribeWithRank(call) + text;
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

// Streams of the primary contexts of devices, which a thread has asked the driver about: by handle, which another
// stream may have once this one is destroyed.
struct KnownStream {
  const Device* device = nullptr;
  unsigned long long id = 0;
};
using KnownStreams = std::unordered_map<CUstream, KnownStream>;
constexpr size_t kMostKnown = 1024;

// Finds the capture of a call's stream, and checks the stream. `is_first` on the device, whose stream is the one that
// work is enqueued on, and needs a number.
Status LookAt(StreamCall* call, bool is_first) {
  const Device& device = *DeviceOf(*call);
  const auto stream = static_cast<CUstream>(call->stream.cuda);
  std::optional<Current> current;
  if (device::cuda::IsOfCurrentContext(stream)) current.emplace(device);
  AXCCL_ASSIGN_OR_RETURN(call->capture, CaptureOf(device, stream));
  OrderedStream ordered{stream, call->capture};
  if (is_first) {
    AXCCL_ASSIGN_OR_RETURN(ordered, OrderedStream::Of(device, stream, call->capture));
    call->stream_id = ordered.id;
  }
  const Status status = CheckContextOf(device, ordered);
  return status.ok() ? status : Prefixed(DescribeWithRank(*call).c_str(), status);
}

Status CheckStreams(std::vector<StreamCall>* calls) {
  const StreamCall* before = nullptr;
  std::map<const Device*, size_t> firsts;  // indices of calls
  for (size_t i = 0; i < calls->size(); ++i) {
    StreamCall& call = (*calls)[i];
    const bool is_first = firsts.try_emplace(DeviceOf(call), i).second;
    // Most groups use one stream only, so this saves calls of the driver for every further call.
    if (before != nullptr && before->stream.cuda == call.stream.cuda && DeviceOf(*before) == DeviceOf(call)) {
      call.capture = before->capture;
    } else {
      AXCCL_RETURN_IF_ERROR(LookAt(&call, is_first));
    }
    before = &call;
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    const size_t of_device = firsts.at(DeviceOf((*calls)[i]));
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

// A number is of one stream for ever, which a handle is not; without one, the stream may be another one by now.
Status CheckContextOf(const Device& device, const OrderedStream& stream) {
  if (device::cuda::IsOfCurrentContext(stream.stream)) return Status();
  KnownStreams& all = PerThread<KnownStreams>::Get();
  const auto known = all.find(stream.stream);
  if (known != all.end() && known->second.device == &device && (stream.id == 0 || stream.id == known->second.id))
    return Status();
  CUcontext context = nullptr;
  const auto ask = [&] { return Driver::Loaded().cuStreamGetCtx(stream.stream, &context); };
  // Drivers name no context for streams of green ones.
  if (OnStream(device, ask) != CUDA_SUCCESS) return Status();
  if (context == device.context()) {
    if (all.size() == kMostKnown) all.clear();
    all[stream.stream] = {&device, stream.id};
    return Status();
  }
  AXCCL_ASSIGN_OR_RETURN(const int ordinal, Device::OrdinalOf(context));
  if (ordinal != device.ordinal())
    return MakeStatus(Code::kInvalidArgument,
                      "argument stream (%p) is of CUDA device %d, and the communicator's rank is on device %d; pass a "
                      "stream that was created on that (cudaSetDevice)",
                      static_cast<void*>(stream.stream), ordinal, device.ordinal());
  return MakeStatus(Code::kInvalidArgument,
                    "argument stream (%p) is of a context that the application has made on CUDA device %d "
                    "(cuCtxCreate), and ranks use the device's primary context; pass a stream of that (cudaSetDevice, "
                    "cuDevicePrimaryCtxRetain)",
                    static_cast<void*>(stream.stream), ordinal);
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
