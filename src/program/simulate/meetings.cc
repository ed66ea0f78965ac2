#include "src/program/simulate/meetings.h"

#include "src/program/facts.h"

namespace axccl::program {

uint32_t MeetingTable::Intern(const Ints& members) {
  const auto [known, added] = groups_.emplace(members, static_cast<uint32_t>(members_.size()));
  if (added) members_.push_back(&known->first);
  return known->second;
}

uint32_t MeetingTable::GroupOf(const Operation& collective, int rank) {
  OfRanks& table = of_operations_[&collective];
  if (table == nullptr) {
    const Groups sets = program::MembersOf(collective);
    OfRanks& shared = of_groups_[sets];
    if (shared == nullptr) {
      std::vector<uint32_t> groups(ranks_, kNone);
      for (const Ints& set : sets) {
        const uint32_t group = Intern(set);
        for (const int64_t member : set) groups[static_cast<size_t>(member)] = group;
      }
      shared = std::make_shared<const std::vector<uint32_t>>(std::move(groups));
    }
    table = shared;
  }
  return (*table)[static_cast<size_t>(rank)];
}

uint32_t MeetingTable::QueueOf(const Operation& message, int rank) {
  const auto [known, added] = of_messages_.try_emplace(&message);
  if (added) {
    const int64_t channel = Get<int64_t>(message, Attr::kChannel);
    for (const Ints& pair : Get<Groups>(message, Attr::kPairs)) {
      const auto [queue, is_new] =
          queues_.emplace(std::tuple(pair[0], pair[1], channel), static_cast<uint32_t>(ends_.size()));
      if (is_new) ends_.push_back(pair);
      known->second[pair[message.kind == OpKind::kSend ? 0 : 1]] = queue->second;
    }
  }
  const auto queue = known->second.find(rank);
  return queue == known->second.end() ? kNone : queue->second;
}

}  // namespace axccl::program
