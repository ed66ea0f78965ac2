// Creating, ending and querying communicators.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"
#include "src/api/config.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/detached_thread.h"
#include "src/base/log.h"
#include "src/comm/call_group.h"
#include "src/comm/create.h"
#include "src/comm/shrink.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::api {
namespace {

using comm::CommHandle;
using comm::Communicator;

boot::UniqueId ToId(const ncclUniqueId& id) {
  boot::UniqueId out;
  std::memcpy(out.bytes, id.internal, sizeof(out.bytes));
  return out;
}

// Logs the line with which every NCCL program's log begins, once per process.
void LogVersion(int rank) {
  static std::atomic<bool> logged{false};
  if (rank != 0 || logged.exchange(true, std::memory_order_relaxed)) return;
  log::Write(log::Level::kVersion, ~0u, -1, "NCCL version %d.%d.%d+axccl%d.%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
             AXCCL_VERSION_CODE / 10000, AXCCL_VERSION_CODE / 100 % 100, AXCCL_VERSION_CODE % 100);
}

// Atomic, because other threads may read *out while the call is running, to abort a creation that blocks it.
void Store(ncclComm_t comm, ncclComm_t* out) {
  std::atomic_ref<ncclComm_t>(*out).store(comm, std::memory_order_release);
}

// The communicator whose call it is decides whether the call blocks, and its state shows how far the call is. As in
// NCCL, splits and shrinks are calls of the parent.
enum class CallOf { kParent, kNew };

// Puts a new communicator behind a handle and runs its creation: at once, at the end of the open group, or
// (non-blocking) in the background. *out is set at once, and cleared again if a blocking creation fails or the creation
// does not begin. Without `out` (a rank that requests no communicator from a split) there is no handle. `parent`: the
// communicator that it is made from, if any.
Status Create(const char* call, ncclComm_t* out, const comm::Config& config, CommHandle::Job job,
              CommHandle* parent = nullptr, CallOf of = CallOf::kNew) {
  const bool blocking = of == CallOf::kParent ? parent->config().blocking : config.blocking;
  auto comm =
      std::make_shared<CommHandle>(config, of == CallOf::kParent && !blocking ? parent->shared_from_this() : nullptr);
  if (parent != nullptr) parent->AddChild(comm);
  ncclComm_t handle = nullptr;
  if (out != nullptr) {
    AXCCL_RETURN_IF_ERROR(Insert(&Comms(), call, "communicators", comm, &handle));
    Store(handle, out);
  }
  auto discard = [out, handle] {
    if (out == nullptr) return;
    Comms().Remove(handle);
    Store(nullptr, out);
  };
  auto run = [call, comm, job = std::move(job), discard, blocking]() -> Status {
    const Status status =
        CatchAll(call, [&] { return blocking ? comm->Create(call, job) : comm->CreateInBackground(call, job); });
    if (!status.ok() && status.code() != Code::kInProgress) discard();
    return status;
  };
  comm::CallGroup& group = comm::CallGroup::Current();
  if (!group.open()) return run();
  const Status added = CatchAll(call, [&] {
    return group.AddJob(comm::GroupJob{blocking, std::move(run), discard}), Status();
  });
  if (!added.ok()) discard();
  return added;
}

Status InitRank(const char* call, ncclComm_t* out, int nranks, std::span<const ncclUniqueId> ids, int rank,
                const ncclConfig_t* config) {
  if (out == nullptr) return InvalidArgument("%s: argument comm is NULL; pass where to put the communicator", call);
  Store(nullptr, out);
  if (nranks < 1) return InvalidArgument("%s: argument nranks is %d; pass 1 or more", call, nranks);
  if (nranks > 4096) return InvalidArgument("%s: argument nranks is %d; at most 4096 ranks are served", call, nranks);
  if (rank < 0 || rank >= nranks) return InvalidArgument("%s: argument rank is %d; pass 0..%d", call, rank, nranks - 1);
  std::vector<boot::UniqueId> meeting;
  for (const ncclUniqueId& id : ids) {
    meeting.push_back(ToId(id));
    if (const Status status = boot::CheckUniqueId(meeting.back()); !status.ok())
      return InvalidArgument("%s: argument commId: %s", call, status.message().data());
  }
  AXCCL_ASSIGN_OR_RETURN(const comm::Config settings, ReadConfig(call, config, comm::Config()));
  LogVersion(rank);
  AXCCL_ASSIGN_OR_RETURN(const exec::DeviceId device, Prefixed(call, comm::CurrentDevice()));
  return Create(call, out, settings, [=](const std::atomic<bool>* abort) {
    return comm::CreateFromId(meeting, rank, nranks, device, settings, abort);
  });
}

Result<boot::UniqueId> MakeUniqueId(const char* call, ncclUniqueId* out) {
  if (out == nullptr) return InvalidArgument("%s: argument uniqueId is NULL; pass where to put the id", call);
  AXCCL_ASSIGN_OR_RETURN(const boot::UniqueId id, Prefixed(call, boot::CreateUniqueId()));
  std::memcpy(out->internal, id.bytes, sizeof(out->internal));
  return id;
}

// The devices of ranks that one call makes. GPUs may be shared: without a list, ranks are assigned to them in turn.
Result<std::vector<exec::DeviceId>> FindDevices(const char* call, int ndev, const int* devlist) {
  std::vector<exec::DeviceId> devices;
  AXCCL_ASSIGN_OR_RETURN(const exec::Platform* const platform, Prefixed(call, comm::CurrentPlatform()));
  AXCCL_ASSIGN_OR_RETURN(const int count, Prefixed(call, platform->Count()));
  for (int i = 0; i < ndev; ++i) {
    const int device = devlist != nullptr ? devlist[i] : i % count;
    if (device < 0 || device >= count)
      return InvalidArgument("%s: argument devlist has device %d; pass 0..%d", call, device, count - 1);
    const auto same = [device](const exec::DeviceId& other) { return other.ordinal == device; };
    if (!platform->shares_devices() && std::any_of(devices.begin(), devices.end(), same))
      return InvalidArgument("%s: argument devlist names a device twice; each rank needs a host device of its own",
                             call);
    devices.push_back(platform->Take(device));
  }
  return devices;
}

// Puts the new communicators behind `handles`: all of them, or none.
Status Hand(const char* call, const std::vector<Result<std::shared_ptr<Communicator>>>& made,
            const comm::Config& config, ncclComm_t* handles) {
  for (const auto& one : made) AXCCL_RETURN_IF_ERROR(Prefixed(call, one.status()));
  const Status given = CatchAll(call, [&] {
    for (size_t i = 0; i < made.size(); ++i) {
      auto comm = std::make_shared<CommHandle>(config);
      AXCCL_RETURN_IF_ERROR(comm->Create(call, [&](const std::atomic<bool>*) { return made[i]; }));
      AXCCL_RETURN_IF_ERROR(Insert(&Comms(), call, "communicators", std::move(comm), &handles[i]));
    }
    return Status();
  });
  if (given.ok()) return given;
  for (size_t i = 0; i < made.size(); ++i) (void)Comms().Remove(std::exchange(handles[i], nullptr));
  return given;
}

Status InitAll(const char* call, ncclComm_t* out, int ndev, const int* devlist) {
  if (out == nullptr) return InvalidArgument("%s: argument comm is NULL; pass an array of ndev communicators", call);
  if (ndev < 1 || ndev > device::host::kMaxDevices)
    return InvalidArgument("%s: argument ndev is %d; pass 1..%d", call, ndev, device::host::kMaxDevices);
  AXCCL_ASSIGN_OR_RETURN(const std::vector<exec::DeviceId> devices, FindDevices(call, ndev, devlist));
  std::fill_n(out, ndev, nullptr);
  AXCCL_ASSIGN_OR_RETURN(const comm::Config config, ReadConfig(call, nullptr, comm::Config()));
  LogVersion(0);
  const std::atomic<bool> never{false};
  return Hand(call, comm::CreateAll(devices, config, &never), config, out);
}

// Clears the place where a split, shrink or grow will put its communicator.
Status Clear(const char* call, ncclComm_t* out) {
  if (out == nullptr) return InvalidArgument("%s: argument newcomm is NULL; pass where to put the communicator", call);
  Store(nullptr, out);
  return Status();
}

// Returns the parent of a split, shrink or grow, which stays alive for a job that may run later.
Result<std::shared_ptr<CommHandle>> Parent(ncclComm_t handle, const char* call) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin pin, PinComm(handle, call));
  if (!pin->ready()) return pin->Ready(call).status();
  return pin->shared_from_this();
}

// As in NCCL, a child has its parent's settings if none are given, and else the defaults for those that are not set.
Result<comm::Config> ReadChildConfig(const char* call, const ncclConfig_t* config, const CommHandle& parent) {
  return ReadConfig(call, config, config == nullptr ? parent.config() : comm::Config());
}

// Begins a call that all ranks of `parent` make. Its place among such calls is that of this call, whenever it runs. A
// communicator that has failed, and has not been revoked, can only be shrunk.
Result<std::shared_ptr<comm::MakingCall>> Begin(const CommHandle& parent, comm::Making what, const char* call) {
  const auto& core = parent.core();
  if (!core->failed() || core->revoked()) return Prefixed(call, comm::BeginWithAll(core, what));
  const Status failure = core->Failure();
  return MakeStatus(failure.code(), "%s: the communicator has failed: %s; shrink it or abort it", call,
                    failure.message().data());
}

Status CheckExcluded(const char* call, const std::vector<int>& excluded, const comm::Identity& identity) {
  if (excluded.empty()) return Status();
  if (excluded.front() < 0 || excluded.back() >= identity.ranks)
    return InvalidArgument("%s: argument excludeRanksList has a rank outside 0..%d", call, identity.ranks - 1);
  if (std::adjacent_find(excluded.begin(), excluded.end()) != excluded.end())
    return InvalidArgument("%s: argument excludeRanksList names a rank twice", call);
  if (std::binary_search(excluded.begin(), excluded.end(), identity.rank))
    return InvalidArgument("%s: argument excludeRanksList has the calling rank %d; only ranks that stay call", call,
                           identity.rank);
  return Status();
}

Status Finalize(const char* call, ncclComm_t handle) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin pin, PinComm(handle, call));
  const auto comm = pin->shared_from_this();
  const comm::Phase phase = comm->phase();
  if (phase == comm::Phase::kFinalizing || phase == comm::Phase::kFinalized) return comm->Finalize(call);
  if (!comm->config().blocking) {
    if (phase != comm::Phase::kReady) return comm->Ready(call).status();
    return comm->FinalizeInBackground(call);
  }
  comm::CallGroup& group = comm::CallGroup::Current();
  if (!group.open()) return comm->Finalize(call);
  group.AddJob(comm::GroupJob{true, [call, comm] { return comm->Finalize(call); }, nullptr, true});
  return Status();
}

Status Destroy(const char* call, ncclComm_t handle) {
  AXCCL_ASSIGN_OR_RETURN(CommPin pin, PinComm(handle, call));
  const auto comm = pin->shared_from_this();
  pin.Drop();
  auto close = [call, comm, handle]() -> Status {
    comm->Close();
    if (Comms().Remove(handle) != nullptr) return Status();
    return InvalidArgument("%s: argument comm was destroyed by another thread meanwhile", call);
  };
  comm::CallGroup& group = comm::CallGroup::Current();
  if (!group.open()) return close();
  // As in NCCL, the communicators of a group's other calls may block or not.
  group.AddJob(comm::GroupJob{std::nullopt, close, nullptr, true});
  return Status();
}

Status Abort(const char* call, ncclComm_t handle) {
  AXCCL_ASSIGN_OR_RETURN(CommPin pin, PinComm(handle, call));
  const auto comm = pin->shared_from_this();
  pin.Drop();
  comm->Abort();
  // The call that runs this callback may be one of this thread, which has the handle pinned until it returns.
  if (CommHandle::InStep())
    return StartDetached("ending an aborted communicator", [handle] { (void)Comms().Remove(handle); });
  // Calls of other threads that are still in the communicator have seen the abort and are returning. A creation that
  // blocks another thread has removed its handle itself.
  if (Comms().Remove(handle) != nullptr || comm->phase() == comm::Phase::kFailed) return Status();
  return InvalidArgument("%s: argument comm was destroyed by another thread meanwhile", call);
}

Status Split(const char* call, ncclComm_t handle, int color, int key, ncclComm_t* out, const ncclConfig_t* config) {
  AXCCL_RETURN_IF_ERROR(Clear(call, out));
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<CommHandle> parent, Parent(handle, call));
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return InvalidArgument("%s: argument color is %d; pass 0 or more, or NCCL_SPLIT_NOCOLOR", call, color);
  AXCCL_ASSIGN_OR_RETURN(const comm::Config settings, ReadChildConfig(call, config, *parent));
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<comm::MakingCall> making, Begin(*parent, comm::Making::kSplit, call));
  auto split = [=](const std::atomic<bool>* abort) { return comm::Split(making.get(), color, key, settings, abort); };
  // As in NCCL, a rank that requests no communicator gets no handle, whether or not the call blocks.
  ncclComm_t* const place = color == NCCL_SPLIT_NOCOLOR ? nullptr : out;
  return Create(call, place, settings, std::move(split), parent.get(), CallOf::kParent);
}

Status Shrink(const char* call, ncclComm_t handle, int* exclude, int count, ncclComm_t* out, const ncclConfig_t* config,
              int flags) {
  AXCCL_RETURN_IF_ERROR(Clear(call, out));
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<CommHandle> parent, Parent(handle, call));
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
    return InvalidArgument("%s: argument shrinkFlags is %d; pass NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT", call,
                           flags);
  if (count < 0 || (exclude == nullptr && count > 0))
    return InvalidArgument(
        "%s: argument excludeRanksList is %s and excludeRanksCount %d; pass the ranks to leave out, "
        "0 of them to leave out only those that are gone",
        call, exclude == nullptr ? "NULL" : "set", count);
  std::vector<int> excluded(exclude, exclude + count);  // the caller's list stays as it is: threads may share it
  std::sort(excluded.begin(), excluded.end());
  AXCCL_RETURN_IF_ERROR(CheckExcluded(call, excluded, parent->core()->identity()));
  AXCCL_ASSIGN_OR_RETURN(const comm::Config settings, ReadChildConfig(call, config, *parent));
  if (flags == NCCL_SHRINK_ABORT) parent->Leave();
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<comm::ShrinkCall> making,
                         Prefixed(call, comm::ShrinkCall::Begin(parent->core(), excluded)));
  auto shrink = [=](const std::atomic<bool>* abort) { return making->Run(settings, abort); };
  return Create(call, out, settings, std::move(shrink), parent.get(), CallOf::kParent);
}

// The id that a communicator's rank has made for its next grow, taken for that. If the grow is not run, or present
// ranks disagree, no rank has used the id, and it goes back.
class TakenGrowId {
 public:
  explicit TakenGrowId(std::shared_ptr<CommHandle> parent) : parent_(std::move(parent)), id_(parent_->TakeGrowId()) {}
  ~TakenGrowId() { Return(); }
  TakenGrowId(const TakenGrowId&) = delete;
  TakenGrowId& operator=(const TakenGrowId&) = delete;

  const std::optional<boot::UniqueId>& id() const { return id_; }
  void Spend() { id_.reset(); }
  void Return() {
    if (id_) parent_->ReturnGrowId(*std::exchange(id_, std::nullopt));
  }

 private:
  const std::shared_ptr<CommHandle> parent_;
  std::optional<boot::UniqueId> id_;
};

// Existing ranks keep their numbers and connect to the new ones through the id, which the rank that has it sends to the
// others: as in NCCL, the one that has made it need not pass it.
Status Grow(const char* call, ncclComm_t handle, int ranks, const ncclUniqueId* unique_id, int rank, ncclComm_t* out,
            const ncclConfig_t* config) {
  AXCCL_RETURN_IF_ERROR(Clear(call, out));
  if (handle == nullptr) {
    if (unique_id == nullptr) return InvalidArgument("%s: argument uniqueId is NULL; a new rank needs the id", call);
    return InitRank(call, out, ranks, std::span(unique_id, 1), rank, config);
  }
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<CommHandle> parent, Parent(handle, call));
  const int present = parent->core()->identity().ranks;
  if (rank != -1)
    return InvalidArgument("%s: argument rank is %d; ranks of the present communicator pass -1", call, rank);
  if (ranks <= present)
    return InvalidArgument("%s: argument nRanks is %d; pass more than the present %d", call, ranks, present);
  AXCCL_ASSIGN_OR_RETURN(const comm::Config settings, ReadChildConfig(call, config, *parent));
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<comm::MakingCall> making, Begin(*parent, comm::Making::kGrow, call));
  const auto made = std::make_shared<TakenGrowId>(parent);
  const comm::GrowId known = unique_id != nullptr     ? comm::GrowId::kPassed
                             : made->id().has_value() ? comm::GrowId::kMade
                                                      : comm::GrowId::kNone;
  const boot::UniqueId id = unique_id != nullptr ? ToId(*unique_id) : made->id().value_or(boot::UniqueId{});
  auto grow = [=](const std::atomic<bool>* abort) {
    bool disagree = false;
    auto grown = comm::Grow(making.get(), ranks, known, id, settings, abort, &disagree);
    disagree ? made->Return() : made->Spend();
    return grown;
  };
  return Create(call, out, settings, std::move(grow), parent.get());
}

template <class Field>
Status AskIdentity(const char* call, ncclComm_t handle, const char* argument, int* out, const Field& field) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
  if (out == nullptr) return InvalidArgument("%s: argument %s is NULL", call, argument);
  if (comm->phase() == comm::Phase::kInitialising || comm->phase() == comm::Phase::kFailed)
    return comm->Ready(call).status();
  *out = field(comm->core()->identity());
  return Status();
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return Entry("ncclGetUniqueId", [&](const char* call) { return MakeUniqueId(call, uniqueId).status(); });
}
AXCCL_TWIN(GetUniqueId)

AXCCL_API ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return Entry("ncclCommInitRank",
               [&](const char* call) { return InitRank(call, comm, nranks, std::span(&commId, 1), rank, nullptr); });
}
AXCCL_TWIN(CommInitRank)

AXCCL_API ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                               ncclConfig_t* config) {
  return Entry("ncclCommInitRankConfig",
               [&](const char* call) { return InitRank(call, comm, nranks, std::span(&commId, 1), rank, config); });
}
AXCCL_TWIN(CommInitRankConfig)

AXCCL_API ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                                 ncclUniqueId* commIds, ncclConfig_t* config) {
  return Entry("ncclCommInitRankScalable", [&](const char* call) -> Status {
    if (commIds == nullptr) return InvalidArgument("%s: argument commIds is NULL; pass nId ids", call);
    if (nId < 1 || nId > std::max(nranks, 1))
      return InvalidArgument("%s: argument nId is %d; pass 1..nranks (%d)", call, nId, nranks);
    return InitRank(call, newcomm, nranks, std::span(commIds, static_cast<size_t>(nId)), myrank, config);
  });
}
AXCCL_TWIN(CommInitRankScalable)

AXCCL_API ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return Entry("ncclCommInitAll", [&](const char* call) { return InitAll(call, comm, ndev, devlist); });
}
AXCCL_TWIN(CommInitAll)

AXCCL_API ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return Entry("ncclCommFinalize", [&](const char* call) { return comm == nullptr ? Status() : Finalize(call, comm); });
}
AXCCL_TWIN(CommFinalize)

AXCCL_API ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return Entry("ncclCommDestroy", [&](const char* call) { return comm == nullptr ? Status() : Destroy(call, comm); });
}
AXCCL_TWIN(CommDestroy)

AXCCL_API ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return Entry("ncclCommAbort", [&](const char* call) { return comm == nullptr ? Status() : Abort(call, comm); });
}
AXCCL_TWIN(CommAbort)

AXCCL_API ncclResult_t pncclCommRevoke(ncclComm_t handle, int revokeFlags) {
  return Entry("ncclCommRevoke", [&](const char* call) -> Status {
    if (handle == nullptr) return Status();
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
      return InvalidArgument("%s: argument revokeFlags is %d; pass NCCL_REVOKE_DEFAULT", call, revokeFlags);
    if (!comm->ready()) return comm->Ready(call).status();
    return Prefixed(call, comm->Revoke());
  });
}
AXCCL_TWIN(CommRevoke)

AXCCL_API ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  return Entry("ncclCommSplit", [&](const char* call) { return Split(call, comm, color, key, newcomm, config); });
}
AXCCL_TWIN(CommSplit)

AXCCL_API ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                       ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return Entry("ncclCommShrink", [&](const char* call) {
    return Shrink(call, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}
AXCCL_TWIN(CommShrink)

AXCCL_API ncclResult_t pncclCommGetUniqueId(ncclComm_t handle, ncclUniqueId* uniqueId) {
  return Entry("ncclCommGetUniqueId", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    AXCCL_ASSIGN_OR_RETURN(const boot::UniqueId id, MakeUniqueId(call, uniqueId));
    comm->KeepGrowId(id);
    return Status();
  });
}
AXCCL_TWIN(CommGetUniqueId)

AXCCL_API ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                                     ncclComm_t* newcomm, ncclConfig_t* config) {
  return Entry("ncclCommGrow",
               [&](const char* call) { return Grow(call, comm, nRanks, uniqueId, rank, newcomm, config); });
}
AXCCL_TWIN(CommGrow)

AXCCL_API ncclResult_t pncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* asyncError) {
  return Entry("ncclCommGetAsyncError", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (asyncError == nullptr) return InvalidArgument("%s: argument asyncError is NULL", call);
    const Status status = comm->AsyncError();
    if (!status.ok() && status.code() != Code::kInProgress) RememberError(status);
    *asyncError = static_cast<ncclResult_t>(status.code());
    return Status();
  });
}
AXCCL_TWIN(CommGetAsyncError)

AXCCL_API ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return Entry("ncclCommCount", [&](const char* call) {
    return AskIdentity(call, comm, "count", count, [](const comm::Identity& i) { return i.ranks; });
  });
}
AXCCL_TWIN(CommCount)

AXCCL_API ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return Entry("ncclCommCuDevice", [&](const char* call) {
    return AskIdentity(call, comm, "device", device, [](const comm::Identity& i) { return i.device.ordinal; });
  });
}
AXCCL_TWIN(CommCuDevice)

AXCCL_API ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return Entry("ncclCommUserRank", [&](const char* call) {
    return AskIdentity(call, comm, "rank", rank, [](const comm::Identity& i) { return i.rank; });
  });
}
AXCCL_TWIN(CommUserRank)
