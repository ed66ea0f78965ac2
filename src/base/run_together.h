// Runs what has to go on at the same time, as its parts wait for each other.
#pragma once

#include <cstddef>
#include <functional>

#include "src/base/status.h"

namespace axccl {

// Runs fn(0) on this thread and fn(1) .. fn(count - 1) on one each, and returns when all have ended. Not ok, and none
// of them run, where there are not so many threads to be had; `what` is named in the error. `fn` does not throw.
Status RunTogether(const char* what, size_t count, const std::function<void(size_t index)>& fn);

}  // namespace axccl
