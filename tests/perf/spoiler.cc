// Preloaded into a perf tool. After every ncclAllReduce of rank 1 it alters the middle element of the result, and after
// every axcclAllGather the last element of the last operand, in stream order. The tool must detect this like the errors
// of a broken library.

#include <dlfcn.h>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

template <class Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

using AllReduce = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);

void Spoil(void* element) { *static_cast<unsigned*>(element) ^= 0x00400000u; }

}  // namespace

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count,
                                                                             ncclDataType_t type, ncclRedOp_t op,
                                                                             ncclComm_t comm, cudaStream_t stream) {
  static const auto real = Find<AllReduce>("ncclAllReduce");
  static const auto user_rank = Find<decltype(&ncclCommUserRank)>("ncclCommUserRank");
  static const auto launch = Find<decltype(&axcclLaunchHostFunc)>("axcclLaunchHostFunc");
  ncclResult_t result = real(send, recv, count, type, op, comm, stream);
  int rank = 0;
  if (result != ncclSuccess || count == 0 || user_rank(comm, &rank) != ncclSuccess || rank != 1) return result;
  return launch(axcclStreamFromCuda(stream), Spoil, static_cast<unsigned*>(recv) + count / 2);
}

extern "C" __attribute__((visibility("default"))) ncclResult_t axcclAllGather(int count, const axcclView_t* in,
                                                                              const axcclView_t* out, int dim,
                                                                              axcclChannel_t channel,
                                                                              const axcclOptions_t* options,
                                                                              cudaStream_t stream) {
  static const auto real = Find<decltype(&axcclAllGather)>("axcclAllGather");
  static const auto channel_info = Find<decltype(&axcclChannelGetInfo)>("axcclChannelGetInfo");
  static const auto launch = Find<decltype(&axcclLaunchHostFunc)>("axcclLaunchHostFunc");
  ncclResult_t result = real(count, in, out, dim, channel, options, stream);
  axcclChannelInfo_t info{};
  info.size = sizeof(info);
  if (result != ncclSuccess || channel_info(channel, &info) != ncclSuccess || info.rank != 1) return result;
  const axcclView_t& view = out[count - 1];
  unsigned* last = static_cast<unsigned*>(view.data);
  for (int d = 0; d < view.num_dims; ++d) last += (view.sizes[d] - 1) * view.strides[d];
  return launch(axcclStreamFromCuda(stream), Spoil, last);
}
