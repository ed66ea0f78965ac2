// Making, ending and asking communicators.
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
#include "src/base/log.h"
#include "src/comm/create.h"
#include "src/comm/group.h"
#include "src/exec/gpu.h"

namespace axccl::api {
namespace {

using comm::Comm;
using comm::Communicator;

boot::UniqueId ToId(const ncclUniqueId& id) {
  boot::UniqueId out;
  std::memcpy(out.bytes, id.internal, sizeof(out.bytes));
  return out;
}

// The line every NCCL program's log begins with, once per process.
void LogVersion(int rank) {
  static std::atomic<bool> logged{false};
  if (rank != 0 || logged.exchange(true, std::memory_order_relaxed)) return;
  log::Write(log::Level::kVersion, ~0u, -1, "NCCL version %d.%d.%d+axccl%d.%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
             AXCCL_VERSION_CODE / 10000, AXCCL_VERSION_CODE / 100 % 100, AXCCL_VERSION_CODE % 100);
}

// Other threads may look at *out while the call goes on, to abort a creation that blocks it.
void Store(ncclComm_t comm, ncclComm_t* out) {
  std::atomic_ref<ncclComm_t>(*out).store(comm, std::memory_order_release);
}

// Puts a new communicator behind a handle and runs its creation: at once, at the end of the open group, or
// (non-blocking) in the background. *out is set right away and cleared again when a blocking creation fails, or the
// creation does not begin. Without `out` (a rank that asks a split for none) there is no handle. `parent`: that it is
// made from, if any.
ncclResult_t Create(ncclComm_t* out, const comm::Config& config, Comm::Job job, Comm* parent = nullptr) {
  auto comm = std::make_shared<Comm>(config);
  if (parent != nullptr) parent->AddChild(comm);
  ncclComm_t handle = nullptr;
  if (out != nullptr) {
    if (const Status status = Insert(&Comms(), "making a communicator", "communicators", comm, &handle); !status.ok())
      return Report(status);
    Store(handle, out);
  }
  auto discard = [out, handle] {
    if (out == nullptr) return;
    Comms().Remove(handle);
    Store(nullptr, out);
  };
  auto run = [comm, job = std::move(job), discard]() -> Status {
    const Status status = CatchAll("making a communicator", [&] {
      return comm->config().blocking ? comm->Create(job) : comm->CreateInBackground(job);
    });
    if (!status.ok() && status.code() != Code::kInProgress) discard();
    return status;
  };
  comm::Group& group = comm::Group::Current();
  if (group.open()) {
    const Status added = CatchAll("adding a communicator to the group", [&] {
      return group.AddJob(comm::GroupJob{config.blocking, std::move(run), discard}), Status();
    });
    if (!added.ok()) discard();
    return Report(added);
  }
  return Report(run());
}

ncclResult_t InitRank(const char* call, ncclComm_t* out, int nranks, std::span<const ncclUniqueId> ids, int rank,
                      const ncclConfig_t* config) {
  if (const Status status = CheckProcess(call); !status.ok()) return Report(status);
  if (out == nullptr) return InvalidArgument("%s: argument comm is NULL; pass where to put the communicator", call);
  Store(nullptr, out);
  if (nranks < 1) return InvalidArgument("%s: argument nranks is %d; pass 1 or more", call, nranks);
  if (nranks > 4096) return InvalidArgument("%s: argument nranks is %d; at most 4096 ranks are served", call, nranks);
  if (rank < 0 || rank >= nranks) return InvalidArgument("%s: argument rank is %d; pass 0..%d", call, rank, nranks - 1);
  std::vector<boot::UniqueId> meeting;
  for (const ncclUniqueId& id : ids) {
    meeting.push_back(ToId(id));
    if (const Status status = boot::CheckUniqueId(meeting.back()); !status.ok())
      return InvalidArgument("%s: argument commId: %.*s", call, static_cast<int>(status.message().size()),
                             status.message().data());
  }
  const Result<comm::Config> read = ReadConfig(call, config, comm::Config());
  if (!read.ok()) return Report(read.status());
  const comm::Config settings = read.value();
  LogVersion(rank);
  const Result<comm::DeviceId> chosen = comm::CurrentDevice();
  if (!chosen.ok()) return Report(chosen.status());
  const comm::DeviceId device = chosen.value();
  return Create(out, settings, [=](const std::atomic<bool>* abort) {
    return comm::CreateFromId(meeting, rank, nranks, device, settings, abort);
  });
}

// The devices of ranks that one call makes. GPUs may be shared: without a list ranks go round them.
Status FindDevices(const char* call, int ndev, const int* devlist, std::vector<comm::DeviceId>* devices) {
  AXCCL_ASSIGN_OR_RETURN(const bool on_gpus, comm::RanksOnGpus());
  int count = device::host::kMaxDevices;
  if (on_gpus) {
    AXCCL_ASSIGN_OR_RETURN(count, exec::NumGpus());
  }
  for (int i = 0; i < ndev; ++i) {
    const int device = devlist != nullptr ? devlist[i] : i % count;
    if (device < 0 || device >= count)
      return MakeStatus(Code::kInvalidArgument, "%s: argument devlist has device %d; pass 0..%d", call, device,
                        count - 1);
    const auto same = [device](const comm::DeviceId& other) { return other.ordinal == device; };
    if (!on_gpus && std::any_of(devices->begin(), devices->end(), same))
      return MakeStatus(Code::kInvalidArgument,
                        "%s: argument devlist names a device twice; each rank needs a host device of its "
                        "own",
                        call);
    devices->push_back({device, on_gpus, on_gpus ? nullptr : device::host::Device::Get(device)->Hold()});
  }
  return Status();
}

// The parent of a split, shrink or grow, kept alive for a job that may run later.
std::shared_ptr<Comm> Parent(ncclComm_t handle, const char* call, ncclResult_t* result) {
  const CommPin pin = PinComm(handle, call, result);
  if (!pin) return nullptr;
  const comm::Phase phase = pin->phase();
  if (phase != comm::Phase::kReady) {
    *result = Report(pin->Ready(call).status());
    return nullptr;
  }
  return pin->shared_from_this();
}

// A call that all ranks of `parent` make. Its turn among such calls is that of this call, whenever it is carried out. A
// communicator that has failed can only be shrunk.
Result<std::shared_ptr<comm::MakingCall>> Begin(const Comm& parent, comm::Making what, const char* call) {
  const auto& core = parent.core();
  if (!core->failed()) return comm::BeginWithAll(core, what);
  const Status failure = core->Failure();
  return MakeStatus(failure.code(), "%s: the communicator has failed: %.*s; shrink it or abort it", call,
                    static_cast<int>(failure.message().size()), failure.message().data());
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) try {
  if (const Status status = CheckProcess("ncclGetUniqueId"); !status.ok()) return Report(status);
  if (uniqueId == nullptr)
    return InvalidArgument("ncclGetUniqueId: argument uniqueId is NULL; pass where to put the id");
  const auto id = boot::CreateUniqueId();
  if (!id.ok()) return Report(id.status());
  std::memcpy(uniqueId->internal, id.value().bytes, sizeof(uniqueId->internal));
  return ncclSuccess;
}
AXCCL_TWIN(GetUniqueId)

AXCCL_API ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) try {
  return InitRank("ncclCommInitRank", comm, nranks, std::span(&commId, 1), rank, nullptr);
}
AXCCL_TWIN(CommInitRank)

AXCCL_API ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                               ncclConfig_t* config) try {
  return InitRank("ncclCommInitRankConfig", comm, nranks, std::span(&commId, 1), rank, config);
}
AXCCL_TWIN(CommInitRankConfig)

AXCCL_API ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                                 ncclUniqueId* commIds, ncclConfig_t* config) try {
  if (commIds == nullptr) return InvalidArgument("ncclCommInitRankScalable: argument commIds is NULL; pass nId ids");
  if (nId < 1 || nId > std::max(nranks, 1))
    return InvalidArgument("ncclCommInitRankScalable: argument nId is %d; pass 1..nranks (%d)", nId, nranks);
  return InitRank("ncclCommInitRankScalable", newcomm, nranks, std::span(commIds, static_cast<size_t>(nId)), myrank,
                  config);
}
AXCCL_TWIN(CommInitRankScalable)

AXCCL_API ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) try {
  constexpr const char* kCall = "ncclCommInitAll";
  if (const Status status = CheckProcess(kCall); !status.ok()) return Report(status);
  if (comm == nullptr) return InvalidArgument("%s: argument comm is NULL; pass an array of ndev communicators", kCall);
  if (ndev < 1 || ndev > device::host::kMaxDevices)
    return InvalidArgument("%s: argument ndev is %d; pass 1..%d", kCall, ndev, device::host::kMaxDevices);
  std::vector<comm::DeviceId> devices;
  if (const Status status = FindDevices(kCall, ndev, devlist, &devices); !status.ok()) return Report(status);
  std::fill_n(comm, ndev, nullptr);
  const auto config = ReadConfig(kCall, nullptr, comm::Config());
  if (!config.ok()) return Report(config.status());
  LogVersion(0);
  const std::atomic<bool> never{false};
  auto made = comm::CreateAll(devices, config.value(), &never);
  for (const auto& one : made) {
    if (!one.ok()) return Report(one.status());
  }
  const Status given = CatchAll(kCall, [&] {
    for (int i = 0; i < ndev; ++i) {
      auto handle = std::make_shared<Comm>(config.value());
      (void)handle->Create([&](const std::atomic<bool>*) { return made[static_cast<size_t>(i)]; }).ok();
      AXCCL_RETURN_IF_ERROR(Insert(&Comms(), kCall, "communicators", std::move(handle), &comm[i]));
    }
    return Status();
  });
  for (int i = 0; i < ndev && !given.ok(); ++i) (void)Comms().Remove(std::exchange(comm[i], nullptr));
  return Report(given);
}
AXCCL_TWIN(CommInitAll)

AXCCL_API ncclResult_t pncclCommFinalize(ncclComm_t handle) try {
  ncclResult_t result = ncclSuccess;
  const CommPin pin = PinComm(handle, "ncclCommFinalize", &result);
  if (!pin) return result;
  auto comm = pin->shared_from_this();
  if (comm->phase() == comm::Phase::kFinalizing || comm->phase() == comm::Phase::kFinalized)
    return Report(comm->Finalize());
  if (!comm->config().blocking) {
    if (comm->phase() != comm::Phase::kReady) return Report(comm->Ready("ncclCommFinalize").status());
    return Report(comm->FinalizeInBackground());
  }
  if (comm::Group& group = comm::Group::Current(); group.open()) {
    group.AddJob(comm::GroupJob{true, [comm] { return comm->Finalize(); }, nullptr, true});
    return ncclSuccess;
  }
  return Report(comm->Finalize());
}
AXCCL_TWIN(CommFinalize)

AXCCL_API ncclResult_t pncclCommDestroy(ncclComm_t handle) try {
  if (handle == nullptr) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  CommPin pin = PinComm(handle, "ncclCommDestroy", &result);
  if (!pin) return result;
  const auto comm = pin->shared_from_this();
  pin.Drop();
  auto close = [comm, handle]() -> Status {
    comm->Close();
    if (Comms().Remove(handle) == nullptr)
      return MakeStatus(Code::kInvalidArgument,
                        "ncclCommDestroy: argument comm was destroyed by another thread meanwhile");
    return Status();
  };
  if (comm::Group& group = comm::Group::Current(); group.open()) {
    group.AddJob(comm::GroupJob{comm->config().blocking, close, nullptr, true});
    return ncclSuccess;
  }
  return Report(close());
}
AXCCL_TWIN(CommDestroy)

AXCCL_API ncclResult_t pncclCommAbort(ncclComm_t handle) try {
  if (handle == nullptr) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  CommPin pin = PinComm(handle, "ncclCommAbort", &result);
  if (!pin) return result;
  const auto comm = pin->shared_from_this();
  pin.Drop();
  comm->Abort();
  // Calls of other threads that are still in the communicator have seen the abort and are on their way out. A creation
  // that blocks another thread has taken its handle back itself.
  if (Comms().Remove(handle) == nullptr && comm->phase() != comm::Phase::kFailed)
    return InvalidArgument("ncclCommAbort: argument comm was destroyed by another thread meanwhile");
  return ncclSuccess;
}
AXCCL_TWIN(CommAbort)

AXCCL_API ncclResult_t pncclCommRevoke(ncclComm_t handle, int revokeFlags) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclCommRevoke", &result);
  if (!comm) return result;
  if (revokeFlags != NCCL_REVOKE_DEFAULT)
    return InvalidArgument("ncclCommRevoke: argument revokeFlags is %d; pass NCCL_REVOKE_DEFAULT", revokeFlags);
  if (!comm->ready()) return Report(comm->Ready("ncclCommRevoke").status());
  return Report(comm->Revoke());
}
AXCCL_TWIN(CommRevoke)

AXCCL_API ncclResult_t pncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* newcomm,
                                      ncclConfig_t* config) try {
  constexpr const char* kCall = "ncclCommSplit";
  if (newcomm == nullptr)
    return InvalidArgument("%s: argument newcomm is NULL; pass where to put the communicator", kCall);
  Store(nullptr, newcomm);
  ncclResult_t result = ncclSuccess;
  const auto parent = Parent(handle, kCall, &result);
  if (parent == nullptr) return result;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return InvalidArgument("%s: argument color is %d; pass 0 or more, or NCCL_SPLIT_NOCOLOR", kCall, color);
  const auto read = ReadConfig(kCall, config, parent->config());
  if (!read.ok()) return Report(read.status());
  const comm::Config settings = read.value();
  const auto call = Begin(*parent, comm::Making::kSplit, kCall);
  if (!call.ok()) return Report(call.status());
  // As with NCCL, a rank that asks for no communicator gets no handle, whether the call blocks or not.
  auto split = [=, call = call.value()](const std::atomic<bool>* abort) {
    return comm::Split(call.get(), color, key, settings, abort);
  };
  return Create(color == NCCL_SPLIT_NOCOLOR ? nullptr : newcomm, settings, std::move(split), parent.get());
}
AXCCL_TWIN(CommSplit)

AXCCL_API ncclResult_t pncclCommShrink(ncclComm_t handle, int* excludeRanksList, int excludeRanksCount,
                                       ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) try {
  constexpr const char* kCall = "ncclCommShrink";
  if (newcomm == nullptr)
    return InvalidArgument("%s: argument newcomm is NULL; pass where to put the communicator", kCall);
  Store(nullptr, newcomm);
  ncclResult_t result = ncclSuccess;
  const auto parent = Parent(handle, kCall, &result);
  if (parent == nullptr) return result;
  if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
    return InvalidArgument("%s: argument shrinkFlags is %d; pass NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT", kCall,
                           shrinkFlags);
  if (excludeRanksList == nullptr || excludeRanksCount < 1)
    return InvalidArgument("%s: argument excludeRanksCount is %d; name at least one rank to leave out", kCall,
                           excludeRanksCount);
  std::sort(excludeRanksList, excludeRanksList + excludeRanksCount);
  const std::vector<int> excluded(excludeRanksList, excludeRanksList + excludeRanksCount);
  const comm::Identity& identity = parent->core()->identity();
  if (excluded.front() < 0 || excluded.back() >= identity.ranks)
    return InvalidArgument("%s: argument excludeRanksList has a rank outside 0..%d", kCall, identity.ranks - 1);
  if (std::adjacent_find(excluded.begin(), excluded.end()) != excluded.end())
    return InvalidArgument("%s: argument excludeRanksList names a rank twice", kCall);
  if (std::binary_search(excluded.begin(), excluded.end(), identity.rank))
    return InvalidArgument("%s: argument excludeRanksList has the calling rank %d; only ranks that stay call", kCall,
                           identity.rank);
  const auto read = ReadConfig(kCall, config, parent->config());
  if (!read.ok()) return Report(read.status());
  const comm::Config settings = read.value();
  if (shrinkFlags == NCCL_SHRINK_ABORT)
    parent->core()->Abort(MakeStatus(Code::kInvalidUsage, "the communicator was shrunk with NCCL_SHRINK_ABORT"));
  const auto call = comm::BeginWithout(parent->core(), excluded);
  if (!call.ok()) return Report(call.status());
  return Create(
      newcomm, settings,
      [=, call = call.value()](const std::atomic<bool>* abort) { return comm::Shrink(call.get(), settings, abort); },
      parent.get());
}
AXCCL_TWIN(CommShrink)

AXCCL_API ncclResult_t pncclCommGetUniqueId(ncclComm_t handle, ncclUniqueId* uniqueId) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclCommGetUniqueId", &result);
  if (!comm) return result;
  return pncclGetUniqueId(uniqueId);
}
AXCCL_TWIN(CommGetUniqueId)

// Present ranks keep their numbers and meet the new ones through the id, which the rank that has it hands to the
// others.
AXCCL_API ncclResult_t pncclCommGrow(ncclComm_t handle, int nRanks, const ncclUniqueId* uniqueId, int rank,
                                     ncclComm_t* newcomm, ncclConfig_t* config) try {
  constexpr const char* kCall = "ncclCommGrow";
  if (newcomm == nullptr)
    return InvalidArgument("%s: argument newcomm is NULL; pass where to put the communicator", kCall);
  Store(nullptr, newcomm);
  if (handle == nullptr) {
    if (uniqueId == nullptr) return InvalidArgument("%s: argument uniqueId is NULL; a new rank needs the id", kCall);
    return InitRank(kCall, newcomm, nRanks, std::span(uniqueId, 1), rank, config);
  }
  ncclResult_t result = ncclSuccess;
  const auto parent = Parent(handle, kCall, &result);
  if (parent == nullptr) return result;
  const comm::Identity& identity = parent->core()->identity();
  if (rank != -1)
    return InvalidArgument("%s: argument rank is %d; ranks of the present communicator pass -1", kCall, rank);
  if (nRanks <= identity.ranks)
    return InvalidArgument("%s: argument nRanks is %d; pass more than the present %d", kCall, nRanks, identity.ranks);
  const auto read = ReadConfig(kCall, config, parent->config());
  if (!read.ok()) return Report(read.status());
  const comm::Config settings = read.value();
  std::optional<boot::UniqueId> id;
  if (uniqueId != nullptr) id = ToId(*uniqueId);
  const auto call = Begin(*parent, comm::Making::kGrow, kCall);
  if (!call.ok()) return Report(call.status());
  return Create(
      newcomm, settings,
      [=, call = call.value()](const std::atomic<bool>* abort) {
        return comm::Grow(call.get(), nRanks, id.has_value() ? &*id : nullptr, settings, abort);
      },
      parent.get());
}
AXCCL_TWIN(CommGrow)

AXCCL_API ncclResult_t pncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* asyncError) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclCommGetAsyncError", &result);
  if (!comm) return result;
  if (asyncError == nullptr) return InvalidArgument("ncclCommGetAsyncError: argument asyncError is NULL");
  const Status status = comm->AsyncError();
  if (!status.ok() && status.code() != Code::kInProgress) RememberError(status);
  *asyncError = static_cast<ncclResult_t>(status.code());
  return ncclSuccess;
}
AXCCL_TWIN(CommGetAsyncError)

namespace {

template <class Field>
ncclResult_t AskIdentity(ncclComm_t handle, const char* call, const char* argument, int* out, const Field& field) {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, call, &result);
  if (!comm) return result;
  if (out == nullptr) return InvalidArgument("%s: argument %s is NULL", call, argument);
  if (comm->phase() == comm::Phase::kInitialising || comm->phase() == comm::Phase::kFailed)
    return Report(comm->Ready(call).status());
  *out = field(comm->core()->identity());
  return ncclSuccess;
}

}  // namespace

AXCCL_API ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) try {
  return AskIdentity(comm, "ncclCommCount", "count", count, [](const comm::Identity& i) { return i.ranks; });
}
AXCCL_TWIN(CommCount)

AXCCL_API ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) try {
  return AskIdentity(comm, "ncclCommCuDevice", "device", device,
                     [](const comm::Identity& i) { return i.device.ordinal; });
}
AXCCL_TWIN(CommCuDevice)

AXCCL_API ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) try {
  return AskIdentity(comm, "ncclCommUserRank", "rank", rank, [](const comm::Identity& i) { return i.rank; });
}
AXCCL_TWIN(CommUserRank)
