// The origin of the network's figures.
#pragma once

#include <cstdint>

namespace axccl::comm {

enum class NetworkSource : uint32_t { kFixed, kMeasured, kKept };

// "fixed figures", "measured" or "measured before".
constexpr const char* TextOf(NetworkSource source) {
  switch (source) {
    case NetworkSource::kFixed:
      return "fixed figures";
    case NetworkSource::kMeasured:
      return "measured";
    case NetworkSource::kKept:
      return "measured before";
  }
  return "";
}

}  // namespace axccl::comm
