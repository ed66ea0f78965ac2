// NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK: which processes form a communicator of their own.
#pragma once

#include "src/base/status.h"

namespace axccl::perf {

// The group of `process`. `mask` is NCCL_TESTS_SPLIT_MASK (hexadecimal), `rule` NCCL_TESTS_SPLIT ("MOD 2", "%2",
// "AND 0x1", "& 1", "OR 2", "| 2", "DIV 4", "/ 4"); either may be null, the mask wins, neither means group 0.
Result<int> SplitGroup(const char* mask, const char* rule, int process);

}  // namespace axccl::perf
