// Which values of a program are used for the last time where: what an executor may free, and a simulation counts.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "src/program/program.h"

namespace axccl::program {

// Of all functions of a program, which must outlive it and stay where it is. A value lives in the function, or region,
// that defines it: what a region uses of a function around it is alive until the region's operation has ended. What a
// function returns is dropped at its end, by those who have taken it, and so are arguments of a part that are not
// donated, because their memory is the caller's. Immutable; any thread may read it.
class Liveness {
 public:
  explicit Liveness(const Program& program);
  // The values to drop once the operation has ended: those that it uses last, and results that nothing uses.
  // `function`: whose operation it is.
  std::span<const Id> DroppedAfter(const Function& function, const Operation& operation) const {
    const Drops& drops = DropsOf(function);
    const size_t place = static_cast<size_t>(&operation - function.operations.data());
    return std::span(drops.after).subspan(drops.begin[place], drops.begin[place + 1] - drops.begin[place]);
  }
  // The arguments that nothing uses; of a part, donated ones.
  std::span<const Id> DroppedAtOnce(const Function& function) const { return DropsOf(function).at_once; }
  // What it defines and returns, and what it may not drop; not what a region returns of a function around it.
  std::span<const Id> DroppedAtEnd(const Function& function) const { return DropsOf(function).at_end; }

 private:
  struct Drops {
    std::vector<size_t> begin;  // [operation]: its first one of `after`; one more entry at the end
    std::vector<Id> after, at_once, at_end;
  };
  void Add(const Function& function, bool is_part);
  // Nothing is dropped in a function that is not of the program, which a rank without a part may run.
  const Drops& DropsOf(const Function& function) const {
    static const Drops kNone;
    const auto found = of_functions_.find(&function);
    return found == of_functions_.end() ? kNone : found->second;
  }

  std::unordered_map<const Function*, Drops> of_functions_;
};

}  // namespace axccl::program
