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
  std::span<const Id> DroppedAfter(const Operation& operation) const { return Find(after_, &operation); }
  // The arguments that nothing uses; of a part, donated ones.
  std::span<const Id> DroppedAtOnce(const Function& function) const { return Find(at_once_, &function); }
  // What it defines and returns, and what it may not drop; not what a region returns of a function around it.
  std::span<const Id> DroppedAtEnd(const Function& function) const { return Find(at_end_, &function); }

 private:
  template <class Of>
  using Drops = std::unordered_map<const Of*, std::vector<Id>>;

  template <class Of>
  static std::span<const Id> Find(const Drops<Of>& drops, const Of* of) {
    const auto found = drops.find(of);
    return found == drops.end() ? std::span<const Id>() : std::span<const Id>(found->second);
  }
  void Add(const Function& function, bool is_part);

  Drops<Operation> after_;
  Drops<Function> at_once_, at_end_;
};

}  // namespace axccl::program
