#include "tools/axccl-info/topology.h"

#include <cerrno>
#include <cstdio>

#include "src/base/files.h"
#include "src/base/param.h"
#include "src/base/processors.h"
#include "src/topo/discover.h"
#include "src/topo/draw.h"
#include "src/topo/place.h"
#include "src/topo/text.h"

namespace axccl_info {
namespace {

using axccl::Result;
using axccl::Status;
namespace topo = axccl::topo;

Result<std::string> Draw(const Options& options) {
  AXCCL_ASSIGN_OR_RETURN(const topo::Machine machine, topo::FileOrDiscover());
  topo::PlaceOptions place;
  place.ranks = options.ranks;
  // The binding of this process does not apply to a machine read from a file.
  if (axccl::param::Get("NCCL_TOPO_FILE").empty()) place.allowed = axccl::AllowedProcessors();
  const std::vector<topo::Seat> seats = topo::Place(machine, place);
  switch (options.format) {
    case Format::kSvg:
      return topo::DrawSvg(machine, seats);
    case Format::kFile:
      return topo::Print(machine);
    case Format::kText:
      break;
  }
  return topo::DrawText(machine, seats);
}

}  // namespace

int ShowTopology(const Options& options) {
  const Result<std::string> picture = Draw(options);
  Status status = picture.status();
  if (status.ok() && !options.output.empty()) {
    status = axccl::WriteWholeFile(options.output, picture.value());
  } else if (status.ok()) {
    const bool written = std::fputs(picture.value().c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
    if (!written) status = axccl::SystemError(errno, "writing to standard output");
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "axccl-info: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace axccl_info
