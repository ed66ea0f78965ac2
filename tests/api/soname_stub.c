/* A library with NCCL's SONAME to link soname_main against; at run time the drop-in link takes its place. */
#include <nccl.h>

ncclResult_t ncclGetVersion(int* version) {
  *version = 1;
  return ncclSuccess;
}
