// Lists of ranks in messages.
#pragma once

#include <functional>
#include <string>

namespace axccl {

// Returns "rank 3" or "ranks 0, 1, 4-9" for the ranks in [0, ranks) for which `which` is true. Long lists end with
// "...".
std::string ListRanks(int ranks, const std::function<bool(int rank)>& which);

}  // namespace axccl
