// Built in place of nccl_xml.cc where expat's headers are missing.
#include "src/topo/nccl_file.h"

namespace axccl::topo {

Result<NcclFile> ParseNccl(std::string_view) {
  return MakeStatus(
      Code::kInvalidUsage,
      "this is XML, as NCCL writes it, and AxCCL was built without expat (libexpat1-dev), which reads it; "
      "use a file of 'axccl-info --topology --format file'");
}

}  // namespace axccl::topo
