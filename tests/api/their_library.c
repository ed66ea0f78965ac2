/* Compiled with our header and linked against NVIDIA's library: every function of 2.28.9 that nccl.h declares must be
 * there under the name our header gives it. No GPU is needed to load the library and ask its version. */
#include <nccl.h>
#include <stdio.h>
#include <string.h>

typedef void (*Function)(void);
#define PAIR(name) (Function) nccl##name, (Function)pnccl##name

static const Function kFunctions[] = {
    PAIR(AllGather),
    PAIR(AllReduce),
    PAIR(AlltoAll),
    PAIR(Bcast),
    PAIR(Broadcast),
    PAIR(CommAbort),
    PAIR(CommCount),
    PAIR(CommCuDevice),
    PAIR(CommDeregister),
    PAIR(CommDestroy),
    PAIR(CommFinalize),
    PAIR(CommGetAsyncError),
    PAIR(CommInitAll),
    PAIR(CommInitRank),
    PAIR(CommInitRankConfig),
    PAIR(CommInitRankScalable),
    PAIR(CommRegister),
    PAIR(CommRevoke),
    PAIR(CommShrink),
    PAIR(CommSplit),
    PAIR(CommUserRank),
    PAIR(CommWindowDeregister),
    PAIR(CommWindowRegister),
    PAIR(Gather),
    PAIR(GetErrorString),
    PAIR(GetLastError),
    PAIR(GetUniqueId),
    PAIR(GetVersion),
    PAIR(GroupEnd),
    PAIR(GroupSimulateEnd),
    PAIR(GroupStart),
    PAIR(MemAlloc),
    PAIR(MemFree),
    PAIR(Recv),
    PAIR(RedOpCreatePreMulSum),
    PAIR(RedOpDestroy),
    PAIR(Reduce),
    PAIR(ReduceScatter),
    PAIR(ResetDebugInit),
    PAIR(Scatter),
    PAIR(Send),
};

int main(void) {
  const char* last = ncclGetLastError(NULL);
  int version = 0;
  for (size_t i = 0; i < sizeof(kFunctions) / sizeof(kFunctions[0]); ++i) {
    if (kFunctions[i] == NULL) return 1;
  }
  if (ncclGetVersion(&version) != ncclSuccess || version < 22809) return 2;
  if (ncclGetVersion(NULL) != ncclInvalidArgument) return 3;
  if (strncmp(ncclGetErrorString(ncclInvalidUsage), "invalid usage (run with", 23) != 0) return 4;
  if (last == NULL) return 5;
  printf("NVIDIA's library, version %d\n", version);
  return 0;
}
