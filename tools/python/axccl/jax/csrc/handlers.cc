// The XLA FFI handler of all calls, and the C functions that axccl/jax/_world.py calls.
//
// No thread of XLA waits here for another device: XLA may have fewer threads than the process has devices, and then the
// device that is waited for would never run. A call is enqueued, and where it is not done at once, a thread of this
// extension waits for it and completes the future that XLA has been given. What XLA does next runs on that thread.
// A process with one device waits for a moment first, because the peers do not need its threads.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xla/ffi/api/ffi.h>

#include "../../csrc/large_pages.h"
#include "../../csrc/threads.h"
#include "axccl/axccl.h"
#include "operands.h"
#include "world.h"

namespace axccl::jax {
namespace {

namespace ffi = xla::ffi;

// How long a process with one device waits before another thread does. The library looks at the clock every 20 ms.
constexpr double kSecondsBeforeHandover = 0.02;

// Attributes of a call, in the order of _lowering.py.
struct Attributes {
  std::string_view call;
  int64_t world;                   // ranks of the communicator that the program was compiled for
  ffi::Span<const int64_t> ranks;  // groups of `group_size`, one after the other; none: all ranks
  int64_t group_size;
  int64_t op;
  ffi::Span<const int64_t> axes;  // two dimensions for each operand, -1: none
  ffi::Span<const int64_t> pairs;
};

// A call from its start to its end. It keeps the world, so that leaving it does not end the call.
struct Call {
  std::shared_ptr<World> world;
  Rank* rank = nullptr;
  axcclStream_t stream = nullptr;
  std::vector<Operand> in, out;
  std::vector<int64_t> numbers;  // offsets and sizes that the library reads when the stream gets there
};

ffi::Error ErrorOf(std::string_view call, ncclResult_t code, std::string text) {
  if (text.empty()) text = ncclGetErrorString(code);
  text = "axccl.jax." + std::string(call) + ": " + text;
  switch (code) {
    case ncclInvalidArgument:
      return ffi::Error::InvalidArgument(std::move(text));
    case ncclInvalidUsage:
      return ffi::Error(ffi::ErrorCode::kFailedPrecondition, std::move(text));
    case ncclTimeout:
      return ffi::Error(ffi::ErrorCode::kDeadlineExceeded, std::move(text));
    case ncclRemoteError:
      return ffi::Error(ffi::ErrorCode::kUnavailable, std::move(text));
    default:
      return ffi::Error::Internal(std::move(text));
  }
}

ffi::Future Failed(ffi::Error error) {
  ffi::Promise promise;
  ffi::Future future(promise);
  promise.SetError(std::move(error));
  return future;
}

// The index of an integer buffer's elements. False: it has another type.
bool Append(const ffi::AnyBuffer& buffer, std::vector<int64_t>* numbers) {
  const size_t count = buffer.element_count();
  if (buffer.element_type() == ffi::S64) {
    const auto* data = static_cast<const int64_t*>(buffer.untyped_data());
    numbers->insert(numbers->end(), data, data + count);
    return true;
  }
  if (buffer.element_type() != ffi::S32) return false;
  const auto* data = static_cast<const int32_t*>(buffer.untyped_data());
  numbers->insert(numbers->end(), data, data + count);
  return true;
}

std::vector<axcclView_t> Views(const std::vector<Operand>& operands) {
  std::vector<axcclView_t> views;
  for (const Operand& operand : operands) views.push_back(operand.view);
  return views;
}

// operand, output, input_offsets, send_sizes, output_offsets, recv_sizes -> output. XLA puts the result where the
// output was, or else it is copied there.
ncclResult_t EnqueueRagged(Call* call, ffi::RemainingArgs args, axcclChannel_t channel) {
  const ffi::AnyBuffer output = *args.get<ffi::AnyBuffer>(1);
  void* const result = call->out[0].view.data;
  if (output.untyped_data() != result && output.size_bytes() != 0)
    std::memcpy(result, output.untyped_data(), output.size_bytes());
  const size_t count = args.get<ffi::AnyBuffer>(2)->element_count();
  for (size_t i = 2; i < 6; ++i) {
    if (!Append(*args.get<ffi::AnyBuffer>(i), &call->numbers)) return ncclInternalError;
  }
  const int64_t* const numbers = call->numbers.data();
  return axcclRaggedAllToAll(1, &call->in[0].view, &call->out[0].view, call->in[0].first, numbers, numbers + count,
                             numbers + 2 * count, numbers + 3 * count, channel, nullptr,
                             axcclStreamToCuda(call->stream));
}

ncclResult_t Enqueue(Call* call, const Attributes& attributes, ffi::RemainingArgs args, axcclChannel_t channel) {
  const std::vector<axcclView_t> in = Views(call->in), out = Views(call->out);
  const int count = static_cast<int>(in.size());
  const auto op = static_cast<ncclRedOp_t>(attributes.op);
  const cudaStream_t stream = axcclStreamToCuda(call->stream);
  const int first = call->in[0].first, second = call->in[0].second;
  if (attributes.call == "all_reduce")
    return axcclAllReduce(count, in.data(), out.data(), op, channel, nullptr, stream);
  if (attributes.call == "all_gather")
    return axcclAllGather(count, in.data(), out.data(), first, channel, nullptr, stream);
  if (attributes.call == "reduce_scatter")
    return axcclReduceScatter(count, in.data(), out.data(), first, op, channel, nullptr, stream);
  if (attributes.call == "all_to_all")
    return axcclAllToAll(count, in.data(), out.data(), first, second, channel, nullptr, stream);
  if (attributes.call == "ppermute")
    return axcclCollectivePermute(count, in.data(), out.data(), attributes.pairs.begin(),
                                  static_cast<int>(attributes.pairs.size() / 2), channel, nullptr, stream);
  return EnqueueRagged(call, args, channel);
}

// The views of all operands; the last argument and result are tokens.
bool SetOperands(Call* call, const Attributes& attributes, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const bool reduced = attributes.call == "all_reduce" || attributes.call == "reduce_scatter";
  const size_t count = rets.size() - 1;
  call->in.resize(count);
  call->out.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const ffi::AnyBuffer in = *args.get<ffi::AnyBuffer>(i);
    const ffi::AnyBuffer out = **rets.get<ffi::AnyBuffer>(i);
    ncclDataType_t type;
    if (!TypeOf(in.element_type(), reduced, &type)) return false;
    python::AdviseLargePages(out.untyped_data(), out.size_bytes());
    call->in[i].Set(in, type, attributes.axes[2 * i], attributes.axes[2 * i + 1]);
    call->out[i].Set(out, type, attributes.axes[2 * i], attributes.axes[2 * i + 1]);
  }
  return true;
}

// Waits for the call for at most `seconds`; negative: to its end. Returns whether it has ended, with its error.
bool Wait(Call* call, std::string_view name, double seconds, ffi::Error* error) {
  const ncclResult_t result =
      seconds < 0 ? axcclStreamSynchronize(call->stream) : axcclStreamSynchronizeFor(call->stream, seconds);
  if (result == ncclInProgress) return false;
  if (result != ncclSuccess) *error = ErrorOf(name, result, ncclGetLastError(nullptr));
  call->rank->GiveBack(call->stream);
  return true;
}

void Complete(ffi::Promise promise, ffi::Error error) {
  if (error.success()) {
    promise.SetAvailable();
  } else {
    promise.SetError(std::move(error));
  }
}

ffi::Future Finish(std::shared_ptr<Call> call, std::string_view name) {
  const ffi::Promise promise;
  ffi::Future future(promise);
  ffi::Error error = ffi::Error::Success();
  const double moment = call->world->local_ranks() == 1 ? kSecondsBeforeHandover : 0;
  if (Wait(call.get(), name, moment, &error)) {
    Complete(promise, std::move(error));
    return future;
  }
  const auto wait = [call = std::move(call), promise, name = std::string(name)]() {
    ffi::Error error = ffi::Error::Success();
    (void)Wait(call.get(), name, -1, &error);
    Complete(promise, std::move(error));
  };
  // Where there is no thread, waiting here is better than an error on this rank alone.
  if (!python::RunApart(wait)) wait();
  return future;
}

ffi::Future Run(int32_t device, ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view name, int64_t world,
                ffi::Span<const int64_t> ranks, int64_t group_size, int64_t op, ffi::Span<const int64_t> axes,
                ffi::Span<const int64_t> pairs) {
  const Attributes attributes{name, world, ranks, group_size, op, axes, pairs};
  auto call = std::make_shared<Call>();
  call->world = World::Current();
  if (call->world == nullptr)
    return Failed(ErrorOf(name, ncclInvalidUsage, "there is no communicator; call axccl.jax.init() before"));
  if (call->world->size() != world)
    return Failed(ErrorOf(name, ncclInvalidUsage,
                          "compiled for a communicator of " + std::to_string(world) + " ranks, but this one has " +
                              std::to_string(call->world->size()) +
                              "; call jax.clear_caches() after axccl.jax.init()"));
  call->rank = call->world->rank(device);
  if (call->rank == nullptr)
    return Failed(ErrorOf(name, ncclInvalidUsage,
                          "device " + std::to_string(device) +
                              " has no rank; call "
                              "axccl.jax.init() after all devices have been made"));
  if (!SetOperands(call.get(), attributes, args, rets))
    return Failed(ErrorOf(name, ncclInvalidArgument, "an element type that the library does not have"));
  std::string error;
  call->stream = call->rank->TakeStream(&error);
  if (call->stream == nullptr) return Failed(ErrorOf(name, ncclSystemError, std::move(error)));
  axcclChannel_t channel = nullptr;
  ncclResult_t result = call->rank->Channel(ranks.begin(), ranks.size(), group_size, &channel);
  if (result == ncclSuccess) result = Enqueue(call.get(), attributes, args, channel);
  if (result != ncclSuccess) {
    ffi::Error failed = ErrorOf(name, result, ncclGetLastError(nullptr));
    call->rank->GiveBack(call->stream);
    return Failed(std::move(failed));
  }
  return Finish(std::move(call), name);
}

void Copy(const std::string& text, char* error, size_t bytes) {
  const size_t length = std::min(text.size(), bytes - 1);
  std::memcpy(error, text.data(), length);
  error[length] = '\0';
}

}  // namespace
}  // namespace axccl::jax

#define AXCCL_JAX_API __attribute__((visibility("default")))

// The macro below defines the function of this declaration.
extern "C" AXCCL_JAX_API XLA_FFI_Error* axccl_jax_run(XLA_FFI_CallFrame* frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(axccl_jax_run, axccl::jax::Run,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("call")
                                  .Attr<int64_t>("world")
                                  .Attr<xla::ffi::Span<const int64_t>>("ranks")
                                  .Attr<int64_t>("group_size")
                                  .Attr<int64_t>("op")
                                  .Attr<xla::ffi::Span<const int64_t>>("axes")
                                  .Attr<xla::ffi::Span<const int64_t>>("pairs"));

extern "C" {

// Returns 0, or 1 with the reason in error[0..bytes).
// ranks[i] is that of the device ids[i], of `count` in this process. timeout: seconds, negative: the library's.
AXCCL_JAX_API int axccl_jax_join(const char* id, int size, const int* ids, const int* ranks, int count, double timeout,
                                 char* error, size_t bytes) {
  ncclUniqueId meeting;
  std::memcpy(&meeting, id, sizeof(meeting));
  const std::string text = axccl::jax::World::Join(meeting, size, {ids, ids + count}, {ranks, ranks + count}, timeout);
  if (text.empty()) return 0;
  axccl::jax::Copy(text, error, bytes);
  return 1;
}

// Ends axccl_jax_join, which another thread has called, with an error. Has to be called until it returns.
AXCCL_JAX_API void axccl_jax_abandon(void) { axccl::jax::World::AbandonJoin(); }

AXCCL_JAX_API void axccl_jax_leave(void) { axccl::jax::World::Leave(); }

}  // extern "C"
