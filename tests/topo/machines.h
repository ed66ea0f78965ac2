// The machines of the tests, in their text form (tests/topo/machines).
#pragma once

#include <string>

#include "src/topo/machine.h"

namespace axccl::test {

// `two_packages`: 2 packages, 4 nodes, 8 caches of 4 cores with 2 processors each, a NIC per package, 2 GPUs per node.
// `laptop`: cores of two kinds. `odd`: a node in two packages, one without cores, no caches.
std::string MachinePath(const std::string& name);
std::string MachineText(const std::string& name);
topo::Machine ReadMachine(const std::string& name);

}  // namespace axccl::test
