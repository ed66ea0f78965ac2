// Memory that processes forked later share, of the kind that ncclMemAlloc gives: a memfd, mapped shared, plain pages.
#pragma once

#include <cstddef>

namespace axccl::perf {

// Returns zeroed memory that stays until the process ends. Ends the process when there is no memory.
char* MapShared(size_t bytes);

}  // namespace axccl::perf
