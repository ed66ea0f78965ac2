// Which values are equal on which ranks of a part, as far as the program itself shows it. Conditions of loops and
// branches in which ranks communicate must be.
//
// Constants and what is computed from them are equal on all ranks, and so are arguments without dimensions: where a
// condition depends on one, the caller must give all ranks the same. Other arguments, partition_id, replica_id and what
// a rank receives are its own. The result of all_gather, all_reduce and collective_broadcast is equal within a group.
// Other results are as their operands and, of loops and branches, the condition.
//
// Refers to the part. Constant after construction, which takes time in proportion to the part.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "src/program/program.h"

namespace axccl::program {

class SharedValues {
 public:
  explicit SharedValues(const Part& part);

  // The first rank of `members`, ranks of the part, whose value may differ from that of the first member; -1: none.
  int64_t OtherRank(Id value, const Ints& members) const;
  // The largest sets of two or more ranks of the part in which the value is known to be equal.
  std::vector<Ints> SetsOf(Id value) const;

 private:
  // How a value is shared: one of these, or kFirstGroups + the index of groups in which it is equal. Values begin as
  // kAll and go down to groups and kOwn.
  static constexpr int kAll = 0, kOwn = 1, kFirstGroups = 2;
  using NumberOfRank = std::unordered_map<int64_t, size_t>;  // the group of each rank that is in one

  void ReadFunction(const Function& function);
  void ReadOperation(const Operation& operation);
  void ReadWhile(const Operation& operation);
  void Connect(Id from, Id to) { users_[from].push_back(to); }
  void Lower(Id value, int sharing);
  int SharingOf(const Groups& groups);
  void Propagate();

  const Part& part_;
  std::unordered_map<Id, int> sharing_;  // kAll where there is none
  std::unordered_map<Id, std::vector<Id>> users_;
  std::vector<Id> lowered_;  // values whose users do not know it yet
  std::map<Groups, int> known_groups_;
  std::vector<NumberOfRank> groups_;
};

}  // namespace axccl::program
