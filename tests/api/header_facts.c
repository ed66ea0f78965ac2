/* Prints what a compiler makes of an nccl.h, and runs one collective with it. Built once against NVIDIA's header and
 * once against ours, both linked to our library; header_facts_test compares. Whatever header is used, only names it has
 * may appear here, hence the version conditions. */
#include <nccl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NUMBER(name) printf(#name " %lld\n", (long long)(name))
#define SIZE(type) printf("sizeof(" #type ") %zu\n", sizeof(type))
#define OFFSET(type, field) printf("offsetof(" #type "." #field ") %zu\n", offsetof(type, field))
#define TRY(call)                                                                              \
  do {                                                                                         \
    ncclResult_t result = call;                                                                \
    if (result != ncclSuccess) {                                                               \
      fprintf(stderr, #call ": %s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL)); \
      return 1;                                                                                \
    }                                                                                          \
  } while (0)

static void PrintEnums(void) {
  NUMBER(ncclSuccess);
  NUMBER(ncclUnhandledCudaError);
  NUMBER(ncclSystemError);
  NUMBER(ncclInternalError);
  NUMBER(ncclInvalidArgument);
  NUMBER(ncclInvalidUsage);
  NUMBER(ncclRemoteError);
  NUMBER(ncclInProgress);
  NUMBER(ncclSum);
  NUMBER(ncclProd);
  NUMBER(ncclMax);
  NUMBER(ncclMin);
  NUMBER(ncclAvg);
  NUMBER(ncclNumOps);
  NUMBER(ncclMaxRedOp);
  NUMBER(ncclInt8);
  NUMBER(ncclChar);
  NUMBER(ncclUint8);
  NUMBER(ncclInt32);
  NUMBER(ncclInt);
  NUMBER(ncclUint32);
  NUMBER(ncclInt64);
  NUMBER(ncclUint64);
  NUMBER(ncclFloat16);
  NUMBER(ncclHalf);
  NUMBER(ncclFloat32);
  NUMBER(ncclFloat);
  NUMBER(ncclFloat64);
  NUMBER(ncclDouble);
  NUMBER(ncclBfloat16);
  NUMBER(ncclFloat8e4m3);
  NUMBER(ncclFloat8e5m2);
  NUMBER(ncclNumTypes);
  NUMBER(ncclScalarDevice);
  NUMBER(ncclScalarHostImmediate);
  SIZE(ncclResult_t);
  SIZE(ncclRedOp_t);
  SIZE(ncclDataType_t);
  SIZE(ncclScalarResidence_t);
  SIZE(ncclComm_t);
  SIZE(ncclWindow_t);
  SIZE(cudaStream_t);
}

static void PrintConstants(void) {
  NUMBER(NCCL_MAJOR);
  NUMBER(NCCL_UNIQUE_ID_BYTES);
  NUMBER(NCCL_CONFIG_UNDEF_INT);
  NUMBER(NCCL_SPLIT_NOCOLOR);
  NUMBER(NCCL_UNDEF_FLOAT);
  NUMBER(NCCL_VERSION(2, 8, 1));
  NUMBER(NCCL_VERSION(2, 28, 9));
#if NCCL_VERSION_CODE >= 22809
  NUMBER(NCCL_WIN_DEFAULT);
  NUMBER(NCCL_WIN_COLL_SYMMETRIC);
  NUMBER(NCCL_WIN_REQUIRED_ALIGNMENT);
  NUMBER(NCCL_CTA_POLICY_DEFAULT);
  NUMBER(NCCL_CTA_POLICY_EFFICIENCY);
  NUMBER(NCCL_CTA_POLICY_ZERO);
  NUMBER(NCCL_SHRINK_DEFAULT);
  NUMBER(NCCL_SHRINK_ABORT);
  NUMBER(NCCL_REVOKE_DEFAULT);
#endif
}

static void PrintStructs(void) {
  SIZE(ncclUniqueId);
  SIZE(ncclSimInfo_t);
  OFFSET(ncclSimInfo_t, size);
  OFFSET(ncclSimInfo_t, magic);
  OFFSET(ncclSimInfo_t, version);
  OFFSET(ncclSimInfo_t, estimatedTime);
  OFFSET(ncclConfig_t, size);
  OFFSET(ncclConfig_t, magic);
  OFFSET(ncclConfig_t, version);
  OFFSET(ncclConfig_t, blocking);
  OFFSET(ncclConfig_t, cgaClusterSize);
  OFFSET(ncclConfig_t, minCTAs);
  OFFSET(ncclConfig_t, maxCTAs);
  OFFSET(ncclConfig_t, netName);
  OFFSET(ncclConfig_t, splitShare);
#if NCCL_VERSION_CODE >= 22809
  OFFSET(ncclConfig_t, trafficClass);
  OFFSET(ncclConfig_t, commName);
  OFFSET(ncclConfig_t, collnetEnable);
  OFFSET(ncclConfig_t, CTAPolicy);
  OFFSET(ncclConfig_t, shrinkShare);
  OFFSET(ncclConfig_t, nvlsCTAs);
  OFFSET(ncclConfig_t, nChannelsPerNetPeer);
  OFFSET(ncclConfig_t, nvlinkCentricSched);
#endif
}

/* Two ranks in one thread, made with a config of this header's layout. */
static int RunCollective(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comms[2];
  float in[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}}, out[2][4];
  int version = 0, count = 0;
  config.blocking = 1;
  config.maxCTAs = 4;
  TRY(ncclGetVersion(&version));
  printf("library %d\n", version);
  TRY(ncclGetUniqueId(&id));
  TRY(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) TRY(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
  TRY(ncclGroupEnd());
  TRY(ncclCommCount(comms[0], &count));
  TRY(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    TRY(ncclAllReduce(in[rank], out[rank], 4, ncclFloat32, ncclSum, comms[rank], NULL));
  TRY(ncclGroupSimulateEnd(&info));
  TRY(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    TRY(ncclAllReduce(in[rank], out[rank], 4, ncclFloat32, ncclSum, comms[rank], NULL));
  TRY(ncclGroupEnd());
  for (int rank = 0; rank < 2; ++rank) TRY(ncclCommFinalize(comms[rank]));
  for (int rank = 0; rank < 2; ++rank) TRY(ncclCommDestroy(comms[rank]));
  printf("ranks %d\n", count);
  for (int rank = 0; rank < 2; ++rank)
    printf("sum %g %g %g %g\n", out[rank][0], out[rank][1], out[rank][2], out[rank][3]);
  return info.estimatedTime >= 0 ? 0 : 1;
}

int main(void) {
  PrintEnums();
  PrintConstants();
  PrintStructs();
  return RunCollective();
}
