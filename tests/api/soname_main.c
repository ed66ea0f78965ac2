/* Linked with -lnccl from the drop-in folder: starts with that folder alone, and on any other libnccl.so.2 as well.
 *
 * soname_main ours|theirs LIBAXCCL: whose libnccl.so.2 it must have found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

static int Fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

/* Both names in one process are one library: what one has made, the other knows. */
static int MixNames(const char* path) {
  void* const axccl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (axccl == NULL) return Fail(dlerror());
  ncclResult_t (*const count)(ncclComm_t, int*) = (ncclResult_t(*)(ncclComm_t, int*))dlsym(axccl, "ncclCommCount");
  ncclResult_t (*const destroy)(ncclComm_t) = (ncclResult_t(*)(ncclComm_t))dlsym(axccl, "pncclCommDestroy");
  const char* (*const last)(ncclComm_t) = (const char* (*)(ncclComm_t))dlsym(axccl, "ncclGetLastError");
  if (count == NULL || destroy == NULL || last == NULL) return Fail(dlerror());
  ncclComm_t comms[2];
  if (ncclCommInitAll(comms, 2, NULL) != ncclSuccess) return Fail("ncclCommInitAll failed");
  int ranks = 0;
  if (count(comms[1], &ranks) != ncclSuccess || ranks != 2)
    return Fail("libaxccl does not know libnccl's communicator");
  if (destroy(comms[0]) != ncclSuccess || pncclCommDestroy(comms[1]) != ncclSuccess) return Fail("destroying failed");
  if (ncclCommDestroy(comms[0]) != ncclInvalidArgument) return Fail("what libaxccl destroyed still lives in libnccl");
  if (strcmp(last(NULL), ncclGetLastError(NULL)) != 0) return Fail("there are two last errors");
  return 0;
}

int main(int argc, char** argv) {
  int version = 0;
  if (argc < 3) return Fail("usage: soname_main ours|theirs LIBAXCCL");
  if (ncclGetVersion(&version) != ncclSuccess) return Fail("ncclGetVersion failed");
  const int ours = dlsym(RTLD_DEFAULT, "axcclGetVersion") != NULL;
  fprintf(stderr, "libnccl.so.2 is %s, version %d\n", ours ? "ours" : "another library", version);
  if (ours != (strcmp(argv[1], "ours") == 0)) return 2;
  if (!ours) return 0;
  return version == NCCL_VERSION_CODE ? MixNames(argv[2]) : Fail("the version is not ours");
}
