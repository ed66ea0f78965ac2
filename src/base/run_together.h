// Runs work whose parts wait for each other, all at the same time.
#pragma once

#include <cstddef>
#include <functional>

#include "src/base/status.h"

namespace axccl {

// Runs fn(0) on this thread and each of fn(1) .. fn(count - 1) on a thread of its own, and returns when all have ended.
// If that many threads cannot be started, returns an error that names `what` and runs none of them. `fn` must not
// throw.
Status RunTogether(const char* what, size_t count, const std::function<void(size_t index)>& fn);

}  // namespace axccl
