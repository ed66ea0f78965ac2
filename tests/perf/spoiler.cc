// Preloaded into a perf tool: after every ncclAllReduce of rank 1, the middle element of its result is spoilt, in
// stream order. What a broken library would do, and what the tool must see.

#include <dlfcn.h>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

using AllReduce = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);

void Spoil(void* element) { *static_cast<unsigned*>(element) ^= 0x00400000u; }

}  // namespace

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count,
                                                                             ncclDataType_t type, ncclRedOp_t op,
                                                                             ncclComm_t comm, cudaStream_t stream) {
  static const AllReduce real = reinterpret_cast<AllReduce>(dlsym(RTLD_NEXT, "ncclAllReduce"));
  static const auto user_rank = reinterpret_cast<decltype(&ncclCommUserRank)>(dlsym(RTLD_NEXT, "ncclCommUserRank"));
  static const auto launch = reinterpret_cast<decltype(&axcclLaunchHostFunc)>(dlsym(RTLD_NEXT, "axcclLaunchHostFunc"));
  ncclResult_t result = real(send, recv, count, type, op, comm, stream);
  int rank = 0;
  if (result != ncclSuccess || count == 0 || user_rank(comm, &rank) != ncclSuccess || rank != 1) return result;
  return launch(axcclStreamFromCuda(stream), Spoil, static_cast<unsigned*>(recv) + count / 2);
}
