// The work of one rank in a collective without overhead: which bytes it reads and which it writes.
//
// Every input byte of the operation is read by exactly one rank and every output byte written by exactly one, and the
// ranks share the work as evenly as the operation allows. Plain data; the pointers belong to the caller.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace axccl::perf {

// Sums `sources` (one: copies it) into every destination.
struct Job {
  std::vector<const char*> sources;
  std::vector<char*> destinations;
  size_t bytes;  // a multiple of 4
};

// `in` and `out` are the ranks' buffers; `bytes` is the size of the larger of the two buffers of a rank.
std::vector<Job> JobsOf(const std::string& collective, int rank, size_t bytes, const std::vector<char*>& in,
                        const std::vector<char*>& out);

}  // namespace axccl::perf
