/* The public headers are C, with nothing before them. */
#include "axccl/axccl.h"
#include "nccl.h"

ncclConfig_t axccl_test_config = NCCL_CONFIG_INITIALIZER;
ncclCollConfig_t axccl_test_coll_config = NCCL_COLLCONFIG_INITIALIZER;
ncclSimInfo_t axccl_test_sim_info = NCCL_SIM_INFO_INITIALIZER;
axcclStream_t axccl_test_round_trip(axcclStream_t stream) { return axcclStreamFromCuda(axcclStreamToCuda(stream)); }
