// Where two runs of a program differ.
#pragma once

#include <string>
#include <vector>

#include "src/program/reference.h"

namespace axccl::tools {

// Floats may differ by `tolerance` times the largest element of the expected tensor; all else must be equal, and so
// must floats if it is 0. NaNs are equal whatever their bits: which operand's a sum passes on is left to the processor
// and the compiler. Returns where tensors differ first, such as "element [0,3] is 1 instead of 2"; "" if they do not.
std::string Difference(const program::Tensor& actual, const program::Tensor& expected, double tolerance);

// What the operations of every rank gave, in the order of each rank. Thread-safe for different ranks.
class Trace {
 public:
  explicit Trace(int ranks) : of_rank_(static_cast<size_t>(ranks)) {}
  program::Observer observer();
  // The operation of any rank that differs first: the least far into its rank's run. "" if none differs.
  std::string FirstDifference(const Trace& expected, double tolerance) const;

 private:
  struct Entry {
    const program::Operation* operation;
    size_t result;
    program::Tensor value;
  };
  std::vector<std::vector<Entry>> of_rank_;
};

}  // namespace axccl::tools
