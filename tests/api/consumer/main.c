/* The least a user of the installed library does: one rank, one collective. */
#include <axccl/axccl.h>
#include <malloc.h> /* the C library's: AxCCL has one of this name, too */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  ncclComm_t comm;
  int in = 7, out = 0, version = 0;
  char* const block = memalign(64, 64);
  block[0] = 1;
  free(block);
  if (axcclGetVersion(&version) != ncclSuccess || version != AXCCL_VERSION_CODE) return 1;
  if (ncclCommInitAll(&comm, 1, NULL) != ncclSuccess) return 2;
  if (ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, NULL) != ncclSuccess) return 3;
  if (axcclStreamSynchronize(NULL) != ncclSuccess) return 4;
  if (ncclCommDestroy(comm) != ncclSuccess || out != 7) return 5;
  return 0;
}
