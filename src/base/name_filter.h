// Names of devices chosen by a list, as NCCL_SOCKET_IFNAME and NCCL_IB_HCA have it.
//
// Prefixes, separated by commas; `=` in front of the list asks for exact names, `^` for all but those listed (`^=`:
// both). Where devices have ports, an entry may name one behind a colon: "mlx5_0:1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace axccl {

class NameFilter {
 public:
  // An empty text takes everything.
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
