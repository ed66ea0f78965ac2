// Places memory on NUMA nodes. Thread-safe.
#pragma once

#include <cstddef>

namespace axccl::topo {

// Makes whole pages in [memory, memory + bytes) that are first touched from now on come from the node while it has free
// memory. kNowhere: from the node of the thread that touches them, as usual. Returns false, without effect, when the
// system refuses, as in some containers, or has no such node.
bool PreferNode(void* memory, size_t bytes, int node);

}  // namespace axccl::topo
