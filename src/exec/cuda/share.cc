// Chooses the memory through which the ranks of a communicator on GPUs communicate: on their devices, if every rank can
// access that of all others and data arrives; otherwise pinned host memory. In the first case ranks of several
// processes also announce their buffers to each other from then on. Also chooses the protocols (Protocols).

#include <algorithm>
#include <string>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/exec/cuda/rank.h"

namespace axccl::exec {
namespace {

struct Verdict {
  uint32_t code = 0;
  char text[380] = {};
};

// Returns the error of the first rank that has failed, empty if none has. A rank that has failed still takes part, so
// that no rank waits for it.
Result<std::string> FirstFailure(Setup* setup, size_t ranks, const Status& mine) {
  Verdict verdict;
  verdict.code = static_cast<uint32_t>(mine.code());
  mine.message().copy(verdict.text, sizeof(verdict.text) - 1);
  std::vector<Verdict> verdicts(ranks);
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&verdict, sizeof(verdict), verdicts.data()));
  for (Verdict& other : verdicts) {
    other.text[sizeof(other.text) - 1] = 0;
    if (other.code != 0) return Printable(other.text[0] != 0 ? other.text : "unknown");
  }
  return std::string();
}

Status AgreeOnProtocols(Setup* setup, CudaRank* rank, size_t ranks) {
  const Protocols mine = rank->allowed();
  std::vector<Protocols> allowed(ranks);
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&mine, sizeof(mine), allowed.data()));
  rank->Agree(allowed);
  return Status();
}

// Returns why the blocks cannot be on the devices; empty if they can.
Result<std::string> TryDevices(Setup* setup, CudaRank* rank, const cuda_ipc::Blocks::Hosts& hosts) {
  const cuda_ipc::BlockAddress mine = rank->address();
  std::vector<cuda_ipc::BlockAddress> addresses(hosts.size());
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&mine, sizeof(mine), addresses.data()));
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, FirstFailure(setup, hosts.size(), rank->Connect(addresses, hosts)));
  if (!reason.empty()) return reason;
  return FirstFailure(setup, hosts.size(), rank->TestLinks());
}

}  // namespace

Status CudaRank::Share(Setup* setup, const std::vector<Member>& members) {
  cuda_ipc::Blocks::Hosts hosts;
  for (const Member& member : members) hosts.push_back(member.reach);
  one_process_ = std::all_of(hosts.begin(), hosts.end(), [](const auto* host) { return host->same_process(); });
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, TryDevices(setup, this, hosts));
  if (!reason.empty()) {
    AXCCL_INFO(kInit, "rank %d meets its peers in pinned memory of the host, not of the devices: %s", rank(),
               reason.c_str());
    // No rank may free its block on a device before all have unmapped it, which they have when all have reached
    // ShareMemory.
    Disconnect();
    AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte*> blocks, setup->ShareMemory(layout_.bytes));
    AXCCL_RETURN_IF_ERROR(blocks_.MapHost(blocks, hosts));
    return AgreeOnProtocols(setup, this, members.size());
  }
  AXCCL_RETURN_IF_ERROR(AgreeOnProtocols(setup, this, members.size()));
  if (one_process_) return Status();
  const size_t table_bytes = cuda_ipc::ExportTable::Bytes(members.size());
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte*> tables, setup->ShareMemory(table_bytes));
  AXCCL_ASSIGN_OR_RETURN(buffers_, CudaBuffers::Create(*device_, static_cast<size_t>(rank()), tables, members));
  return Status();
}

}  // namespace axccl::exec
