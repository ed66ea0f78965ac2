// NCCL's own form of a machine (XML, version 1), which NCCL_TOPO_FILE reads as well as ours. NCCL writes such files
// (NCCL_TOPO_DUMP_FILE), and cloud images bring them along.
//
//   <system version="1">
//     <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
//       <pci busid="0000:16:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
//         <pci busid="0000:17:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
//           <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:27:00.0" count="12" tclass="0x030200"/></gpu>
//         </pci>
//         <pci busid="0000:18:00.0" class="0x020700"><nic><net name="mlx5_0" speed="200000"/></nic></pci>
//
// `gpu`, `nic` and `net` may be missing: then the class of a PCI device says what it is. Elements that NCCL does not
// read where they are, either, are skipped with all that is in them, and named in `ignored`; attributes that AxCCL has
// no use for are not looked at. Files are untrusted: memory stays in proportion to the text, and what is accepted
// makes a machine that passes Check. Functions are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/topo/machine.h"

namespace axccl::topo {

struct NcclCpu {
  int node = kNowhere;
  std::vector<int> processors;  // ascending; empty: the file leaves them to the system
  std::string name;             // vendor, family and model
};

struct NcclNic {
  std::string name;     // of the network device; empty: only its place on PCI is known
  std::string address;  // on PCI; empty: none
  NicKind kind = NicKind::kOther;
  uint64_t megabits = 0;
  int node = kNowhere;
};

struct NcclFile {
  std::vector<NcclCpu> cpus;
  std::vector<NcclNic> nics;
  std::vector<Gpu> gpus;
  std::set<std::string> ignored;
  // Processors that several cpus list, as every cpu of some virtual machines lists all. They belong to the first.
  std::set<int> repeated;
};

// Whether a text is XML, rather than text of text.h.
bool IsXml(std::string_view text);

// Returns kInvalidArgument with the line of the first thing that does not fit, or kInvalidUsage where expat, which
// reads the XML, is not installed.
Result<NcclFile> ParseNccl(std::string_view text);

// The PCI addresses of this machine's NICs, by name.
using Addresses = std::map<std::string, std::string>;

// The machine that the file describes. What it leaves open comes from `here`, as NCCL does: the processors of a node
// without `affinity`, and the names of NICs that are at one of the `addresses`.
Machine MachineOf(const NcclFile& file, const Machine& here, const Addresses& addresses);

// This machine, with the nodes and speeds that the file gives its GPUs and NICs. Parts of the file that are not here
// are left out, and parts that it does not list stay, as in NCCL.
Machine Corrected(const NcclFile& file, Machine here, const Addresses& addresses);

// What the user should know: elements that were ignored, processors that are listed again, and how much of the file is
// not on this machine. Empty: nothing.
std::string Remark(const NcclFile& file, const Machine& here, const Addresses& addresses);

}  // namespace axccl::topo
