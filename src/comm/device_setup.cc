#include "src/comm/device_setup.h"

#include "src/base/sizes.h"
#include "transports/shm/heap.h"

namespace axccl::comm {
namespace {

constexpr uint64_t kFirstKey = 2;  // of areas: no channel's (channels.h), nor that of a probe (net/probe.cc)

}  // namespace

Result<std::vector<exec::Setup::Shared>> DeviceSetup::ShareMemory(size_t least_bytes) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  const size_t bytes = RoundUp(least_bytes, kPage);
  AXCCL_ASSIGN_OR_RETURN(void* memory, heap->Allocate(bytes, kPage));
  block_->Keep(std::vector<void*>{memory});
  uint64_t offset = 0;
  if (!heap->Contains(memory, bytes, &offset))
    return MakeStatus(Code::kInternalError, "the heap does not know a block it has just given out");
  std::vector<uint64_t> offsets(reaches_->size());
  AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&offset, sizeof(offset), offsets.data()));
  std::vector<Shared> shared(reaches_->size());
  const uint64_t key = kFirstKey + areas_++;
  for (size_t r = 0; r < reaches_->size(); ++r) {
    const Result<std::byte*> there =
        (*reaches_)[r]->AddArea(key, static_cast<std::byte*>(memory), offsets[r], bytes, &shared[r].area);
    if (there.status().code() == Code::kRemoteError || offsets[r] % kPage != 0)
      return MakeStatus(Code::kRemoteError, "rank %zu announced a block outside its heap", r);
    AXCCL_RETURN_IF_ERROR(there.status());
    shared[r].memory = there.value();
  }
  return shared;
}

}  // namespace axccl::comm
