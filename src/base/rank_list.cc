#include "src/base/rank_list.h"

namespace axccl {
namespace {

constexpr size_t kMostCharacters = 200;

}  // namespace

std::string ListRanks(int ranks, const std::function<bool(int rank)>& which) {
  std::string list;
  int count = 0;
  for (int first = 0; first < ranks; ++first) {
    if (!which(first)) continue;
    int last = first;
    while (last + 1 < ranks && which(last + 1)) ++last;
    count += last - first + 1;
    if (list.size() < kMostCharacters) {
      list += (list.empty() ? "" : ", ") + std::to_string(first);
      if (last > first) list += (last == first + 1 ? ", " : "-") + std::to_string(last);
    } else if (!list.ends_with("...")) {
      list += ", ...";
    }
    first = last;
  }
  return (count == 1 ? "rank " : "ranks ") + list;
}

}  // namespace axccl
