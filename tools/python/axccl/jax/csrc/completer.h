// Threads that wait for calls in place of XLA's, which may be fewer than the devices. Thread-safe.
#pragma once

#include <functional>

namespace axccl::jax {

// Runs `work` at once on a thread of its own, which may wait. Returns false if the system grants no thread.
bool RunApart(std::function<void()> work);

}  // namespace axccl::jax
