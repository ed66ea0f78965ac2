#include "perf/floor/jobs.h"

#include <algorithm>

namespace axccl::perf {
namespace {

struct Range {
  size_t begin;
  size_t bytes;
};

// Part `rank` of `ranks` with boundaries on cache lines, so that no two ranks write one line.
Range ShareOf(size_t bytes, int rank, size_t ranks) {
  auto boundary = [&](size_t i) { return i == ranks ? bytes : bytes * i / ranks / 64 * 64; };
  size_t begin = boundary(static_cast<size_t>(rank));
  return {begin, boundary(static_cast<size_t>(rank) + 1) - begin};
}

std::vector<const char*> Sources(const std::vector<char*>& buffers, size_t offset) {
  std::vector<const char*> at;
  for (char* buffer : buffers) at.push_back(buffer + offset);
  return at;
}

std::vector<char*> Destinations(const std::vector<char*>& buffers, size_t offset) {
  std::vector<char*> at;
  for (char* buffer : buffers) at.push_back(buffer + offset);
  return at;
}

}  // namespace

std::vector<Job> JobsOf(const std::string& collective, int rank, size_t bytes, const std::vector<char*>& in,
                        const std::vector<char*>& out) {
  size_t ranks = in.size();
  size_t r = static_cast<size_t>(rank);
  Range share = ShareOf(bytes, rank, ranks);
  size_t part = bytes / ranks;  // of the operations with a part a rank
  if (collective == "all_reduce") return {{Sources(in, share.begin), Destinations(out, share.begin), share.bytes}};
  if (collective == "reduce") return {{Sources(in, share.begin), {out[0] + share.begin}, share.bytes}};
  if (collective == "broadcast") return {{{in[0] + share.begin}, Destinations(out, share.begin), share.bytes}};
  if (collective == "reduce_scatter") return {{Sources(in, r * part), {out[r]}, part}};
  if (collective == "all_gather") return {{{in[r]}, Destinations(out, r * part), part}};
  if (collective == "gather") return {{{in[r]}, {out[0] + r * part}, part}};
  if (collective == "scatter") return {{{in[0] + r * part}, {out[r]}, part}};
  if (collective == "sendrecv") return {{{in[r]}, {out[(r + 1) % ranks]}, bytes}};
  std::vector<Job> jobs;  // alltoall
  for (size_t peer = 0; peer < ranks; ++peer) jobs.push_back({{in[r] + peer * part}, {out[peer] + r * part}, part});
  return jobs;
}

}  // namespace axccl::perf
