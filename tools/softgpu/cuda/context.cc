#include "tools/softgpu/cuda/context.h"

#include <array>

#include "tools/softgpu/cuda/module.h"
#include "tools/softgpu/cuda/of_thread.h"
#include "tools/softgpu/cuda/stream.h"

namespace softgpu::cuda {
namespace {

struct Primary {
  ContextPtr context;
  unsigned references = 0;
};

struct Primaries {
  std::mutex mutex;
  std::array<Primary, kMaxDevices> of_device;
};

Primaries& ThePrimaries() {
  static auto* const primaries = new Primaries;
  return *primaries;
}

uint64_t NextContextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void FreeMemory(CUcontext context) {
  AddressSpace& space = AddressSpace::Get();
  for (const Range& range : space.All()) {
    if (range.context == context) space.Erase(range.begin, range.kind);
  }
}

}  // namespace

Context::Context(Device* device, unsigned flags) : device_(device), flags_(flags), id_(NextContextId()) {}

ContextPtr Context::Create(Device* device, unsigned flags) {
  ContextPtr context(new Context(device, flags));
  HandlesOf<Context>().Add(context);
  return context;
}

void Context::Fail(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  error_.compare_exchange_strong(none, error);
}

ContextPtr RetainPrimary(Device* device) {
  std::lock_guard lock(ThePrimaries().mutex);
  Primary& primary = ThePrimaries().of_device[device->ordinal];
  if (primary.context == nullptr) primary.context = Context::Create(device, 0);
  ++primary.references;
  return primary.context;
}

CUresult ReleasePrimary(Device* device) {
  ContextPtr ended;
  {
    std::lock_guard lock(ThePrimaries().mutex);
    Primary& primary = ThePrimaries().of_device[device->ordinal];
    if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.references > 0) return CUDA_SUCCESS;
    ended = std::move(primary.context);
  }
  Dismantle(ended);
  return CUDA_SUCCESS;
}

CUresult ResetPrimary(Device* device) {
  ContextPtr ended;
  {
    std::lock_guard lock(ThePrimaries().mutex);
    Primary& primary = ThePrimaries().of_device[device->ordinal];
    ended = std::move(primary.context);
    primary = {};
  }
  if (ended != nullptr) Dismantle(ended);
  return CUDA_SUCCESS;
}

bool PrimaryActive(Device* device, unsigned* flags) {
  std::lock_guard lock(ThePrimaries().mutex);
  const Primary& primary = ThePrimaries().of_device[device->ordinal];
  *flags = primary.context == nullptr ? 0 : primary.context->flags();
  return primary.context != nullptr;
}

ContextPtr ActivePrimary(Device* device) {
  std::lock_guard lock(ThePrimaries().mutex);
  return ThePrimaries().of_device[device->ordinal].context;
}

std::vector<ContextPtr>& ContextStack() { return OfThread<std::vector<ContextPtr>>(); }

ContextPtr CurrentContext() {
  const std::vector<ContextPtr>& stack = ContextStack();
  return stack.empty() ? nullptr : stack.back();
}

void Dismantle(const ContextPtr& context) {
  SynchronizeContext(context);
  HandlesOf<Context>().Remove(context.get());
  DropModules(context);
  FreeMemory(context->handle());
  std::vector<StreamPtr> streams;
  StreamPtr legacy;
  {
    const StreamLock lock = LockStreams();
    streams.swap(context->streams);
    legacy.swap(context->legacy_stream);
  }
  for (const StreamPtr& stream : streams) HandlesOf<Stream>().Remove(stream.get());
}

}  // namespace softgpu::cuda
