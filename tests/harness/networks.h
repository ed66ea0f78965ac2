// UCX looks for networks here. A chroot need not have it.
#pragma once

namespace axccl::harness {

inline constexpr const char* kNetworks = "/sys/class/net";
inline constexpr const char* kNoNetworks = "/sys is not mounted, where UCX looks for networks";

}  // namespace axccl::harness
