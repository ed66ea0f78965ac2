// The malloc family on the mapped heap.
#include "axccl/malloc.h"

#include <errno.h>
#include <malloc.h>

#include <cstdlib>

#include "src/api/export.h"
#include "src/base/malloc_family.h"
#include "src/base/param.h"
#include "src/base/service_fd.h"
#include "transports/shm/heap.h"
#include "transports/shm/malloc_heap.h"

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

namespace {

using shm::MallocHeap;

constexpr AxcclPlainMemory kPlain = {std::malloc, std::realloc, std::free, malloc_usable_size};

// Makes the heap if there is none. Null: there cannot be one, and memory comes from elsewhere.
const AxcclMappedMemory* MappedMemory() {
  const AxcclMappedMemory* found = MallocHeap::Find();
  if (found == nullptr && !service::Forked() && shm::Heap::Get().ok()) found = MallocHeap::Find();
  return found;
}

bool IsInHeap(const void* memory) {
  const AxcclMappedMemory* const mapped = MallocHeap::Find();
  return mapped != nullptr && AxcclIsMapped(mapped->base, mapped->bytes, memory);
}

void* TryHeap(size_t bytes, size_t alignment, bool zeroed) {
  if (bytes < MallocHeap::Threshold()) return nullptr;
  const AxcclMappedMemory* const mapped = MappedMemory();
  return mapped == nullptr ? nullptr : mapped->allocate(bytes, alignment, zeroed);
}

void* GiveMemory(size_t bytes) {
  void* const memory = TryHeap(bytes, 1, false);
  return memory != nullptr ? memory : std::malloc(bytes);
}

void* GiveZeroed(size_t count, size_t size) {
  size_t bytes = 0;
  if (!__builtin_mul_overflow(count, size, &bytes)) {
    if (void* const memory = TryHeap(bytes, 1, true)) return memory;
  }
  return std::calloc(count, size);
}

void* GiveAligned(size_t alignment, size_t bytes) {
  void* const memory = TryHeap(bytes, alignment, false);
  return memory != nullptr ? memory : std::aligned_alloc(alignment, bytes);
}

void* ResizeMemory(void* memory, size_t bytes) {
  if (memory == nullptr) return GiveMemory(bytes);
  if (!IsInHeap(memory) && (bytes < MallocHeap::Threshold() || MappedMemory() == nullptr))
    return std::realloc(memory, bytes);
  return AxcclResize(MappedMemory(), &kPlain, memory, bytes);
}

// Programs that make their buffers before their communicators ask for this.
__attribute__((constructor)) void StartEarly() {
  const auto start = [] {
    if (MallocHeap::IsPreloaded() && param::GetInt("AXCCL_MALLOC_EARLY") != 0) (void)shm::Heap::Get().ok();
    return Status();
  };
  (void)CatchAll("AXCCL_MALLOC_EARLY", start);
}

}  // namespace

AXCCL_API void* axcclMalloc(size_t size) {
  return EntryOr("axcclMalloc", static_cast<void*>(nullptr),
                 [&](const char*) -> Result<void*> { return GiveMemory(size); });
}

AXCCL_API void* axcclCalloc(size_t count, size_t size) {
  return EntryOr("axcclCalloc", static_cast<void*>(nullptr),
                 [&](const char*) -> Result<void*> { return GiveZeroed(count, size); });
}

AXCCL_API void* axcclRealloc(void* memory, size_t size) {
  return EntryOr("axcclRealloc", static_cast<void*>(nullptr),
                 [&](const char*) -> Result<void*> { return ResizeMemory(memory, size); });
}

AXCCL_API void* axcclAlignedAlloc(size_t alignment, size_t size) {
  return EntryOr("axcclAlignedAlloc", static_cast<void*>(nullptr),
                 [&](const char*) -> Result<void*> { return GiveAligned(alignment, size); });
}

AXCCL_API void axcclFree(void* memory) {
  (void)EntryInAnyProcess("axcclFree", [&](const char*) -> Status {
    if (IsInHeap(memory)) {
      MallocHeap::Find()->release(memory);
    } else {
      std::free(memory);
    }
    return Status();
  });
}

AXCCL_API size_t axcclMallocUsableSize(void* memory) {
  return EntryOr("axcclMallocUsableSize", size_t{0}, [&](const char*) -> Result<size_t> {
    return IsInHeap(memory) ? MallocHeap::Find()->usable(memory) : malloc_usable_size(memory);
  });
}
