// Device communicators, as NVIDIA's nccl_device.h declares them: what kernels need to meet, and memory of their own to
// do so, among ranks that reach each other's memory (the LSA team). Kernels read the struct that the host passes them,
// so it is laid out as in the version of NCCL that the program was compiled with: 2.28.7 to 2.32.
//
// What the inlined functions of that header rely on:
// - Buffer h is at byte 128 h of the resource window, which is zero when all ranks have the communicator.
// - A barrier handle's buffer has, for each of its barriers, 3 words and one for each rank of the team.
// - nRanks_rcp32 and lsaSize_rcp32 are floor(2^32 / n), of which only 32 bits are kept.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "nccl.h"
#include "src/api/context.h"
#include "src/api/device_types.h"
#include "src/api/export.h"
#include "src/api/windows.h"
#include "src/base/sizes.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::api {
namespace {

using comm::CommHandle;

constexpr unsigned int kMagic = 0xcafebeef;  // NCCL_API_MAGIC
constexpr uint64_t kUnit = 128;
constexpr uint64_t kMostBytes = uint64_t{1} << 38;

// How programs of some versions see the structs.
struct Form {
  unsigned int first, last;  // NCCL_VERSION_CODE
  size_t bytes;              // of ncclDevComm
  size_t window_bytes;       // of the copy of the window in it, and what stands before the address of multicast
  bool marked;               // with a magic number and a version
  bool barriers_are_lsa;     // barrierCount asks for no more than lsaBarrierCount
};
constexpr size_t kWholeWindow = offsetof(exec::WindowOnDevice, ginMultiSegmentWins);
constexpr Form kForms[] = {{22800, 22903, 200, kWholeWindow, false, true},
                           {22904, 22999, 224, kWholeWindow, false, false},
                           {23000, 23099, 240, kWholeWindow, true, false},
                           {23100, 23299, 248, 24, true, false}};

Result<const Form*> FormOf(const char* call, unsigned int version) {
  const auto* const form =
      std::find_if(std::begin(kForms), std::end(kForms), [version](const Form& of) { return version <= of.last; });
  if (form != std::end(kForms) && version >= form->first) return form;
  return MakeStatus(Code::kInvalidUsage,
                    "%s: the program was compiled with NCCL %u.%u.%u; device communicators are for programs compiled "
                    "with 2.28.7 to 2.32",
                    call, version / 10000, version / 100 % 100, version % 100);
}

uint32_t ReciprocalOf(int n) { return static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint64_t>(n)); }

// What a call wants.
struct Wanted {
  const Form* form = nullptr;
  unsigned int version = 0;
  ncclDevCommRequirements counts{};
  bool networks = false;  // that kernels reach by themselves
  bool multimem = false;  // kernels reach all ranks of the LSA team at once
  std::vector<ncclMultimemHandle*> multimem_handles;
  bool by_runtime = false;
};

Result<Wanted> ReadWanted(const char* call, const void* requirements) {
  Wanted wanted;
  ncclVersionedDevCommRequirements versioned{};
  // In the older form, there is half of an address.
  std::memcpy(&versioned.magic, static_cast<const std::byte*>(requirements) + offsetof(decltype(versioned), magic),
              sizeof(versioned.magic));
  if (versioned.magic == kMagic) {
    std::memcpy(&versioned.size, requirements, sizeof(versioned.size));
    std::memcpy(&versioned, requirements, std::min(versioned.size, sizeof(versioned)));
    wanted.version = versioned.version;
    wanted.counts = versioned.wanted;
  } else {
    wanted.version = NCCL_VERSION_CODE;
    std::memcpy(&wanted.counts, requirements, sizeof(wanted.counts));
  }
  AXCCL_ASSIGN_OR_RETURN(wanted.form, FormOf(call, wanted.version));
  const ncclDevCommRequirements& counts = wanted.counts;
  wanted.networks = counts.ginForceEnable || counts.ginSignalCount > 0 || counts.ginCounterCount > 0 ||
                    versioned.ginConnectionType != 0 || versioned.worldGinBarrierCount > 0 ||
                    versioned.cftBarrierCount > 0;
  wanted.by_runtime = versioned.useRuntimeVersion;
  if (!wanted.form->barriers_are_lsa) wanted.networks |= counts.barrierCount > 0 || counts.railGinBarrierCount > 0;
  for (const auto* of = counts.resources; of != nullptr; of = of->next)
    wanted.networks |= of->ginSignalCount > 0 || of->ginCounterCount > 0;
  return wanted;
}

void Require(const ncclTeam& team, int barriers, ncclLsaBarrierHandle* handle, ncclDevResourceRequirements* wanted) {
  *wanted = {};
  handle->barriers = barriers;
  wanted->bufferSize = static_cast<size_t>(barriers) * (3 + static_cast<size_t>(team.ranks)) * sizeof(uint32_t);
  wanted->bufferAlign = alignof(uint32_t);
  wanted->bufferHandle = &handle->bufferHandle;
}

// Gives all buffers their places. Returns how many bytes they take together.
Result<uint64_t> Place(const char* call, const ncclDevResourceRequirements* first) {
  uint64_t bytes = 0;
  for (const auto* of = first; of != nullptr; of = of->next) {
    const uint64_t align = std::max<uint64_t>(of->bufferAlign, kUnit);
    if ((of->bufferAlign & (of->bufferAlign - 1)) != 0 || align > kMostBytes)
      return InvalidArgument("%s: argument reqs has a buffer with bufferAlign %zu; pass a power of two", call,
                             of->bufferAlign);
    bytes = RoundUp(bytes, align);
    if (of->bufferSize > kMostBytes - std::min(bytes, kMostBytes))
      return InvalidArgument("%s: argument reqs has buffers of more than %llu bytes", call,
                             static_cast<unsigned long long>(kMostBytes));
    if (of->bufferHandle != nullptr) *of->bufferHandle = static_cast<uint32_t>(bytes / kUnit);
    bytes += of->bufferSize;
  }
  return RoundUp(bytes, kUnit);
}

Status CheckMade(const char* call, const Wanted& wanted, bool one_team) {
  const ncclDevCommRequirements& counts = wanted.counts;
  const bool between_teams = counts.barrierCount > 0 || counts.railGinBarrierCount > 0;
  if (wanted.by_runtime)
    return InvalidArgument(
        "%s: argument reqs has useRuntimeVersion, but this library has no code for kernels; compile "
        "them with the headers that the program is compiled with",
        call);
  if (wanted.networks || (!one_team && between_teams))
    return MakeStatus(Code::kInvalidUsage,
                      "%s: argument reqs asks for what kernels send over networks (GIN), which this library does not "
                      "have; ask for LSA barriers and buffers, and use calls of the host between machines",
                      call);
  if (counts.barrierCount < 0 || counts.lsaBarrierCount < 0)
    return InvalidArgument("%s: argument reqs asks for %d barriers; pass 0 or more", call,
                           std::min(counts.barrierCount, counts.lsaBarrierCount));
  return Status();
}

Status ReadMultimem(const char* call, const exec::LsaTeam& team, bool has_multimem, Wanted* wanted) {
  wanted->multimem = wanted->counts.lsaMultimem;
  for (const auto* of = wanted->counts.teams; of != nullptr; of = of->next) {
    if (!of->multimem) continue;
    wanted->multimem = true;
    if (of->multimemHandle != nullptr) wanted->multimem_handles.push_back(of->multimemHandle);
    if (of->team.ranks != team.size || (team.size > 1 && of->team.stride != 1))
      return InvalidArgument(
          "%s: argument reqs asks for multimem in a team of %d ranks, %d apart; it is there for the "
          "LSA team (ncclTeamLsa) alone, of %d ranks",
          call, of->team.ranks, of->team.stride, team.size);
  }
  if (!wanted->multimem || has_multimem) return Status();
  return MakeStatus(
      Code::kInvalidUsage,
      "%s: argument reqs asks for multimem, which needs ranks on GPUs of their own, all with multicast "
      "(NVLink SHARP), and NCCL_NVLS_ENABLE other than 0; multimemSupport of ncclCommQueryProperties says "
      "whether it is there",
      call);
}

// What kernels read, but for the window.
struct Made {
  ncclDevComm head;
  ncclLsaBarrierHandle barrier;
};

// `to` has as many bytes as the form says.
void Write(const Wanted& wanted, const Made& made, const exec::WindowPlaces& places, void* to) {
  const Form& form = *wanted.form;
  auto* at = static_cast<std::byte*>(to);
  std::memset(at, 0, form.bytes);
  const auto put = [&at](const auto& part) {
    at = std::copy_n(reinterpret_cast<const std::byte*>(&part), sizeof(part), at);
  };
  if (form.marked) {
    put(kMagic);
    put(wanted.version);
  }
  ncclDevComm head = made.head;
  head.resourceWindow = places.handle;
  put(head);
  std::byte* const multicast = at + form.window_bytes;
  const exec::WindowOnDevice window = exec::OnDevice(places, head.rank);
  if (form.window_bytes == kWholeWindow) {
    std::memcpy(at, &window, kWholeWindow);
  } else {
    put(window.lsaFlatBase);
    put(window.stride4G);
    put(window.mcOffset4K);
  }
  at = multicast;
  put(places.multicast_base);
  put(made.barrier);
  for (ncclMultimemHandle* const handle : wanted.multimem_handles)
    handle->base = reinterpret_cast<void*>(places.multicast_base);
}

Status Create(const char* call, ncclComm_t handle, const void* requirements, void* out) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin pin, PinComm(handle, call));
  if (requirements == nullptr) return InvalidArgument("%s: argument reqs is NULL; pass what is wanted", call);
  if (out == nullptr) return InvalidArgument("%s: argument outDevComm is NULL; pass where to put it", call);
  AXCCL_RETURN_IF_ERROR(pin->Ready(call).status());
  const std::shared_ptr<CommHandle> comm = pin->shared_from_this();
  const comm::Communicator& core = *comm->core();
  if (!core.device().traits().makes_windows)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: argument comm is of a rank on the host, and device communicators are for kernels", call);
  AXCCL_RETURN_IF_ERROR(Prefixed(call, core.device().WhyNoWindows()));
  AXCCL_ASSIGN_OR_RETURN(Wanted wanted, ReadWanted(call, requirements));
  const auto [rank, ranks] = std::pair(core.identity().rank, core.identity().ranks);
  const exec::LsaTeam team = exec::LsaTeamOf(core.members(), rank);
  AXCCL_RETURN_IF_ERROR(CheckMade(call, wanted, team.size == ranks));
  AXCCL_RETURN_IF_ERROR(ReadMultimem(call, team, core.device().has_multimem(), &wanted));

  Made made{};
  made.head = {.rank = rank,
               .nRanks = ranks,
               .nRanks_rcp32 = ReciprocalOf(ranks),
               .lsaRank = rank - team.first,
               .lsaSize = team.size,
               .lsaSize_rcp32 = ReciprocalOf(team.size),
               .windowTable = core.device().window_table(),
               .resourceWindow = 0};
  const int both = wanted.form->barriers_are_lsa ? wanted.counts.barrierCount : 0;
  ncclDevResourceRequirements barriers;
  Require({team.size, made.head.lsaRank, 1}, std::max(wanted.counts.lsaBarrierCount, both), &made.barrier, &barriers);
  barriers.next = wanted.counts.resources;
  AXCCL_ASSIGN_OR_RETURN(uint64_t bytes, Place(call, &barriers));
  if (wanted.multimem) bytes = std::max(bytes, kUnit);  // there is an address only if there is memory

  const auto take = [wanted, made, out](const exec::Window& window) { Write(wanted, made, *window.places(), out); };
  return MakeWindow(call, comm, comm::Making::kDeviceComm, {.bytes = bytes, .made = true, .multicast = wanted.multimem},
                    take);
}

Status Destroy(const char* call, ncclComm_t handle, const void* device_comm) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
  if (device_comm == nullptr) return InvalidArgument("%s: argument devComm is NULL; pass one of this comm", call);
  unsigned int magic;
  std::memcpy(&magic, device_comm, sizeof(magic));
  const auto* const at = static_cast<const std::byte*>(device_comm) + (magic == kMagic ? 2 * sizeof(magic) : 0);
  const void* window;
  std::memcpy(&window, at + offsetof(ncclDevComm, resourceWindow), sizeof(window));
  const Status removed = comm->RemoveRegion(window, true);
  if (removed.code() != Code::kInvalidArgument) return Prefixed(call, removed);
  return InvalidArgument("%s: argument devComm is no live device communicator of comm; pass one of ncclDevCommCreate",
                         call);
}

Status Query(const char* call, ncclComm_t handle, ncclCommProperties* out) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
  if (out == nullptr) return InvalidArgument("%s: argument props is NULL", call);
  AXCCL_RETURN_IF_ERROR(comm->Ready(call).status());
  if (out->magic != kMagic)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: argument props is not initialised; assign NCCL_COMM_PROPERTIES_INITIALIZER", call);
  AXCCL_ASSIGN_OR_RETURN(const Form* const form, FormOf(call, out->version));
  const comm::Communicator& core = *comm->core();
  const comm::Identity& identity = core.identity();
  const bool kernels = core.device().traits().makes_windows;
  const int team = kernels ? exec::LsaTeamOf(core.members(), identity.rank).size : identity.ranks;
  ncclCommProperties found;
  std::memset(&found, 0, sizeof(found));  // also what an older version has between these members
  found.size = out->size;
  found.magic = out->magic;
  found.version = out->version;
  found.rank = identity.rank;
  found.nRanks = identity.ranks;
  found.cudaDev = kernels ? identity.device.ordinal : -1;
  found.nvmlDev = -1;
  // Programs of older versions take it for all that barriers may ask for.
  found.deviceApiSupport = kernels && core.device().WhyNoWindows().ok() && (form->marked || team == identity.ranks);
  found.multimemSupport = kernels && core.device().has_multimem();
  found.nLsaTeams = identity.ranks / team;
  const size_t known = out->version <= 22903 ? offsetof(ncclCommProperties, nLsaTeams) : sizeof(found);
  std::memcpy(out, &found, std::min(known, out->size));
  return Status();
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* reqs,
                                          ncclDevComm* outDevComm) {
  return Entry("ncclDevCommCreate", [&](const char* call) { return Create(call, comm, reqs, outDevComm); });
}
AXCCL_TWIN(DevCommCreate)

AXCCL_API ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* devComm) {
  return Entry("ncclDevCommDestroy", [&](const char* call) { return Destroy(call, comm, devComm); });
}
AXCCL_TWIN(DevCommDestroy)

AXCCL_API ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties* props) {
  return Entry("ncclCommQueryProperties", [&](const char* call) { return Query(call, comm, props); });
}
AXCCL_TWIN(CommQueryProperties)

AXCCL_API ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam team, int nBarriers, ncclLsaBarrierHandle* outHandle,
                                                        ncclDevResourceRequirements* outReq) {
  return Entry("ncclLsaBarrierCreateRequirement", [&](const char* call) -> Status {
    if (outHandle == nullptr) return InvalidArgument("%s: argument outHandle is NULL", call);
    if (outReq == nullptr) return InvalidArgument("%s: argument outReq is NULL", call);
    if (nBarriers < 0 || team.ranks < 1)
      return InvalidArgument("%s: argument nBarriers is %d, for a team of %d; pass 0 or more, and a team", call,
                             nBarriers, team.ranks);
    Require(team, nBarriers, outHandle, outReq);
    return Status();
  });
}
AXCCL_TWIN(LsaBarrierCreateRequirement)

// A block has a word of its own and two sets of slots, of 16 bytes each.
AXCCL_API ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle* outHandle,
                                                   ncclDevResourceRequirements* outReq) {
  return Entry("ncclLLA2ACreateRequirement", [&](const char* call) -> Status {
    if (outHandle == nullptr) return InvalidArgument("%s: argument outHandle is NULL", call);
    if (outReq == nullptr) return InvalidArgument("%s: argument outReq is NULL", call);
    if (nBlocks < 0 || nSlots < 0)
      return InvalidArgument("%s: argument %s is %d; pass 0 or more", call, nBlocks < 0 ? "nBlocks" : "nSlots",
                             std::min(nBlocks, nSlots));
    *outReq = {};
    outHandle->slots = static_cast<uint32_t>(nSlots);
    outReq->bufferSize = static_cast<size_t>(nBlocks) * (1 + 2 * static_cast<size_t>(nSlots)) * 16;
    outReq->bufferAlign = 16;
    outReq->bufferHandle = &outHandle->bufferHandle;
    return Status();
  });
}
AXCCL_TWIN(LLA2ACreateRequirement)

// A slot takes elements in pieces of 8 bytes.
AXCCL_API int pncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
  return EntryOr("ncclLLA2ACalcSlots", 0, [&](const char* call) -> Result<int> {
    if (maxElts < 0 || maxEltSize < 0)
      return InvalidArgument("%s: argument %s is negative", call, maxElts < 0 ? "maxElts" : "maxEltSize");
    return maxElts * static_cast<int>((static_cast<int64_t>(maxEltSize) + 7) / 8);
  });
}
AXCCL_TWIN(LLA2ACalcSlots)
