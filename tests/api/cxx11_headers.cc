// The public headers are C++11 too, with nothing before them.
#include "axccl/axccl.h"
#include "nccl.h"

static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES, "passed by value, 128 bytes on the stack");

ncclConfig_t axccl_test_config = NCCL_CONFIG_INITIALIZER;
