// Several copies whose destinations lie side by side, run by run, so that together they are contiguous. A rank that
// fetches the blocks of all ranks along an inner dimension makes such copies.
//
// A block in the first-level cache collects the runs of all sources and is written to the destination in whole cache
// lines. Runs of two sources that are a few bytes long are interleaved in registers (see Pair in box_isa.cc). Internal
// to the box movers. Plain values, no allocation.
#pragma once

#include "kernels/host/box.h"
#include "kernels/host/isa.h"

namespace axccl::kernels {

struct BoxCopies {
  const BoxOperand* dst;  // `num` of them; neither these nor the sources are packed
  const BoxOperand* src;
  int num;
  size_t element_bytes;
};

class Weave {
 public:
  Weave(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies);

  // The elements of one source in a row; 0: the copies are not of this kind.
  uint64_t row_elements() const { return row_elements_; }
  // Copies rows [begin, end), counted from the start of the box. No fence.
  void Run(uint64_t begin, uint64_t end, bool non_temporal) const;

 private:
  struct Source {
    const char* row;   // row 0
    int64_t in_row;    // bytes from the start of a row of the destination to this source's run
    int64_t row_step;  // bytes
    int64_t element_step;
  };
  bool FindSources(const BoxRange& range, const BoxCopies& copies, uint64_t elements);
  uint64_t RowsAtOnce() const;
  void FillPair(char* to, uint64_t begin, uint64_t rows, bool non_temporal) const;
  void Fill(char* to, uint64_t begin, uint64_t rows) const;

  static constexpr int kMaxSources = 16;
  const IsaTable& isa_;
  const size_t element_bytes_;
  const int num_;
  uint64_t row_elements_ = 0;
  size_t run_ = 0;              // bytes of one source in a row
  size_t row_bytes_ = 0;        // bytes of a row of the destination
  char* to_ = nullptr;          // row 0
  bool dense_ = false;          // the sources have no gaps
  bool pair_ = false;           // there are two sources, with short runs
  Source source_[kMaxSources];  // in the order of their runs
};

}  // namespace axccl::kernels
