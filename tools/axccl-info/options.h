// The command line of axccl-info, parsed. Pure; the options own their text.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl_info {

enum class Format { kText, kSvg, kFile };

struct Options {
  bool help = false, version = false;  // the rest was not read
  int ranks = 0;                       // 0: do not start any
  bool topology = false;
  bool json = false;
  Format format = Format::kText;
  std::string output;  // empty: standard output
};

inline constexpr int kMaxPlacedRanks = 4096;

// Returns kInvalidArgument, with the wrong argument and what is accepted.
axccl::Result<Options> ParseOptions(const std::vector<std::string>& arguments);

inline constexpr char kUsage[] =
    "usage: axccl-info [--ranks N] [--json]\n"
    "       axccl-info --topology [--ranks N] [--format text|svg|file | --json] [--output FILE]\n"
    "  Prints versions, processor, devices, GPUs and parameters.\n"
    "  --ranks N     also starts N processes (1..64), makes a communicator of them, and prints the link between every\n"
    "                two ranks, the time of init, and the memory a rank holds before first use and after an "
    "all_reduce\n"
    "                of 64 MiB. Needs 64 MiB per rank.\n"
    "  --topology    draws what the machine is made of instead: this one, or that of NCCL_TOPO_FILE. Nothing is "
    "started.\n"
    "  --ranks N     with --topology: also where each of N ranks (1..4096) would be placed\n"
    "  --format F    text (default), svg, or file: what NCCL_TOPO_FILE reads (docs/topology.md)\n"
    "  --json        prints the same as JSON (docs/json.md)\n"
    "  --output FILE writes there instead of standard output\n"
    "  -h, --help    prints this; --version: name and version\n";

}  // namespace axccl_info
