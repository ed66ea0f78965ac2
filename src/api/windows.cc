// Windows and, as NVIDIA's nccl_device.h declares them, the teams of ranks that kernels reach by these (since 2.28) and
// the addresses of their memory (since 2.29).
#include "src/api/windows.h"

#include <atomic>
#include <utility>

#include "nccl.h"
#include "src/api/context.h"
#include "src/api/device_types.h"
#include "src/api/export.h"
#include "src/base/log.h"
#include "src/comm/call_group.h"
#include "src/comm/create.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::api {
namespace {

using comm::CommHandle;

// As with NCCL, programs get no window, and no error, where kernels could not use one.
Status RegisterForKernels(const char* call, const std::shared_ptr<CommHandle>& comm, const exec::OwnShare& share,
                          ncclWindow_t* win) {
  AXCCL_RETURN_IF_ERROR(comm->Ready(call).status());
  const exec::RankDevice& device = comm->core()->device();
  if (const Status why = device.WhyNoWindows(); !why.ok()) {
    if (share.bytes != 0)
      AXCCL_RETURN_IF_ERROR(Prefixed(call, device.CheckMemory(share.memory, share.bytes, "argument buff")));
    AXCCL_INFO(kReg, "%s gives no window (NULL): %s", call, why.message().data());
    return Status();
  }
  return MakeWindow(call, comm, comm::Making::kWindow, share, [win](const exec::Window& made) {
    std::atomic_ref<ncclWindow_t>(*win).store(static_cast<ncclWindow_t>(made.handle()), std::memory_order_release);
  });
}

// Any memory that peers can map: no kernel uses the handle.
Status RegisterForHosts(const char* call, CommHandle* comm, void* buff, size_t size, ncclWindow_t* win) {
  if (size == 0) return InvalidArgument("%s: argument size is 0; pass a buffer of at least one byte", call);
  AXCCL_RETURN_IF_ERROR(Prefixed(call, comm->core()->device().CheckMemory(buff, size, "argument buff")));
  AXCCL_ASSIGN_OR_RETURN(void* const handle, Prefixed(call, comm->AddRegion(buff, size, true)));
  *win = static_cast<ncclWindow_t>(handle);
  return Status();
}

Status Register(const char* call, ncclComm_t handle, void* buff, size_t size, ncclWindow_t* win, int flags) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
  if (win == nullptr) return InvalidArgument("%s: argument win is NULL; pass where to put the window", call);
  *win = nullptr;
  if (buff == nullptr && size != 0) return InvalidArgument("%s: argument buff is NULL; pass a buffer", call);
  if ((flags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING)) != 0)
    return InvalidArgument("%s: argument winFlags is 0x%x; pass a combination of NCCL_WIN_*", call, flags);
  const comm::Phase phase = comm->phase();
  if (phase == comm::Phase::kInitialising || phase == comm::Phase::kFailed) return comm->Ready(call).status();
  return comm->core()->device().traits().makes_windows
             ? RegisterForKernels(call, comm->shared_from_this(), {buff, size, (flags & NCCL_WIN_COLL_SYMMETRIC) != 0},
                                  win)
             : RegisterForHosts(call, &*comm, buff, size, win);
}

Status PutAddress(const char* call, Result<void*> found, void** out) {
  AXCCL_ASSIGN_OR_RETURN(*out, Prefixed(call, std::move(found)));
  return Status();
}

Status CheckOut(const char* call, void* const* out) {
  return out != nullptr ? Status() : InvalidArgument("%s: argument outPtr is NULL", call);
}

// Those of one rank.
struct Teams {
  ncclTeam world, lsa, rail;
};

Result<Teams> TeamsOf(const char* call, ncclComm_t handle) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
  const comm::Phase phase = comm->phase();
  if (phase == comm::Phase::kInitialising || phase == comm::Phase::kFailed) return comm->Ready(call).status();
  const comm::Communicator& core = *comm->core();
  if (!core.device().traits().makes_windows)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: argument comm is of a rank on the host, and teams are for kernels; ranks there reach each "
                      "other by calls",
                      call);
  const auto [rank, ranks] = std::pair(core.identity().rank, core.identity().ranks);
  const int size = exec::LsaTeamOf(core.members(), rank).size;
  return Teams{{ranks, rank, 1}, {size, rank % size, 1}, {ranks / size, rank / size, size}};
}

// The rank of a communicator, or of the LSA team, that is number `index` of another team, if the caller is `self`
// there.
int RankIn(int self, const ncclTeam& team, int index) { return self + (index - team.rank) * team.stride; }

}  // namespace

Status MakeWindow(const char* call, const std::shared_ptr<CommHandle>& comm, comm::Making what,
                  const exec::OwnShare& share, const CommHandle::TakeWindow& take) {
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<comm::MakingCall> making,
                         Prefixed(call, comm::BeginWithAll(comm->core(), what)));
  auto run = [=] { return comm->AddWindow(call, making, share, take); };
  comm::CallGroup& group = comm::CallGroup::Current();
  if (!group.open()) return run();
  group.AddJob(comm::GroupJob{comm->config().blocking, std::move(run), nullptr});
  return Status();
}

}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                               int winFlags) {
  return Entry("ncclCommWindowRegister",
               [&](const char* call) { return Register(call, comm, buff, size, win, winFlags); });
}
AXCCL_TWIN(CommWindowRegister)

AXCCL_API ncclResult_t pncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t win) {
  return Entry("ncclCommWindowDeregister", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    return win == nullptr ? Status() : Prefixed(call, comm->RemoveRegion(win, true));
  });
}
AXCCL_TWIN(CommWindowDeregister)

AXCCL_API ncclResult_t pncclWinGetUserPtr(ncclComm_t handle, ncclWindow_t win, void** outUserPtr) {
  return Entry("ncclWinGetUserPtr", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (outUserPtr == nullptr) return InvalidArgument("%s: argument outUserPtr is NULL", call);
    if (comm->FindWindow(win, outUserPtr)) return Status();
    return InvalidArgument("%s: argument win is not a live window of this communicator", call);
  });
}
AXCCL_TWIN(WinGetUserPtr)

AXCCL_API ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr) {
  return Entry("ncclGetLsaDevicePointer", [&](const char* call) -> Status {
    AXCCL_RETURN_IF_ERROR(CheckOut(call, outPtr));
    return PutAddress(call, exec::Window::AddressIn(window, offset, lsaRank), outPtr);
  });
}
AXCCL_TWIN(GetLsaDevicePointer)

AXCCL_API ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr) {
  return Entry("ncclGetPeerDevicePointer", [&](const char* call) -> Status {
    AXCCL_RETURN_IF_ERROR(CheckOut(call, outPtr));
    return PutAddress(call, exec::Window::AddressAt(window, offset, peer), outPtr);
  });
}
AXCCL_TWIN(GetPeerDevicePointer)

// As NCCL where there is no multicast: success, and no address. So is what follows.
AXCCL_API ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** outPtr) {
  return Entry("ncclGetLsaMultimemDevicePointer", [&](const char* call) -> Status {
    AXCCL_RETURN_IF_ERROR(CheckOut(call, outPtr));
    return PutAddress(call, exec::Window::AddressOfAll(window, offset, 0), outPtr);
  });
}
AXCCL_TWIN(GetLsaMultimemDevicePointer)

AXCCL_API ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle multimem,
                                                     void** outPtr) {
  return Entry("ncclGetMultimemDevicePointer", [&](const char* call) -> Status {
    AXCCL_RETURN_IF_ERROR(CheckOut(call, outPtr));
    const auto base = reinterpret_cast<uint64_t>(multimem.base);
    if (base == 0)
      return InvalidArgument("%s: argument multimem has no base; pass a handle of a device communicator", call);
    return PutAddress(call, exec::Window::AddressOfAll(window, offset, base), outPtr);
  });
}
AXCCL_TWIN(GetMultimemDevicePointer)

#define AXCCL_TEAM(name, member)                                                             \
  AXCCL_API ncclTeam pncclTeam##name(ncclComm_t comm) {                                      \
    return EntryOr("ncclTeam" #name, ncclTeam{}, [&](const char* call) -> Result<ncclTeam> { \
      AXCCL_ASSIGN_OR_RETURN(const Teams teams, TeamsOf(call, comm));                        \
      return teams.member;                                                                   \
    });                                                                                      \
  }                                                                                          \
  AXCCL_TWIN(Team##name)
AXCCL_TEAM(World, world)
AXCCL_TEAM(Lsa, lsa)
AXCCL_TEAM(Rail, rail)

AXCCL_API int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank) {
  return EntryOr("ncclTeamRankToWorld", -1, [&](const char* call) -> Result<int> {
    AXCCL_ASSIGN_OR_RETURN(const Teams teams, TeamsOf(call, comm));
    return RankIn(teams.world.rank, team, rank);
  });
}
AXCCL_TWIN(TeamRankToWorld)

AXCCL_API int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank) {
  return EntryOr("ncclTeamRankToLsa", -1, [&](const char* call) -> Result<int> {
    AXCCL_ASSIGN_OR_RETURN(const Teams teams, TeamsOf(call, comm));
    return RankIn(teams.lsa.rank, team, rank);
  });
}
AXCCL_TWIN(TeamRankToLsa)
