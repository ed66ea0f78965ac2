// How much of the processors' caches this process can really use.
//
// What the system reports does not tell: virtual machines report caches that they share with strangers, a size of their
// own, or none. So threads on several processors copy at the same time, with plain stores and with stores around the
// cache, in working sets that grow until the latter are faster. Plain stores to what is in no cache first read what
// they overwrite; stores around the cache leave nothing for whoever reads the destination next. Every fourth time it is
// read, since nobody knows when the owner of an output will use it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace axccl::cost {

// The least time in which all threads have copied; half of the working set is the source, half the destination.
struct CopyTimes {
  uint64_t bytes = 0;  // the working set of a thread
  double plain = 0;    // seconds with plain stores
  double around = 0;   // with stores around the cache
};

inline bool AroundIsFaster(const CopyTimes& times) { return times.plain > times.around; }

// The working set of a thread up to which plain stores are faster, between the measured ones by interpolation.
// `times` has ascending sizes. The last size if plain stores always are; half of the first if they never are.
uint64_t KeptBytes(const std::vector<CopyTimes>& times);

struct UsableCache {
  uint64_t bytes = 0;  // of all threads together
  int threads = 0;
};

// Whether this build can measure it: not without optimisation or with sanitizers, where copies take as long in any
// cache, nor where no stores bypass the cache.
bool CanMeasureCache();

// Takes some 0.15 s for a cache of 32 MiB, up to 0.5 s where other work disturbs it, and up to 256 MiB of memory, less
// where little is free. Runs threads on the first of the processors that this process may use. Empty if nothing could
// be measured, or too much other work is under way.
std::optional<UsableCache> MeasureUsableCache();

}  // namespace axccl::cost
