// What this machine is made of: as hwloc tells, where that is installed, else as far as Linux tells in /sys.
//
// hwloc (2.x) is loaded when it is first asked, so that the library runs where it is absent; its own variables
// (HWLOC_XMLFILE, HWLOC_SYNTHETIC) work, and then nothing is said about this machine's own interfaces. It is asked for
// what the control group of the process allows, whatever the process is bound to. Thread-safe; takes tens of
// milliseconds on a large machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/topo/machine.h"

namespace axccl::topo {

// By whichever of the two ways below works.
Result<Machine> Discover();
// What NCCL_TOPO_FILE says where it is set, else what is discovered.
Result<Machine> FileOrDiscover();
// Whether this process has reason to look: more than one NUMA node is online. One file is read.
bool HasSeveralNodes();

// kInvalidUsage where hwloc is not installed, or the library was built without it.
Result<Machine> DiscoverByHwloc();
// One package, of which nothing is known but its nodes; every processor is taken for a core. `sys`: where sysfs is.
Result<Machine> DiscoverByKernel(const std::string& sys = "/sys");

// NICs and GPUs as the kernel lists them, by name, but for loopback.
std::vector<Nic> KernelNics(const std::string& sys = "/sys");
std::vector<Gpu> KernelGpus(const std::string& sys = "/sys");
// Whether a PCI device is a GPU, by its class (base class and subclass, 16 bits) and vendor. The simple displays of
// maintenance processors are none.
bool IsGpu(uint32_t pci_class, uint32_t vendor);
// What is printable of a name.
std::string PrintableName(std::string_view text);

}  // namespace axccl::topo
