// Threads on which futures are completed. Their callbacks are the application's: they may wait for other futures, so a
// completion never waits for another one to return.
#pragma once

#include <functional>

namespace axccl::torch {

// Runs `work` on a thread that does nothing else meanwhile.
void RunApart(std::function<void()> work);

}  // namespace axccl::torch
