/* The all-reduce of call_perf.py without Python: the same call of the library on the same communicator and memory. */
#include "axccl/axccl.h"

/* Makes `calls` all-reduces of `count` floats, each waited for. Returns the first error. */
__attribute__((visibility("default"))) int MakeCalls(void* comm, void* stream, void* in, void* out, int64_t count,
                                                     int calls) {
  axcclView_t from = AXCCL_VIEW_INITIALIZER, to = AXCCL_VIEW_INITIALIZER;
  const int64_t stride = 1;
  from.data = in, to.data = out;
  from.num_dims = to.num_dims = 1;
  from.sizes = to.sizes = &count;
  from.strides = to.strides = &stride;
  for (int i = 0; i < calls; ++i) {
    ncclResult_t result = axcclAllReduce(1, &from, &to, ncclSum, axcclDefaultChannel((ncclComm_t)comm), NULL,
                                         axcclStreamToCuda((axcclStream_t)stream));
    if (result == ncclSuccess) result = axcclStreamSynchronize((axcclStream_t)stream);
    if (result != ncclSuccess) return (int)result;
  }
  return 0;
}

/* A stream on the communicator's device, as the package's own are. */
__attribute__((visibility("default"))) void* MakeStream(void* comm) {
  axcclStream_t stream = NULL;
  int device = 0;
  (void)ncclCommCuDevice((ncclComm_t)comm, &device);
  (void)axcclHostSetDevice(device);
  (void)axcclStreamCreate(&stream, axcclStreamNonBlocking);
  return stream;
}
