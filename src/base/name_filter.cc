#include "src/base/name_filter.h"

#include <algorithm>

namespace axccl {

NameFilter::NameFilter(std::string_view text) {
  excludes_ = text.starts_with('^');
  if (excludes_) text.remove_prefix(1);
  exact_ = text.starts_with('=');
  if (exact_) text.remove_prefix(1);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma != 0) names_.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

bool NameFilter::Matches(std::string_view entry, std::string_view name) const {
  return exact_ ? name == entry : name.starts_with(entry);
}

bool NameFilter::Takes(std::string_view name) const {
  const auto matches = [&](const std::string& entry) { return Matches(entry, name); };
  return empty() || std::any_of(names_.begin(), names_.end(), matches) != excludes_;
}

bool NameFilter::Takes(std::string_view device, int port) const {
  const auto matches = [&](std::string_view entry) {
    const size_t colon = std::min(entry.find(':'), entry.size());
    return Matches(entry.substr(0, colon), device) &&
           (colon == entry.size() || entry.substr(colon + 1) == std::to_string(port));
  };
  return empty() || std::any_of(names_.begin(), names_.end(), matches) != excludes_;
}

}  // namespace axccl
