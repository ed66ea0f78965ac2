// Functions that exist because programs link or look them up, and that cannot be served yet.
#pragma once

#include "nccl.h"

namespace axccl::api {

// ncclInvalidUsage, with a last-error text that names the function and what is missing. Thread-safe.
ncclResult_t Unsupported(const char* function, const char* what_is_missing);

}  // namespace axccl::api
