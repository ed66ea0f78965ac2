#include "src/device/host/find_stream.h"

#include <memory>

#include "src/base/per_thread.h"
#include "src/device/host/current.h"

namespace axccl::device::host {
namespace {

// The values that CUDA's runtime passes for its two implicit streams.
const void* const kLegacyStream = reinterpret_cast<const void*>(1);
const void* const kPerThreadStream = reinterpret_cast<const void*>(2);

struct OwnStream {
  std::shared_ptr<Stream> stream;
};

// Returns a blocking stream, as CUDA's per-thread stream is: it synchronises with the NULL stream.
Result<Stream*> PerThreadStream() {
  std::shared_ptr<Stream>& own = PerThread<OwnStream>::Get().stream;
  if (own == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(const int device, ClaimDevice());
    own = std::make_shared<Stream>(device, true);
    Device::Get(device)->AddStream(own);
  }
  return own.get();
}

// Apart, because every call of the application finds its stream.
[[gnu::noinline]] Status FindUnusual(const void* handle, const char* call, Stream** stream) {
  if (handle == kLegacyStream) return Status();
  if (handle != kPerThreadStream)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: argument stream (%p) is not a live host stream; create one with axcclStreamCreate, or pass "
                      "NULL",
                      call, handle);
  Result<Stream*> own = PerThreadStream();
  if (!own.ok()) return Prefixed(call, Prefixed("the thread's own stream", own.status()));
  *stream = own.value();
  return Status();
}

}  // namespace

Status FindStream(const void* handle, const char* call, Stream** stream) {
  *stream = nullptr;
  if (handle == nullptr) return Status();
  *stream = Streams().Peek(handle);
  return *stream != nullptr ? Status() : FindUnusual(handle, call, stream);
}

}  // namespace axccl::device::host
