// How far two devices are from each other on PCI, in NCCL's steps (NCCL_NET_GDR_LEVEL), as Linux shows it in /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace axccl {

enum class PciDistance : uint8_t {
  kLoc,  // the same device
  kPix,  // behind one switch
  kPxb,  // behind several switches, but one port of the host
  kPhb,  // in one NUMA node, through the host
  kSys,  // in several nodes, or not known
};

// "PXB".
const char* Name(PciDistance distance);
// Parses such a name, or a number of NCCL's older scale (0 to 5); nullopt: neither.
std::optional<PciDistance> ParsePciDistance(std::string_view text);

// Between two devices whose folders in /sys these are, or links to them.
PciDistance DistanceOnPci(const std::string& one, const std::string& other);

}  // namespace axccl
