// Where two runs of a program differ.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/program/reference.h"
#include "tools/axccl-program/ranks.h"

namespace axccl::tools {

// Floats may differ by `tolerance` times the largest element of the expected tensor; all else must be equal, and so
// must floats if it is 0. NaNs are equal whatever their bits: which operand's a sum passes on is left to the processor
// and the compiler. Returns where tensors differ first, such as "element [0,3] is 1 instead of 2"; "" if they do not.
std::string Difference(const program::Tensor& actual, const program::Tensor& expected, double tolerance);

// "rank 1, output 2: element [0] is 1 instead of 2" of what a rank gave, for the outputs of all ranks; "" if they are
// alike.
std::string OutputDifference(int rank, const program::Tensors& actual, const std::vector<program::Tensors>& expected,
                             double tolerance);

// Where an operation of a rank is executed. Plain numbers: processes send them to each other.
struct Place {
  uint64_t part = 0;   // of the rank
  uint64_t index = 0;  // how far into the rank's run
  uint64_t order = 0;  // how far into that of the reference, which executes all ranks
};

// The rank whose place is the first; none if no rank has one. In a part, that is the place least far into the run, that
// of the lowest rank if several are. Of the parts', it is the one to which the reference comes first: what differs
// there may be why others differ, and not the other way around.
std::optional<size_t> FirstOf(const std::vector<std::optional<Place>>& of_ranks);

// An operation that differs from the reference.
struct DifferentOperation {
  Place place;
  std::string text;  // "rank 1, %9 all_reduce: element [2,5] is 1 instead of 2"
};

// Compares what operations give with the reference, while ranks execute them.
class Watch {
 public:
  // Both must outlive it.
  Watch(const program::Program* program, const std::vector<program::Tensors>* inputs, double tolerance);

  // From now on the rank is watched, which is one of `here`. The first call runs the reference and keeps all that these
  // ranks gave in it; others wait for that. Errors are those of the reference. Thread-safe.
  Status Begin(int rank, RankRange here);
  // Of the run. Does nothing for ranks that are not watched. Thread-safe for different ranks.
  program::Observer observer();
  // The first operation of a rank that differs, so far. Not while the rank runs.
  const std::optional<DifferentOperation>& Of(int rank) const { return ranks_[static_cast<size_t>(rank)].first; }

 private:
  struct Entry {
    const program::Operation* operation;
    size_t result;
    program::Tensor value;
    uint64_t order;
  };
  struct OfRank {
    uint64_t part = 0;
    std::vector<Entry> expected;
    bool is_watched = false;
    size_t next = 0;
    std::optional<DifferentOperation> first;
  };

  Status RunReference(RankRange here);
  void See(int rank, const program::Operation& operation, size_t result, const program::Tensor& value);

  const program::Program& program_;
  const std::vector<program::Tensors>& inputs_;
  const double tolerance_;
  std::once_flag once_;
  Status status_;  // of the reference
  std::vector<OfRank> ranks_;
};

}  // namespace axccl::tools
