// Which ranks meet in a collective, and which pair a message belongs to, looked up in constant time for each rank.
// Refers to the program. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "src/program/program.h"

namespace axccl::program {

class MeetingTable {
 public:
  static constexpr uint32_t kNone = ~0u;

  explicit MeetingTable(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // The number of the rank's group in a collective, from 0; kNone if it is in none.
  uint32_t GroupOf(const Operation& collective, int rank);
  const Ints& MembersOf(uint32_t group) const { return *members_[group]; }
  size_t num_groups() const { return members_.size(); }

  // The number of the queue of a `send` or `recv` of the rank, from 0; kNone if a `send` of the rank sends nothing.
  uint32_t QueueOf(const Operation& message, int rank);
  // Source and target.
  const Ints& EndsOf(uint32_t queue) const { return ends_[queue]; }
  size_t num_queues() const { return ends_.size(); }

 private:
  using OfRanks = std::shared_ptr<const std::vector<uint32_t>>;  // [rank]

  uint32_t Intern(const Ints& members);

  const size_t ranks_;
  std::unordered_map<const Operation*, OfRanks> of_operations_;
  std::map<Groups, OfRanks> of_groups_;
  std::map<Ints, uint32_t> groups_;
  std::vector<const Ints*> members_;
  std::unordered_map<const Operation*, std::unordered_map<int64_t, uint32_t>> of_messages_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, uint32_t> queues_;
  std::vector<Ints> ends_;
};

}  // namespace axccl::program
