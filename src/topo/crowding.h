// How many ranks a processor has to serve, from the processors that each rank of a machine may use. Ranks that are
// bound to processors of their own have these for themselves, however many ranks there are. Pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace axccl::topo {

// The processors that a rank may use, in a form that ranks exchange. Any bits are legal. Processors 1024 apart have the
// same place; machines with more processors hardly differ for that.
struct ProcessorSet {
  static constexpr int kPlaces = 1024;
  uint64_t bits[kPlaces / 64] = {};

  int Count() const;
};

ProcessorSet SetOf(const std::vector<int>& processors);

// Returns the number of processors that these ranks may use in total, at least 1.
int CountTogether(std::span<const ProcessorSet> ranks);

// Returns the number of ranks that a processor of rank `self` has to serve on average, rounded up, if each rank uses
// its processors evenly; at least 1.
int Crowding(std::span<const ProcessorSet> ranks, size_t self);

}  // namespace axccl::topo
