/* A user of the whole API in what C89 and C++98 have in common; headers_test.sh compiles it in every language. */
#include "axccl/axccl.h"
#include "axccl/device.h"
#include "nccl.h"

typedef struct UserOfAxccl {
  ncclConfig_t config;
  ncclCollConfig_t coll_config;
  ncclSimInfo_t sim_info;
  axcclView_t view;
  axcclOptions_t options;
} UserOfAxccl;

/* Sizes of every struct: C++ compilers lay a struct out, and warn about it, when it is used. */
size_t axccl_test_sizes(void);
size_t axccl_test_sizes(void) {
  return sizeof(UserOfAxccl) + sizeof(axcclCommInfo_t) + sizeof(axcclOpInfo_t) + sizeof(axcclGroupSpec_t) +
         sizeof(ncclUniqueId) + sizeof(ncclConfigExt_t) + sizeof(ncclWaitSignalDesc_t);
}

/* Every macro that casts, and every initializer. */
int axccl_test_types(ncclDataType_t type);
int axccl_test_types(ncclDataType_t type) {
  const ncclDataType_t types[] = {axcclInt16, axcclUint16, axcclBool, axcclComplex64, axcclComplex128, axcclBits(3)};
  const ncclRedOp_t operators[] = {axcclAnd, axcclOr, axcclXor, axcclLogicalAnd, axcclLogicalOr};
  return types[0] == type && operators[0] == ncclSum;
}
extern UserOfAxccl axccl_test_user;
UserOfAxccl axccl_test_user = {NCCL_CONFIG_INITIALIZER, NCCL_COLLCONFIG_INITIALIZER, NCCL_SIM_INFO_INITIALIZER,
                               AXCCL_VIEW_INITIALIZER, AXCCL_OPTIONS_INITIALIZER};
extern axcclGroupSpec_t axccl_test_groups;
axcclGroupSpec_t axccl_test_groups = AXCCL_GROUP_SPEC_INITIALIZER;

/* Every inline function. */
axcclChannel_t axccl_test_channel(axcclStream_t stream, ncclComm_t comm, uint32_t* word);
axcclChannel_t axccl_test_channel(axcclStream_t stream, ncclComm_t comm, uint32_t* word) {
  axcclDeviceReady(word);
  if (axcclDeviceAwait(word) == 1u) axcclStreamSynchronize(axcclStreamFromCuda(axcclStreamToCuda(stream)));
  return axcclDefaultChannel(comm);
}

/* What nccl.h brings along; the script says what to expect. */
#ifdef EXPECT_CUDA
cudaError_t axccl_test_error(void);
cudaError_t axccl_test_error(void) { return cudaSuccess; }
#else
typedef int cudaError_t;
cudaError_t axccl_test_error(void);
cudaError_t axccl_test_error(void) { return 0; }
#endif
