/* The files *.inc are examples as they stand in the headers and in README.md; examples_test.cc runs them. */
#include "tests/api/examples.h"

#include <math.h>
#include <stdio.h>

#include "types_callback.inc"

axcclReduceFn_t ExampleCallback(void) { return MaxAbs; }

size_t ExampleMalloc(void) {
  size_t usable = 0;
#include "malloc_resize.inc"
  return usable;
}

axcclGroups_t ExampleGroups(void) {
  axcclGroups_t groups = NULL;
#include "channels_groups.inc"
  return groups;
}

void ExampleBoard(ncclComm_t comm) {
#include "board_ops.inc"
}

void ExampleChannel(ncclComm_t comm, axcclView_t in, axcclView_t out, cudaStream_t stream) {
#include "channels_channel.inc"
}

void ExampleDimension(float* part, float* wide, int64_t rows, int64_t cols, int64_t n, ncclComm_t comm,
                      cudaStream_t stream) {
#include "readme_dimension.inc"
}

void ExampleMesh(ncclComm_t comm, axcclView_t in, axcclView_t out, cudaStream_t stream) {
  axcclGroups_t groups = NULL;
  axcclChannel_t channel = NULL;
#include "readme_mesh.inc"
  axcclChannelDestroy(channel);
  axcclGroupsDestroy(groups);
}
