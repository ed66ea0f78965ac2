// Finds out what this machine is made of: from hwloc if that is installed, otherwise from what Linux shows in /sys.
//
// hwloc (2.x) is loaded at its first use, so the library runs where it is absent. Its own variables (HWLOC_XMLFILE,
// HWLOC_SYNTHETIC) take effect; the result then holds none of this machine's own interfaces. hwloc reports what the
// process's control group allows, whatever the process is bound to. Thread-safe; takes tens of milliseconds on a large
// machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/topo/machine.h"
#include "src/topo/nccl_file.h"

namespace axccl::topo {

// Uses hwloc, or /sys if that fails.
Result<Machine> Discover();

// kShow: a file in NCCL's form stands for the machine that it describes, which may be another one. kPlace: it corrects
// what is found on this one, as in NCCL.
enum class FileUse : uint8_t { kShow, kPlace };
struct Found {
  Machine machine;
  std::string remark;  // one line about the file that the user should see; or empty
};
// Reads NCCL_TOPO_FILE, in our form or NCCL's, if it is set, otherwise discovers the machine. The message of an error
// names the file.
Result<Found> FileOrDiscover(FileUse use);
Result<Found> ReadFile(const std::string& path, FileUse use);

// Whether discovery is worthwhile for this process: more than one NUMA node is online. Reads one file.
bool HasSeveralNodes();

// Returns kInvalidUsage when hwloc is not installed, or the library was built without it.
Result<Machine> DiscoverByHwloc();
// Describes one package with its nodes; every processor counts as a core. `sys`: the path of sysfs.
Result<Machine> DiscoverByKernel(const std::string& sys = "/sys");

// The NICs and GPUs that the kernel lists, by name, without loopback.
std::vector<Nic> KernelNics(const std::string& sys = "/sys");
std::vector<Gpu> KernelGpus(const std::string& sys = "/sys");
// The PCI addresses of those NICs that are on PCI.
Addresses KernelAddresses(const std::string& sys = "/sys");
// Whether a PCI device is a GPU, by its class (base class and subclass, 16 bits) and vendor. The simple displays of
// maintenance processors are not.
bool IsGpu(uint32_t pci_class, uint32_t vendor);
// The printable part of a name.
std::string PrintableName(std::string_view text);

}  // namespace axccl::topo
