#include "src/exec/platform/platform.h"

#include <algorithm>
#include <utility>

#include "src/exec/platform/rank_device.h"

namespace axccl::exec {

Status LaunchGroup(std::vector<StreamCall> calls) {
  std::vector<std::pair<const Platform*, std::vector<StreamCall>>> parts;
  for (StreamCall& call : calls) {
    const Platform* const platform = &call.device->platform();
    auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == platform; });
    if (part == parts.end()) part = parts.insert(parts.end(), {platform, {}});
    part->second.push_back(std::move(call));
  }
  for (auto& [platform, of_platform] : parts) AXCCL_RETURN_IF_ERROR(platform->Prepare(&of_platform));
  for (auto& [platform, of_platform] : parts) AXCCL_RETURN_IF_ERROR(platform->Launch(std::move(of_platform)));
  return Status();
}

}  // namespace axccl::exec
