#include "src/comm/gpu_blocks.h"

#include <algorithm>
#include <string>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/sizes.h"
#include "transports/shm/heap.h"

namespace axccl::comm {
namespace {

struct Verdict {
  uint32_t code = 0;
  char text[380] = {};
};

// What the first rank says that has failed, empty if none has. Whoever has failed still takes part, so nobody waits.
Result<std::string> FirstFailure(Exchange* exchange, size_t ranks, const Status& mine) {
  Verdict verdict;
  verdict.code = static_cast<uint32_t>(mine.code());
  mine.message().copy(verdict.text, sizeof(verdict.text) - 1);
  std::vector<Verdict> verdicts(ranks);
  AXCCL_RETURN_IF_ERROR(exchange->AllGather(&verdict, sizeof(verdict), verdicts.data()));
  for (Verdict& other : verdicts) {
    other.text[sizeof(other.text) - 1] = 0;
    if (other.code != 0) return Printable(other.text[0] != 0 ? other.text : "unknown");
  }
  return std::string();
}

Status AgreeOnProtocols(Exchange* exchange, exec::GpuRank* gpu, size_t ranks) {
  const exec::Protocols mine = gpu->allowed();
  std::vector<exec::Protocols> allowed(ranks);
  AXCCL_RETURN_IF_ERROR(exchange->AllGather(&mine, sizeof(mine), allowed.data()));
  gpu->Agree(allowed);
  return Status();
}

// Why the blocks cannot be on the devices; empty where they can.
Result<std::string> TryDevices(Exchange* exchange, exec::GpuRank* gpu, const std::vector<exec::Member>& members) {
  const cuda_ipc::BlockAddress mine = gpu->address();
  std::vector<cuda_ipc::BlockAddress> addresses(members.size());
  AXCCL_RETURN_IF_ERROR(exchange->AllGather(&mine, sizeof(mine), addresses.data()));
  AXCCL_ASSIGN_OR_RETURN(const std::string reason,
                         FirstFailure(exchange, members.size(), gpu->Connect(addresses, members)));
  if (!reason.empty()) return reason;
  return FirstFailure(exchange, members.size(), gpu->TestLinks());
}

// Memory of the heap, zeroed and kept by `block`, of every rank, as mapped here. All ranks have come here when it
// returns.
Result<std::vector<std::byte*>> ShareMemory(Exchange* exchange, size_t least_bytes, Block* block,
                                            const std::vector<std::shared_ptr<transport::PeerProcess>>& processes) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  const size_t bytes = exec::RoundUp(least_bytes, kPage);
  AXCCL_ASSIGN_OR_RETURN(void* memory, heap->Allocate(bytes, kPage));
  block->Keep(std::vector<void*>{memory});
  uint64_t offset = 0;
  if (!heap->Contains(memory, bytes, &offset))
    return MakeStatus(Code::kInternalError, "the heap does not know a block it has just given out");
  std::vector<uint64_t> offsets(processes.size());
  AXCCL_RETURN_IF_ERROR(exchange->AllGather(&offset, sizeof(offset), offsets.data()));
  std::vector<std::byte*> shared;
  for (size_t r = 0; r < processes.size(); ++r) {
    if (offsets[r] > processes[r]->heap_bytes() || bytes > processes[r]->heap_bytes() - offsets[r] ||
        offsets[r] % kPage != 0)
      return MakeStatus(Code::kRemoteError, "rank %zu announced a block outside its heap", r);
    AXCCL_ASSIGN_OR_RETURN(std::byte* const there, processes[r]->At(offsets[r], bytes));
    shared.push_back(there);
  }
  return shared;
}

}  // namespace

Status ShareGpuBlocks(Exchange* exchange, int rank, exec::GpuRank* gpu, Block* block,
                      const std::vector<exec::Member>& members,
                      const std::vector<std::shared_ptr<transport::PeerProcess>>& processes) {
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, TryDevices(exchange, gpu, members));
  if (!reason.empty()) {
    AXCCL_INFO(kInit, "rank %d meets its peers in pinned memory of the host, not of the devices: %s", rank,
               reason.c_str());
    // Before anybody frees its block on a device, all have let go of it: they have when all have told of their new
    // ones.
    gpu->Disconnect();
    AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte*> blocks,
                           ShareMemory(exchange, gpu->block_bytes(), block, processes));
    AXCCL_RETURN_IF_ERROR(gpu->ConnectOnHost(blocks));
    return AgreeOnProtocols(exchange, gpu, members.size());
  }
  AXCCL_RETURN_IF_ERROR(AgreeOnProtocols(exchange, gpu, members.size()));
  const bool one_process =
      std::all_of(members.begin(), members.end(), [](const auto& member) { return member.same_process; });
  if (one_process) return Status();
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte*> tables,
                         ShareMemory(exchange, gpu->table_bytes(), block, processes));
  return gpu->ShareBuffers(tables, members);
}

}  // namespace axccl::comm
