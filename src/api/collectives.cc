// ncclAllReduce and its siblings, and ncclSend and ncclRecv: from arguments to calls.
#include "nccl.h"
#include "src/api/calls.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/log.h"
#include "src/comm/launch.h"

namespace axccl::api {
namespace {

using exec::Call;
using plan::Kind;

// A call and what is to be checked of its buffers.
struct Request {
  const char* name;
  Kind kind;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int root = 0;
  const char* root_name = "root";
  bool second_name = false;  // as exec::Call has it
};

// Buffers of `block` bytes each that lie over each other, and not where the call has a form in place. Those of most
// calls are found apart by two comparisons.
bool Overlap(const Request& r, const plan::Contract& contract, int rank, size_t block, int inputs, int outputs) {
  const auto send = reinterpret_cast<uintptr_t>(r.send), recv = reinterpret_cast<uintptr_t>(r.recv);
  const size_t sent = block * static_cast<size_t>(inputs), received = block * static_cast<size_t>(outputs);
  if (send + sent <= recv || recv + received <= send || sent == 0 || received == 0) return false;
  // NCCL's benchmark times it in place, and looks at nothing.
  if (r.kind == Kind::kAllToAll && send == recv) return false;
  int from = 0, to = 0;
  const bool may = plan::InPlaceBlocks(contract, rank, &from, &to) || contract.ranks == 1;
  return !may || send + static_cast<size_t>(from) * block != recv + static_cast<size_t>(to) * block;
}

const char* InPlaceForm(Kind kind) {
  switch (kind) {
    case Kind::kAllToAll:
      return "the call has no form in place; pass";
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

ncclResult_t BadBuffer(const Request& r, const char* which) {
  return InvalidArgument("%s: argument %s is NULL with count %zu; pass a buffer", r.name, which, r.count);
}

// Type (which becomes *type), root, sizes and buffers. `rank` and `ranks` of the calling rank.
bool CheckRequest(const Request& r, int rank, int ranks, DataType* type, ncclResult_t* result) {
  if (!FindDatatype(NumberOf(r.type), type)) {
    *result = InvalidArgument("%s: argument datatype is %d; pass " AXCCL_DATATYPES, r.name,
                              static_cast<int>(NumberOf(r.type)));
    return false;
  }
  if (static_cast<unsigned>(r.root) >= static_cast<unsigned>(ranks)) {
    *result = InvalidArgument("%s: argument %s is %d; pass a rank of the communicator (0..%d)", r.name, r.root_name,
                              r.root, ranks - 1);
    return false;
  }
  size_t bytes;
  if (__builtin_mul_overflow(r.count, ElementSize(*type), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<size_t>(ranks), &bytes) || bytes > (size_t{1} << 56)) {
    *result = InvalidArgument("%s: argument count is %zu: more bytes than can be addressed on %d ranks", r.name,
                              r.count, ranks);
    return false;
  }
  if (r.count == 0 || r.kind == Kind::kSendRecv) return true;  // Message() looks at its one buffer
  const plan::Contract contract{r.kind, ranks, r.root};
  const int inputs = plan::InputBlocks(contract, rank), outputs = plan::OutputBlocks(contract, rank);
  if (inputs != 0 && r.send == nullptr) {
    *result = BadBuffer(r, "sendbuff");
    return false;
  }
  if (outputs != 0 && r.recv == nullptr) {
    *result = BadBuffer(r, "recvbuff");
    return false;
  }
  if (!Overlap(r, contract, rank, r.count * ElementSize(*type), inputs, outputs)) return true;
  *result = InvalidArgument("%s: arguments sendbuff (%p) and recvbuff (%p) overlap with count %zu; %s buffers apart",
                            r.name, r.send, r.recv, r.count, InPlaceForm(r.kind));
  return false;
}

ncclResult_t Collective(const Request& r, ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream_handle) {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, r.name, &result);
  if (!comm) return result;
  if (!comm->ready() || comm->revoked() || comm->core()->failed()) return Report(comm->Ready(r.name).status());
  const comm::Identity& identity = comm->core()->identity();
  Call call;
  if (!CheckRequest(r, identity.rank, identity.ranks, &call.type, &result)) return result;
  call.kind = r.kind;
  call.second_name = r.second_name;
  call.root = r.root;
  call.count = r.count;
  call.input = r.send;
  call.output = r.recv;
  if (plan::Reduces(r.kind) && !ResolveReduction(comm.get(), r.name, op, &call, &result)) return result;
  comm::StreamRef stream;
  if (!FindStream(*comm, stream_handle, r.name, &stream, &result)) return result;
  AXCCL_INFO(
      kColl,
      "%s: opCount %llx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] stream %p",
      r.name + 4, static_cast<unsigned long long>(comm->core()->operations()), r.send, r.recv, r.count,
      static_cast<int>(NumberOf(r.type)), static_cast<int>(op), r.root, static_cast<void*>(handle), identity.ranks,
      static_cast<void*>(stream_handle));
  return Report(Enqueue(comm.get(), comm->core()->channel(), call, stream));
}

ncclResult_t Message(const Request& r, bool sending, ncclComm_t handle, cudaStream_t stream_handle) {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, r.name, &result);
  if (!comm) return result;
  if (!comm->ready() || comm->revoked() || comm->core()->failed()) return Report(comm->Ready(r.name).status());
  comm::Communicator* core = comm->core().get();
  const int rank = core->identity().rank;
  Call call;
  if (!CheckRequest(r, rank, core->identity().ranks, &call.type, &result)) return result;
  if (r.count != 0 && (sending ? r.send : r.recv) == nullptr) return BadBuffer(r, sending ? "sendbuff" : "recvbuff");
  comm::StreamRef stream;
  if (!FindStream(*comm, stream_handle, r.name, &stream, &result)) return result;
  call.kind = Kind::kSendRecv;
  call.second_name = !sending;
  call.count = r.count;
  call.input = r.send;
  call.output = r.recv;
  if (r.root != rank) {
    const Result<exec::Channel*> pair = core->PairChannel(r.root, sending);
    return Report(pair.ok() ? Enqueue(comm.get(), pair.value(), call, stream) : pair.status());
  }
  return Report(EnqueueSelf(r.name, comm.get(), core->channel(), call, sending, stream));
}

// Per-call settings are checked as far as they can matter on the host, where no algorithm has hardware requirements.
ncclResult_t CheckCallConfig(const char* name, const ncclCollConfig_t* config) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != NCCL_API_MAGIC || config->size < offsetof(ncclCollConfig_t, ext))
    return InvalidArgument("%s: argument config is not initialised; start from NCCL_COLLCONFIG_INITIALIZER", name);
  if (config->size > offsetof(ncclCollConfig_t, forceAlgSelection) && config->algSelection != nullptr &&
      config->algSelection[0] != 0 && config->forceAlgSelection != 0)
    return Report(MakeStatus(Code::kInvalidUsage,
                             "%s: argument config forces algorithm \"%s\"; selection per call is not served "
                             "yet: set NCCL_ALGO, or forceAlgSelection = 0",
                             name, config->algSelection));
  return ncclSuccess;
}

}  // namespace
}  // namespace axccl::api

using axccl::api::CheckCallConfig;
using axccl::api::Collective;
using axccl::api::kNoReduction;
using axccl::api::Message;
using axccl::api::Request;
using axccl::plan::Kind;

AXCCL_API ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclAllReduce", Kind::kAllReduce, sendbuff, recvbuff, count, datatype}, op, comm, stream);
}
AXCCL_TWIN(AllReduce)

AXCCL_API ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclReduce", Kind::kReduce, sendbuff, recvbuff, count, datatype, root}, op, comm, stream);
}
AXCCL_TWIN(Reduce)

AXCCL_API ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                      int root, ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclBroadcast", Kind::kBroadcast, sendbuff, recvbuff, count, datatype, root}, kNoReduction,
                    comm, stream);
}
AXCCL_TWIN(Broadcast)

AXCCL_API ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream) try {
  return Collective(Request{"ncclBcast", Kind::kBroadcast, buff, buff, count, datatype, root, "root", true},
                    kNoReduction, comm, stream);
}
AXCCL_TWIN(Bcast)

AXCCL_API ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                      ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclAllGather", Kind::kAllGather, sendbuff, recvbuff, sendcount, datatype}, kNoReduction,
                    comm, stream);
}
AXCCL_TWIN(AllGather)

AXCCL_API ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream) try {
  return Collective(Request{"ncclReduceScatter", Kind::kReduceScatter, sendbuff, recvbuff, recvcount, datatype}, op,
                    comm, stream);
}
AXCCL_TWIN(ReduceScatter)

AXCCL_API ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclAlltoAll", Kind::kAllToAll, sendbuff, recvbuff, count, datatype}, kNoReduction, comm,
                    stream);
}
AXCCL_TWIN(AlltoAll)

AXCCL_API ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                   int root, ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclGather", Kind::kGather, sendbuff, recvbuff, count, datatype, root}, kNoReduction, comm,
                    stream);
}
AXCCL_TWIN(Gather)

AXCCL_API ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                    int root, ncclComm_t comm, cudaStream_t stream) try {
  return Collective(Request{"ncclScatter", Kind::kScatter, sendbuff, recvbuff, count, datatype, root}, kNoReduction,
                    comm, stream);
}
AXCCL_TWIN(Scatter)

AXCCL_API ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream) try {
  return Message(Request{"ncclSend", Kind::kSendRecv, sendbuff, nullptr, count, datatype, peer, "peer"}, true, comm,
                 stream);
}
AXCCL_TWIN(Send)

AXCCL_API ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream) try {
  return Message(Request{"ncclRecv", Kind::kSendRecv, nullptr, recvbuff, count, datatype, peer, "peer"}, false, comm,
                 stream);
}
AXCCL_TWIN(Recv)

// The same with settings for the one call.

AXCCL_API ncclResult_t pncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclAllReduceConfig", config);
  return checked != ncclSuccess ? checked : pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}
AXCCL_TWIN(AllReduceConfig)

AXCCL_API ncclResult_t pncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclReduceConfig", config);
  return checked != ncclSuccess ? checked : pncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}
AXCCL_TWIN(ReduceConfig)

AXCCL_API ncclResult_t pncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                            int root, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclBroadcastConfig", config);
  return checked != ncclSuccess ? checked : pncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}
AXCCL_TWIN(BroadcastConfig)

AXCCL_API ncclResult_t pncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclAllGatherConfig", config);
  return checked != ncclSuccess ? checked : pncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}
AXCCL_TWIN(AllGatherConfig)

AXCCL_API ncclResult_t pncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                                cudaStream_t stream, const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclReduceScatterConfig", config);
  return checked != ncclSuccess ? checked
                                : pncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}
AXCCL_TWIN(ReduceScatterConfig)

AXCCL_API ncclResult_t pncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclAlltoAllConfig", config);
  return checked != ncclSuccess ? checked : pncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
}
AXCCL_TWIN(AlltoAllConfig)

AXCCL_API ncclResult_t pncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                         int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclGatherConfig", config);
  return checked != ncclSuccess ? checked : pncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
}
AXCCL_TWIN(GatherConfig)

AXCCL_API ncclResult_t pncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                          int root, ncclComm_t comm, cudaStream_t stream,
                                          const ncclCollConfig_t* config) try {
  const ncclResult_t checked = CheckCallConfig("ncclScatterConfig", config);
  return checked != ncclSuccess ? checked : pncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
}
AXCCL_TWIN(ScatterConfig)
