// Threads for work that may wait, in place of a framework's own: XLA may have fewer threads than devices, and what
// completes a future of PyTorch runs callbacks of the application, which may wait for other futures. Compiled into
// each extension. Thread-safe.
#pragma once

#include <functional>

namespace axccl::python {

// Runs `work` at once on a thread that does nothing else meanwhile. Returns false if the system grants no thread.
bool RunApart(std::function<void()> work);

}  // namespace axccl::python
