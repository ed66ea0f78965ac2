/* Needs libnccl.so.2, as programs built for NCCL do, and must find ours in the drop-in folder, not one that may be
 * installed on the machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

int main(void) {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return 1;
  if (dlsym(RTLD_DEFAULT, "axcclGetVersion") == NULL) {
    fprintf(stderr, "libnccl.so.2 is somebody else's, version %d\n", version);
    return 2;
  }
  return version == NCCL_VERSION_CODE ? 0 : 3;
}
