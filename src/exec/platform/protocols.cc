#include "src/exec/platform/protocols.h"

#include "src/tune/filter.h"

namespace axccl::exec {

Result<Protocols> Protocols::Parse(std::string_view text) {
  AXCCL_ASSIGN_OR_RETURN(const tune::Filter filter, tune::Filter::Parse(text, tune::Filter::Names::kProtocols));
  Protocols protocols;
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (filter.Admits(kind, "ll")) protocols.ll = static_cast<uint16_t>(protocols.ll | 1 << k);
    if (filter.Admits(kind, "ll128")) protocols.ll128 = static_cast<uint16_t>(protocols.ll128 | 1 << k);
  }
  return protocols;
}

}  // namespace axccl::exec
