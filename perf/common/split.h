// NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK: which processes form a communicator of their own.
#pragma once

#include "src/base/status.h"

namespace axccl::perf {

// Returns the group of `process`. `mask` is NCCL_TESTS_SPLIT_MASK (hexadecimal), `rule` NCCL_TESTS_SPLIT ("MOD 2",
// "%2", "AND 0x1", "& 1", "OR 2", "| 2", "DIV 4", "/ 4"). Either may be null; the mask has precedence; without both,
// the group is 0.
Result<int> SplitGroup(const char* mask, const char* rule, int process);

}  // namespace axccl::perf
