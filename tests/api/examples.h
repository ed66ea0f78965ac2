/* The examples of the public headers and of README.md that are C code, as functions. */
#pragma once

#include "axccl/axccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* types.h: the callback. */
axcclReduceFn_t ExampleCallback(void);
/* malloc.h: the buffer that grows; returns the bytes that it may hold in the end. */
size_t ExampleMalloc(void);
/* board.h: what rank 1 is doing. channels.h: the groups of 4 ranks; the all-reduce of one of 4 ranks. */
axcclGroups_t ExampleGroups(void);
void ExampleBoard(ncclComm_t comm);
void ExampleChannel(ncclComm_t comm, axcclView_t in, axcclView_t out, cudaStream_t stream);
/* README.md: the all-gather along dimension 1 of one of n ranks; that on a mesh of one of 8 ranks. */
void ExampleDimension(float* part, float* wide, int64_t rows, int64_t cols, int64_t n, ncclComm_t comm,
                      cudaStream_t stream);
void ExampleMesh(ncclComm_t comm, axcclView_t in, axcclView_t out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
