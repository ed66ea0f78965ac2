#include "src/boot/session.h"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "src/base/param.h"

namespace axccl::boot {
namespace {

constexpr std::chrono::milliseconds kPortTime{1000};

}  // namespace

// A job that is restarted finds its port taken until the kernel has cleaned up the previous run, which takes longer the
// more memory that run had.
Result<std::unique_ptr<Hub::Lease>> ServeWhereDue(const IdFields& id, int rank, int nranks, const Patience& patience) {
  if ((id.flags & kFromEnvironment) == 0 || rank != 0) return std::unique_ptr<Hub::Lease>();
  AXCCL_ASSIGN_OR_RETURN(Hub* const hub, Hub::Get());
  const auto give_up = std::min(patience.deadline, Clock::now() + kPortTime);
  for (;;) {
    bool busy = false;
    Result<std::unique_ptr<Hub::Lease>> lease = hub->Serve(id, &busy);
    if (lease.ok() || !busy || Clock::now() >= give_up) return lease;
    const auto retry = std::min(give_up, Clock::now() + std::chrono::milliseconds(10));
    const service::Wait wait = service::PollUntil(-1, 0, retry, patience.stop);
    if (wait != service::Wait::kTimeout)
      return WaitFailed(wait, rank, nranks, ToText(id.address[0]), "waiting for the port of NCCL_COMM_ID");
  }
}

void GiveUp(const UniqueId& id, const Status& reason) {
  if (const Result<IdFields> fields = Unpack(id); fields.ok()) Hub::GiveUp(fields.value().id, reason);
}

Result<UniqueId> CreateUniqueId() {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("unique id"));
  if (sodium_init() < 0) return MakeStatus(Code::kSystemError, "unique id: libsodium finds no source of randomness");
  const std::string host_port = param::Get("NCCL_COMM_ID");
  if (!host_port.empty()) return IdFromText(host_port);
  AXCCL_ASSIGN_OR_RETURN(Hub* const hub, Hub::Get());
  return hub->Create();
}

Result<std::unique_ptr<Session>> Session::Join(const UniqueId& id, int rank, int nranks, Clock::time_point deadline,
                                               const service::Stop& stop) {
  return Join(std::span(&id, 1), rank, nranks, deadline, stop);
}

Result<std::unique_ptr<Session>> Session::Join(std::span<const UniqueId> ids, int rank, int nranks,
                                               Clock::time_point deadline, const service::Stop& stop) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("rendezvous"));
  service::BindToProcess();
  if (sodium_init() < 0) return MakeStatus(Code::kSystemError, "rendezvous: libsodium finds no source of randomness");
  if (nranks < 1 || nranks > kMaxRanks || rank < 0 || rank >= nranks) {
    return MakeStatus(Code::kInvalidArgument, "rendezvous: rank %d of nranks %d: need 0 <= rank < nranks <= %d", rank,
                      nranks, kMaxRanks);
  }
  if (ids.empty() || ids.size() > static_cast<size_t>(nranks)) {
    return MakeStatus(Code::kInvalidArgument, "rendezvous: %zu ids for %d ranks: need 1 to as many", ids.size(),
                      nranks);
  }
  // With NCCL_COMM_ID, all ids are the same.
  std::vector<IdFields> fields;
  for (const UniqueId& id : ids) {
    AXCCL_ASSIGN_OR_RETURN(const IdFields next, Unpack(id));
    if (std::none_of(fields.begin(), fields.end(), [&](const IdFields& known) { return known.id == next.id; })) {
      fields.push_back(next);
    }
  }
  const Patience patience{deadline, stop};
  if (nranks < param::GetInt("AXCCL_TREE_RANKS")) return JoinStar(fields.front(), rank, nranks, patience);
  return JoinTree(fields, rank, nranks, patience);
}

}  // namespace axccl::boot
