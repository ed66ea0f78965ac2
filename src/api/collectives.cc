// ncclAllReduce and its siblings, and ncclSend and ncclRecv: from arguments to calls.
#include "nccl.h"
#include "src/api/calls.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/api/known_calls.h"
#include "src/base/log.h"
#include "src/exec/platform/stream_call.h"

namespace axccl::api {
namespace {

using exec::Call;
using plan::Kind;

// A call, and what must be checked about its buffers.
struct Request {
  const char* name;
  Kind kind;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int root = 0;
  bool second_name = false;                  // as in exec::Call
  const ncclCollConfig_t* config = nullptr;  // settings of this call
};

// What the buffers of a call on blocks of `block` bytes must be like.
BufferRule RuleOf(const plan::Contract& contract, int rank, size_t block) {
  BufferRule rule;
  rule.sent = block * static_cast<size_t>(plan::InputBlocks(contract, rank));
  rule.received = block * static_cast<size_t>(plan::OutputBlocks(contract, rank));
  int from = 0, to = 0;
  rule.in_place = plan::InPlaceBlocks(contract, rank, &from, &to) || contract.ranks == 1;
  // NCCL's benchmark times this in place, and does not check the result.
  rule.in_place |= contract.kind == Kind::kAllToAll;
  rule.apart = (from - to) * static_cast<ptrdiff_t>(block);
  return rule;
}

const char* InPlaceForm(Kind kind) {
  switch (kind) {
    case Kind::kAllToAll:
      return "the call cannot run in place; pass";
    case Kind::kAllGather:
      return "in place is sendbuff == recvbuff + rank * sendcount; pass that, or";
    case Kind::kGather:
      return "in place is sendbuff == recvbuff + root * count; pass that, or";
    case Kind::kReduceScatter:
      return "in place is recvbuff == sendbuff + rank * recvcount; pass that, or";
    case Kind::kScatter:
      return "in place is recvbuff == sendbuff + root * count; pass that, or";
    default:
      return "in place is sendbuff == recvbuff; pass that, or";
  }
}

Status BadBuffer(const Request& r, const char* which) {
  return InvalidArgument("%s: argument %s is NULL with count %zu; pass a buffer", r.name, which, r.count);
}

// Checks type (which becomes *type), root, sizes and buffers, for a calling rank `rank` of `ranks`. *rule: what it has
// checked of the buffers; for a message, nothing.
Status CheckRequest(const Request& r, int rank, int ranks, DataType* type, BufferRule* rule) {
  if (!FindDatatype(static_cast<unsigned>(r.type), type))
    return InvalidArgument("%s: argument datatype is %d; pass " AXCCL_DATATYPES, r.name, static_cast<int>(r.type));
  if (static_cast<unsigned>(r.root) >= static_cast<unsigned>(ranks))
    return InvalidArgument("%s: argument %s is %d; pass a rank of the communicator (0..%d)", r.name,
                           r.kind == Kind::kSendRecv ? "peer" : "root", r.root, ranks - 1);
  size_t bytes;
  if (__builtin_mul_overflow(r.count, ElementSize(*type), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<size_t>(ranks), &bytes) || bytes > (size_t{1} << 56))
    return InvalidArgument("%s: argument count is %zu: more bytes than can be addressed on %d ranks", r.name, r.count,
                           ranks);
  if (r.kind == Kind::kSendRecv) return Status();  // Message() checks its one buffer
  *rule = RuleOf(plan::Contract{r.kind, ranks, r.root}, rank, r.count * ElementSize(*type));
  if (rule->sent != 0 && r.send == nullptr) return BadBuffer(r, "sendbuff");
  if (rule->received != 0 && r.recv == nullptr) return BadBuffer(r, "recvbuff");
  if (rule->Allows(r.send, r.recv)) return Status();
  return InvalidArgument("%s: arguments sendbuff (%p) and recvbuff (%p) overlap with count %zu; %s buffers apart",
                         r.name, r.send, r.recv, r.count, InPlaceForm(r.kind));
}

// Checks the settings of a call as far as they matter on the host, where no algorithm has hardware requirements.
Status CheckSettings(const char* name, const ncclCollConfig_t& config) {
  if (config.magic != NCCL_API_MAGIC || config.size < offsetof(ncclCollConfig_t, ext))
    return InvalidArgument("%s: argument config is not initialised; start from NCCL_COLLCONFIG_INITIALIZER", name);
  if (config.size > offsetof(ncclCollConfig_t, forceAlgSelection) && config.algSelection != nullptr &&
      config.algSelection[0] != 0 && config.forceAlgSelection != 0)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: argument config forces algorithm \"%s\"; selection per call is not served yet: set "
                      "NCCL_ALGO, or forceAlgSelection = 0",
                      name, config.algSelection);
  return Status();
}

CallKey KeyOf(const Request& r, ncclRedOp_t op, ncclComm_t handle) {
  return {handle, r.count, static_cast<uint32_t>(r.type) | uint64_t{static_cast<uint32_t>(op)} << 32,
          static_cast<uint32_t>(r.root) | uint64_t(r.kind) << 32 | uint64_t{r.second_name} << 40};
}

// Checks a call that is not known, and keeps it in `place` if it can be known. One of count 0 is not.
[[gnu::noinline]] Status CheckUnknown(const Request& r, ncclRedOp_t op, ncclComm_t handle, comm::CommHandle* comm,
                                      KnownCall* place) {
  const comm::Identity& identity = comm->core()->identity();
  *place = KnownCall();
  Call& call = place->call;
  AXCCL_RETURN_IF_ERROR(CheckRequest(r, identity.rank, identity.ranks, &call.type, &place->buffers));
  call.kind = r.kind;
  call.second_name = r.second_name;
  call.root = r.root;
  call.count = r.count;
  if (plan::Reduces(r.kind)) AXCCL_RETURN_IF_ERROR(ResolveReduction(comm, r.name, op, &call));
  if (r.count == 0 || (plan::Reduces(r.kind) && !IsBuiltIn(op))) return Status();
  place->comm = Comms().Know(handle);
  place->key = KeyOf(r, op, handle);
  return Status();
}

[[gnu::noinline]] Status FindOtherStream(const exec::RankDevice& device, const char* name, void* handle,
                                         KnownCall* place) {
  place->stream = device::host::Streams().Know(handle);
  place->stream_handle = handle;
  return device.FindStream(handle, name, &place->stream_ref);
}

[[gnu::noinline]] void LogCall(const Request& r, ncclRedOp_t op, ncclComm_t handle, const comm::Communicator& core,
                               cudaStream_t stream) {
  AXCCL_INFO(
      kColl,
      "%s: opCount %llx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] stream %p",
      r.name + 4, static_cast<unsigned long long>(core.operations()), r.send, r.recv, r.count, static_cast<int>(r.type),
      static_cast<int>(op), r.root, static_cast<void*>(handle), core.identity().ranks, static_cast<void*>(stream));
}

// Inline, so that the request need not be assembled for a known call.
[[gnu::always_inline]] inline Status Collective(const Request& r, ncclRedOp_t op, ncclComm_t handle,
                                                cudaStream_t stream) {
  if (r.config != nullptr) AXCCL_RETURN_IF_ERROR(CheckSettings(r.name, *r.config));
  const CallKey key = KeyOf(r, op, handle);
  KnownCall* const known = KnownCalls::OfThread().PlaceOf(key);
  const bool is_known = known->key == key;
  const CommPin comm = is_known ? HandleTable<comm::CommHandle>::Get(known->comm) : Comms().Get(handle);
  if (!comm) return PinComm(handle, r.name).status();
  if (!comm->ready() || comm->revoked() || comm->core()->failed()) return comm->Ready(r.name).status();
  comm::Communicator* const core = comm->core().get();
  if (!is_known || !known->buffers.Allows(r.send, r.recv)) {
    AXCCL_RETURN_IF_ERROR(CheckUnknown(r, op, handle, comm.get(), known));
    // As in NCCL, it is not a call of all ranks, and waits for none.
    if (r.count == 0) return LogCall(r, op, handle, *core, stream), Status();
  }
  known->call.input = r.send;
  known->call.output = r.recv;
  if (known->stream_handle != stream || (stream != nullptr && !known->stream.Live()))
    AXCCL_RETURN_IF_ERROR(FindOtherStream(core->device(), r.name, stream, known));
  if (log::Enabled(log::Level::kInfo, log::kColl)) LogCall(r, op, handle, *core, stream);
  Status status = Enqueue(comm.get(), core->channel(), known->call, known->stream_ref);
  if (!is_known) known->call.callback = nullptr;  // belongs to an operator that may end
  return status;
}

Status Message(const Request& r, bool sending, ncclComm_t handle, cudaStream_t stream_handle) {
  AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, r.name));
  if (!comm->ready() || comm->revoked() || comm->core()->failed()) return comm->Ready(r.name).status();
  comm::Communicator* core = comm->core().get();
  const int rank = core->identity().rank;
  Call call;
  BufferRule rule;
  AXCCL_RETURN_IF_ERROR(CheckRequest(r, rank, core->identity().ranks, &call.type, &rule));
  if (r.count != 0 && (sending ? r.send : r.recv) == nullptr) return BadBuffer(r, sending ? "sendbuff" : "recvbuff");
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(core->device().FindStream(stream_handle, r.name, &stream));
  call.kind = Kind::kSendRecv;
  call.second_name = !sending;
  call.count = r.count;
  call.input = r.send;
  call.output = r.recv;
  if (r.root == rank) return EnqueueSelf(r.name, comm.get(), core->channel(), call, sending, stream);
  AXCCL_ASSIGN_OR_RETURN(exec::Channel* const pair, Prefixed(r.name, core->pairs().Of(r.root, sending)));
  return Enqueue(comm.get(), pair, call, stream);
}

}  // namespace
}  // namespace axccl::api

using axccl::api::Collective;
using axccl::api::Entry;
using axccl::api::kNoReduction;
using axccl::api::Message;
using axccl::plan::Kind;

AXCCL_API ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclAllReduce", [&](const char* call) {
    return Collective({call, Kind::kAllReduce, sendbuff, recvbuff, count, datatype}, op, comm, stream);
  });
}
AXCCL_TWIN(AllReduce)

AXCCL_API ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclReduce", [&](const char* call) {
    return Collective({call, Kind::kReduce, sendbuff, recvbuff, count, datatype, root}, op, comm, stream);
  });
}
AXCCL_TWIN(Reduce)

AXCCL_API ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                      int root, ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclBroadcast", [&](const char* call) {
    return Collective({call, Kind::kBroadcast, sendbuff, recvbuff, count, datatype, root}, kNoReduction, comm, stream);
  });
}
AXCCL_TWIN(Broadcast)

AXCCL_API ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
  return Entry("ncclBcast", [&](const char* call) {
    return Collective({call, Kind::kBroadcast, buff, buff, count, datatype, root, true}, kNoReduction, comm, stream);
  });
}
AXCCL_TWIN(Bcast)

AXCCL_API ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                      ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclAllGather", [&](const char* call) {
    return Collective({call, Kind::kAllGather, sendbuff, recvbuff, sendcount, datatype}, kNoReduction, comm, stream);
  });
}
AXCCL_TWIN(AllGather)

AXCCL_API ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream) {
  return Entry("ncclReduceScatter", [&](const char* call) {
    return Collective({call, Kind::kReduceScatter, sendbuff, recvbuff, recvcount, datatype}, op, comm, stream);
  });
}
AXCCL_TWIN(ReduceScatter)

AXCCL_API ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclAlltoAll", [&](const char* call) {
    return Collective({call, Kind::kAllToAll, sendbuff, recvbuff, count, datatype}, kNoReduction, comm, stream);
  });
}
AXCCL_TWIN(AlltoAll)

AXCCL_API ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                   int root, ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclGather", [&](const char* call) {
    return Collective({call, Kind::kGather, sendbuff, recvbuff, count, datatype, root}, kNoReduction, comm, stream);
  });
}
AXCCL_TWIN(Gather)

AXCCL_API ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                    int root, ncclComm_t comm, cudaStream_t stream) {
  return Entry("ncclScatter", [&](const char* call) {
    return Collective({call, Kind::kScatter, sendbuff, recvbuff, count, datatype, root}, kNoReduction, comm, stream);
  });
}
AXCCL_TWIN(Scatter)

AXCCL_API ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
  return Entry("ncclSend", [&](const char* call) {
    return Message({call, Kind::kSendRecv, sendbuff, nullptr, count, datatype, peer}, true, comm, stream);
  });
}
AXCCL_TWIN(Send)

AXCCL_API ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
  return Entry("ncclRecv", [&](const char* call) {
    return Message({call, Kind::kSendRecv, nullptr, recvbuff, count, datatype, peer}, false, comm, stream);
  });
}
AXCCL_TWIN(Recv)

// The same functions with settings for one call.

AXCCL_API ncclResult_t pncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) {
  return Entry("ncclAllReduceConfig", [&](const char* call) {
    return Collective({call, Kind::kAllReduce, sendbuff, recvbuff, count, datatype, 0, false, config}, op, comm,
                      stream);
  });
}
AXCCL_TWIN(AllReduceConfig)

AXCCL_API ncclResult_t pncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t* config) {
  return Entry("ncclReduceConfig", [&](const char* call) {
    return Collective({call, Kind::kReduce, sendbuff, recvbuff, count, datatype, root, false, config}, op, comm,
                      stream);
  });
}
AXCCL_TWIN(ReduceConfig)

AXCCL_API ncclResult_t pncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                            int root, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) {
  return Entry("ncclBroadcastConfig", [&](const char* call) {
    return Collective({call, Kind::kBroadcast, sendbuff, recvbuff, count, datatype, root, false, config}, kNoReduction,
                      comm, stream);
  });
}
AXCCL_TWIN(BroadcastConfig)

AXCCL_API ncclResult_t pncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) {
  return Entry("ncclAllGatherConfig", [&](const char* call) {
    return Collective({call, Kind::kAllGather, sendbuff, recvbuff, sendcount, datatype, 0, false, config}, kNoReduction,
                      comm, stream);
  });
}
AXCCL_TWIN(AllGatherConfig)

AXCCL_API ncclResult_t pncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                                cudaStream_t stream, const ncclCollConfig_t* config) {
  return Entry("ncclReduceScatterConfig", [&](const char* call) {
    return Collective({call, Kind::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, 0, false, config}, op, comm,
                      stream);
  });
}
AXCCL_TWIN(ReduceScatterConfig)

AXCCL_API ncclResult_t pncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return Entry("ncclAlltoAllConfig", [&](const char* call) {
    return Collective({call, Kind::kAllToAll, sendbuff, recvbuff, count, datatype, 0, false, config}, kNoReduction,
                      comm, stream);
  });
}
AXCCL_TWIN(AlltoAllConfig)

AXCCL_API ncclResult_t pncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                         int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t* config) {
  return Entry("ncclGatherConfig", [&](const char* call) {
    return Collective({call, Kind::kGather, sendbuff, recvbuff, count, datatype, root, false, config}, kNoReduction,
                      comm, stream);
  });
}
AXCCL_TWIN(GatherConfig)

AXCCL_API ncclResult_t pncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                          int root, ncclComm_t comm, cudaStream_t stream,
                                          const ncclCollConfig_t* config) {
  return Entry("ncclScatterConfig", [&](const char* call) {
    return Collective({call, Kind::kScatter, sendbuff, recvbuff, count, datatype, root, false, config}, kNoReduction,
                      comm, stream);
  });
}
AXCCL_TWIN(ScatterConfig)
