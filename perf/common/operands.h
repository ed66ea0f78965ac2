// The operands of one rank in a call on views: where their elements lie, and what they must hold before and after.
//
// Expected data follows the definition of the collective by index arithmetic of its own; nothing here calls the library
// under test. An object belongs to one rank and one thread. Its views live as long as it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "axccl/views.h"
#include "perf/common/collective_rules.h"
#include "perf/common/data.h"
#include "perf/common/view_options.h"

namespace axccl::perf {

class Operands {
 public:
  // `shapes`: the inputs of one rank. `in_place`: the smaller of input and output is this rank's part of the larger,
  // which lies as if the call were not in place. The options must fit (RefuseViews).
  Operands(ViewKind kind, const ViewOptions& options, const std::vector<Shape>& shapes, int ranks, int rank,
           bool in_place);

  Operands(Operands&&) = default;  // views point into their object
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Elements from the first to the last of all inputs (outputs), which a buffer must hold.
  size_t send_span() const { return static_cast<size_t>(send_span_); }
  size_t recv_span() const { return static_cast<size_t>(recv_span_); }
  // Elements of inputs and outputs and of the argument, as nccl-tests counts them for the collective.
  Counts counts() const;

  // The views with their data in these buffers; in place, `send` and `recv` are the same.
  void Aim(const char* send, char* recv, int type);
  int size() const { return static_cast<int>(in_.size()); }
  const axcclView_t* in() const { return in_views_.data(); }
  const axcclView_t* out() const { return out_views_.data(); }

  // Writes the inputs of the rank: elements of `sequence`, numbered by their places in memory (which indices may
  // share), through all operands. Aim comes first.
  void Fill(const Sequence& sequence) const;
  // Returns the number of wrong elements of the outputs. `root`: the rank whose data it is, for operations that
  // distribute one rank's data; -1 otherwise. `sequence` is that of any rank; for reductions, with op set.
  uint64_t CountWrongOutputs(const Sequence& sequence, int root) const;

 private:
  struct Layout {
    Shape sizes;
    std::vector<int64_t> strides;
    int64_t begin = 0;  // where element (0, 0, ...) is in the buffer
    void Number(const std::vector<int64_t>& strides_or_none);
    int64_t Elements() const;
    // How far below element (0, 0, ...) the lowest one is, and from there to behind the highest.
    int64_t Below() const;
    int64_t Span() const;
  };
  struct Origin;
  template <class Visit>
  static void Walk(const Layout& layout, Visit visit);
  axcclView_t ViewOf(const Layout& layout) const;
  uint64_t CountWrongOf(size_t operand, int64_t first, const Sequence& sequence, int root) const;

  ViewKind kind_;
  int ranks_;
  int rank_;
  int split_dim_;
  int concat_dim_;
  int64_t send_span_ = 0;
  int64_t recv_span_ = 0;
  int type_ = -1;
  const char* send_ = nullptr;
  char* recv_ = nullptr;
  std::vector<Layout> in_;
  std::vector<Layout> out_;
  std::vector<axcclView_t> in_views_;
  std::vector<axcclView_t> out_views_;
};

}  // namespace axccl::perf
