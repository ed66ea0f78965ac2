// Built in place of hwloc.cc where hwloc's headers are missing.
#include "src/topo/discover.h"

namespace axccl::topo {

Result<Machine> DiscoverByHwloc() {
  return MakeStatus(Code::kInvalidUsage, "this library was built without hwloc (libhwloc-dev)");
}

}  // namespace axccl::topo
