// Selects device names by a list in the form of NCCL_SOCKET_IFNAME and NCCL_IB_HCA.
//
// The list holds prefixes, separated by commas. A leading `=` asks for exact names, a leading `^` for all names but
// those listed (`^=`: both). For devices with ports, an entry may name a port behind a colon: "mlx5_0:1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace axccl {

class NameFilter {
 public:
  // An empty text selects every name.
  explicit NameFilter(std::string_view text);

  bool empty() const { return names_.empty() && !excludes_; }
  bool excludes() const { return excludes_; }
  bool Takes(std::string_view name) const;
  bool Takes(std::string_view device, int port) const;

 private:
  bool Matches(std::string_view entry, std::string_view name) const;

  bool excludes_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

}  // namespace axccl
