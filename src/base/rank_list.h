// Ranks in messages.
#pragma once

#include <functional>
#include <string>

namespace axccl {

// "rank 3", "ranks 0, 1, 4-9": those from 0 to ranks - 1 that `which` is true for. Long lists end with "...".
std::string ListRanks(int ranks, const std::function<bool(int rank)>& which);

}  // namespace axccl
