// Where memory lies. Thread-safe.
#pragma once

#include <cstddef>

namespace axccl::topo {

// Pages of [memory, memory + bytes), whole pages, that are touched from now on come from the node while it has any
// left; kNowhere: from where the thread is that touches them, as usual. False, and nothing changed, where the system
// does not let us, as in some containers, or has no such node.
bool PreferNode(void* memory, size_t bytes, int node);

}  // namespace axccl::topo
