/* axccl/device.h and axccl/pipelines.h in C11: compiled as that, strictly, with what a program does with them. */
#include "axccl/device.h"
#include "axccl/pipelines.h"

#if !defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L
#error "must be compiled as C11"
#endif

/* Declares all input ready, and waits for all output; the number of chunks that came. */
int axccl_test_step_in_c(uint32_t* in, int64_t in_chunks, const uint32_t* out, int64_t out_chunks) {
  axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  int came = 0;
  if (spec.size != sizeof(axcclPipelineSpec_t) || chunk.size != sizeof(axcclChunk_t)) return -1;
  for (int64_t i = 0; i < in_chunks; ++i) axcclDeviceReady(&in[i]);
  for (int64_t i = 0; i < out_chunks; ++i) {
    if (axcclDeviceAwait(&out[i]) == 1 && axcclDeviceLook(&out[i]) == 1) ++came;
  }
  return came;
}
