// Counts what the movers read and write, for programs that are linked with counting.cc. It stands between the executor
// and the movers (CMakeLists.txt).
//
// It counts accesses to an ensemble's heaps, whichever view of them a rank uses. For one thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/host/box.h"
#include "tests/exec/ensemble.h"

namespace axccl::exec {

struct Volume {
  uint64_t read = 0, written = 0;  // bytes
};

class Counter {
 public:
  // Counts from now on until it is destroyed.
  explicit Counter(Ensemble* ensemble);
  ~Counter();
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  // Sets the rank whose steps follow.
  void SetRank(int rank) { rank_ = static_cast<size_t>(rank); }
  void Clear();

  const Volume& of(int rank) const { return by_rank_[static_cast<size_t>(rank)]; }
  Volume total() const;
  // How often the byte at an address of the owner's view has been read and written since the counter was made.
  int Reads(const void* own) const { return Seen(own, false); }
  int Writes(const void* own) const { return Seen(own, true); }
  // The number of calls of the movers of flat memory.
  int flat_calls() const { return flat_calls_; }

  // Called with the arguments of the movers.
  void CountBox(const kernels::BoxRange& range, const kernels::BoxOperand& operand, size_t element_bytes, bool writes);
  void CountFlat() { ++flat_calls_; }

 private:
  // Zeros, of which only pages that are written take memory and time.
  using Counts = std::unique_ptr<uint8_t[], decltype(&std::free)>;
  struct Heap {
    const std::byte* own;
    const std::byte* peer;
    size_t bytes;
    Counts reads, writes;  // by byte
  };

  int Seen(const void* own, bool writes) const;
  void Touch(const std::byte* p, size_t bytes, bool writes);

  size_t rank_ = 0;
  int flat_calls_ = 0;
  std::vector<Volume> by_rank_;
  std::vector<Heap> heaps_;
};

}  // namespace axccl::exec
