// How often a loop is executed, where the program shows it: its condition compares a counter, which begins with a
// constant and grows by a constant, with a constant.
//
// Refers to the part. Constant after construction; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "src/program/id_table.h"
#include "src/program/program.h"

namespace axccl::program {

class Rounds {
 public:
  // The part has passed CheckTypes.
  explicit Rounds(const Part& part) { Learn(part.function); }

  // The number of times that a `while` of the part executes its body.
  std::optional<int64_t> Of(const Operation& loop) const;

 private:
  using Wide = __int128;

  void Learn(const Function& function);
  // The value of an integer constant without dimensions.
  std::optional<Wide> ConstantOf(Id value) const;
  std::optional<Wide> StepOf(Id argument, Id result) const;

  IdTable<const Operation*> makers_;  // of results
};

}  // namespace axccl::program
