// axcclAllGather and its siblings: collectives on tensor views, from arguments to calls.
#include "axccl/views.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "src/api/calls.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/api/operands.h"
#include "src/base/log.h"

namespace axccl::api {
namespace {

// `count` operands from `first` on as one call; the list is theirs alone.
exec::Call MakeCall(const ViewRequest& r, std::vector<exec::ViewOperand> operands) {
  exec::Call call;
  auto list = std::make_shared<exec::ViewList>();
  list->operands = std::move(operands);
  call.kind = r.kind;
  call.root = r.root;
  call.count = list->BlockCount();
  call.type = list->CommonType();
  call.input = list->operands[0].input;
  call.output = list->operands[0].output;
  call.views = std::move(list);
  return call;
}

// As many calls as the bucket cap makes of the operands, each with at least one of them.
std::vector<exec::Call> MakeCalls(const ViewRequest& r, std::vector<exec::ViewOperand> operands) {
  const uint64_t cap = r.options != nullptr && r.options->bucket_bytes != 0 ? r.options->bucket_bytes : UINT64_MAX;
  std::vector<exec::Call> calls;
  std::vector<exec::ViewOperand> bucket;
  uint64_t bytes = 0;
  for (exec::ViewOperand& operand : operands) {
    if (!bucket.empty() && operand.block_bytes > cap - std::min(bytes, cap)) {
      calls.push_back(MakeCall(r, std::exchange(bucket, {})));
      bytes = 0;
    }
    bytes += operand.block_bytes;
    bucket.push_back(std::move(operand));
  }
  calls.push_back(MakeCall(r, std::move(bucket)));
  return calls;
}

ncclResult_t OnViews(const ViewRequest& r, ncclRedOp_t op, axcclChannel_t handle, cudaStream_t stream_handle) {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(reinterpret_cast<ncclComm_t>(handle), r.name, &result);
  if (!comm) return result;
  if (!comm->ready() || comm->revoked() || comm->core()->failed()) return Report(comm->Ready(r.name).status());
  const comm::Identity& identity = comm->core()->identity();
  exec::ViewList list;
  if (const Status status = FindOperands(r, identity.ranks, identity.rank, &list); !status.ok()) return Report(status);
  std::vector<exec::Call> calls = MakeCalls(r, std::move(list.operands));
  for (exec::Call& call : calls) {
    if (plan::Reduces(r.kind) && !ResolveReduction(comm.get(), r.name, op, &call, &result)) return result;
  }
  device::host::Stream* stream = nullptr;
  if (!FindStream(stream_handle, r.name, &stream, &result)) return result;
  for (const exec::Call& call : calls) {
    AXCCL_INFO(kColl, "%s: opCount %llx input %p output %p %s comm %p [nranks=%d] stream %p", r.name + 5,
               static_cast<unsigned long long>(comm->core()->operations()), call.input, call.output,
               exec::DescribeCall(call).c_str(), static_cast<void*>(handle), identity.ranks,
               static_cast<void*>(stream_handle));
    Enqueue(comm.get(), comm->core()->channel(), call, stream);
  }
  return ncclSuccess;
}

}  // namespace
}  // namespace axccl::api

using axccl::api::kNoReduction;
using axccl::api::OnViews;
using axccl::api::ViewRequest;
using axccl::plan::Kind;

AXCCL_API ncclResult_t axcclAllGather(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclAllGather", Kind::kAllGather, count, in, out, options, dim}, kNoReduction, channel,
                 stream);
}

AXCCL_API ncclResult_t axcclReduceScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                          ncclRedOp_t op, axcclChannel_t channel, const axcclOptions_t* options,
                                          cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclReduceScatter", Kind::kReduceScatter, count, in, out, options, dim}, op, channel,
                 stream);
}

AXCCL_API ncclResult_t axcclAllReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclAllReduce", Kind::kAllReduce, count, in, out, options}, op, channel, stream);
}

AXCCL_API ncclResult_t axcclAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int split_dim,
                                     int concat_dim, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclAllToAll", Kind::kAllToAll, count, in, out, options, split_dim, concat_dim},
                 kNoReduction, channel, stream);
}

AXCCL_API ncclResult_t axcclGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclGather", Kind::kGather, count, in, out, options, dim, 0, root}, kNoReduction,
                 channel, stream);
}

AXCCL_API ncclResult_t axcclScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                    axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclScatter", Kind::kScatter, count, in, out, options, dim, 0, root}, kNoReduction,
                 channel, stream);
}

AXCCL_API ncclResult_t axcclBroadcast(int count, const axcclView_t* in, const axcclView_t* out, int root,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclBroadcast", Kind::kBroadcast, count, in, out, options, 0, 0, root}, kNoReduction,
                 channel, stream);
}

AXCCL_API ncclResult_t axcclReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(ViewRequest{"axcclReduce", Kind::kReduce, count, in, out, options, 0, 0, root}, op, channel, stream);
}
