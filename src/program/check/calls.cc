// Collectives whose ranks are all of one part cannot wait for each other in a circle, because all of them execute the
// same list of operations in the same order. So a part without `send`, `recv` and collectives that reach other parts
// needs no execution; of the other parts, all communication is executed without data (communication.h).
//
// How often a region is executed is not known in general. So its communication must come to an end by itself: only
// ranks of one part that are known to have the same condition communicate in it, and every message is received in the
// region that has sent it. One round then ends as it began, and any number of rounds is as good as none. Around it, the
// region is one meeting of these ranks.
//
// A loop with a number of rounds that the program shows may also communicate with other parts. It is *open*: its rounds
// are executed one after the other, as if they were written out.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/program/check.h"
#include "src/program/check/communication.h"
#include "src/program/check/rounds.h"
#include "src/program/check/rules.h"
#include "src/program/check/shared_values.h"
#include "src/program/facts.h"

namespace axccl::program {
namespace {

constexpr size_t kMostEvents = size_t{1} << 24;  // where loops are written out

// What all ranks must agree on to be in the region together.
Id ConditionOf(const Operation& operation) {
  return operation.kind == OpKind::kWhile ? operation.regions[0].results[0] : operation.operands[0];
}

class CommunicationChecker {
 public:
  explicit CommunicationChecker(const Part& part)
      : part_(part), ranks_(part.ranks.begin(), part.ranks.end()), rounds_(part), types_(TypesOf(part.function)) {
    reaches_others_ = FindOpen(part.function);
    const auto& operations = part.function.operations;
    const bool has_regions = std::any_of(operations.begin(), operations.end(), [](const Operation& operation) {
      return !operation.regions.empty() && Communicates(operation);
    });
    if (has_regions) values_.emplace(part);
  }

  Status CheckRegions() { return CheckRegionsOf(part_.function); }

  // Appends the function's events to those of the part's ranks.
  Status Add(const Function& function, Communication* communication) {
    for (const Operation& operation : function.operations) {
      if (IsCommunication(operation.kind)) {
        const TensorType* const type = operation.kind == OpKind::kSend ? types_.Find(operation.operands[0]) : nullptr;
        AXCCL_RETURN_IF_ERROR(communication->Add(part_, operation, type));
      } else if (IsOpen(operation)) {
        AXCCL_RETURN_IF_ERROR(AddRounds(operation, communication));
      } else if (Communicates(operation)) {
        AXCCL_RETURN_IF_ERROR(communication->AddMeeting(part_, operation, values_->SetsOf(ConditionOf(operation))));
      }
    }
    return Status();
  }

  const Part& part() const { return part_; }
  bool IsOpen(const Operation& operation) const { return open_.contains(&operation); }

  bool MustBeExecuted() const {
    const auto& operations = part_.function.operations;
    return reaches_others_ || std::any_of(operations.begin(), operations.end(),
                                          [](const Operation& operation) { return IsMessage(operation.kind); });
  }

 private:
  // Finds the operations with regions in which ranks of other parts communicate. Whether there are such ranks at all.
  bool FindOpen(const Function& function) {
    bool has_others = false;
    for (const Operation& operation : function.operations) {
      bool is_open = false;
      for (const Function& region : operation.regions) is_open = FindOpen(region) || is_open;
      if (is_open) open_.insert(&operation);
      has_others = has_others || is_open || (IsCommunication(operation.kind) && HasOthers(operation));
    }
    return has_others;
  }

  bool HasOthers(const Operation& communication) const {
    const std::vector<Ints> sets = SetsOfOwn(communication);
    return std::any_of(sets.begin(), sets.end(), [&](const Ints& members) { return OtherOf(members) >= 0; });
  }

  Status AddRounds(const Operation& loop, Communication* communication) {
    const int64_t rounds = *rounds_.Of(loop);
    const auto add_condition = [&] {
      if (!Communicates(loop.regions[0])) return Status();
      return communication->AddMeeting(part_, loop, values_->SetsOf(ConditionOf(loop)));
    };
    AXCCL_RETURN_IF_ERROR(add_condition());
    if (rounds == 0) return Status();
    const std::vector<size_t> sizes = communication->Sizes(part_);
    const size_t before = communication->total();
    AXCCL_RETURN_IF_ERROR(Add(loop.regions[1], communication));
    AXCCL_RETURN_IF_ERROR(add_condition());
    const size_t after = communication->total();
    if (after > before && static_cast<uint64_t>(rounds) > kMostEvents / (after - before))
      return OperationError(
          part_, loop, "",
          "has " + std::to_string(rounds) + " rounds with ranks of other parts, which are too many to check");
    communication->Repeat(part_, sizes, rounds - 1);
    return Status();
  }

  // A rank of another part, or -1.
  int64_t OtherOf(const Ints& members) const {
    const auto found =
        std::find_if(members.begin(), members.end(), [&](int64_t rank) { return !ranks_.contains(rank); });
    return found == members.end() ? -1 : *found;
  }

  // The sets of ranks that communicate in the operation where ranks of the part execute it.
  std::vector<Ints> SetsOfOwn(const Operation& communication) const {
    const bool is_message = IsMessage(communication.kind);
    const size_t own = communication.kind == OpKind::kSend ? 0 : 1;
    std::vector<Ints> sets = is_message ? Get<Groups>(communication, Attr::kPairs) : MembersOf(communication);
    std::erase_if(sets, [&](const Ints& members) {
      if (is_message) return !ranks_.contains(members[own]);
      return std::none_of(members.begin(), members.end(), [&](int64_t rank) { return ranks_.contains(rank); });
    });
    return sets;
  }

  Status CheckRegionsOf(const Function& function) {
    for (const Operation& operation : function.operations) {
      if (operation.regions.empty() || !Communicates(operation)) continue;
      if (IsOpen(operation)) AXCCL_RETURN_IF_ERROR(CheckOpen(operation));
      around_.push_back(&operation);
      for (const Function& region : operation.regions) {
        const bool is_written_out = IsOpen(operation) && &region == &operation.regions[1];
        if (!is_written_out) AXCCL_RETURN_IF_ERROR(CheckRegion(region));
        AXCCL_RETURN_IF_ERROR(CheckRegionsOf(region));
      }
      around_.pop_back();
    }
    return Status();
  }

  Status CheckOpen(const Operation& operation) {
    if (operation.kind == OpKind::kWhile && !FindOpen(operation.regions[0]) && rounds_.Of(operation)) return Status();
    return OperationError(part_, operation, "",
                          "ranks of other parts communicate in it, which they may only in the body of a loop whose "
                          "number of rounds follows from constants");
  }

  Status CheckRegion(const Function& region) {
    bool has_messages = false;
    for (const Operation& operation : region.operations) {
      if (!IsCommunication(operation.kind)) continue;
      has_messages = has_messages || IsMessage(operation.kind);
      for (const Ints& members : SetsOfOwn(operation)) AXCCL_RETURN_IF_ERROR(CheckMembers(operation, members));
    }
    if (!has_messages) return Status();
    Communication communication({&part_});
    AXCCL_RETURN_IF_ERROR(Add(region, &communication));
    return communication.Run();
  }

  Status CheckMembers(const Operation& operation, const Ints& members) {
    for (const Operation* around : around_) {
      const int64_t other = values_->OtherRank(ConditionOf(*around), members);
      if (other < 0) continue;
      return OperationError(part_, operation, "",
                            "is within %" + std::to_string(around->id) + " " + std::string(InfoOf(around->kind).name) +
                                ", whose condition may differ between ranks " + std::to_string(members[0]) + " and " +
                                std::to_string(other));
    }
    return Status();
  }

  const Part& part_;
  const std::unordered_set<int64_t> ranks_;
  const Rounds rounds_;
  bool reaches_others_ = false;                // ranks of other parts communicate with those of the part
  std::unordered_set<const Operation*> open_;  // operations with regions in which they do
  std::optional<SharedValues> values_;         // if there are regions with communication
  const IdTable<const TensorType*> types_;
  std::vector<const Operation*> around_;  // the operations with regions, from outside to inside
};

// A channel has messages of one region, or of no region. Otherwise a region could receive what is not from it.
class ChannelChecker {
 public:
  // `region`: the one that the function is in; null: none.
  Status Check(const CommunicationChecker& checker, const Function& function, const Function* region) {
    for (const Operation& operation : function.operations) {
      for (const Function& inner : operation.regions)
        AXCCL_RETURN_IF_ERROR(Check(checker, inner, checker.IsOpen(operation) ? region : &inner));
      if (!IsMessage(operation.kind)) continue;
      const int64_t channel = Get<int64_t>(operation, Attr::kChannel);
      const auto [use, is_new] = uses_.emplace(channel, Use{&checker.part(), &operation, region});
      if (use->second.region == region) continue;
      return OperationError(checker.part(), operation, "",
                            "shares channel " + std::to_string(channel) + " with %" +
                                std::to_string(use->second.operation->id) + " of part " +
                                use->second.part->function.name + ", which is not in the same region");
    }
    return Status();
  }

 private:
  struct Use {
    const Part* part;
    const Operation* operation;
    const Function* region;  // null: none
  };
  std::unordered_map<int64_t, Use> uses_;
};

}  // namespace

Status CheckCommunication(const Program& program) {
  ChannelChecker channels;
  std::vector<const Part*> parts;
  for (const Part& part : program.parts) parts.push_back(&part);
  Communication communication(parts);
  for (const Part& part : program.parts) {
    if (!Communicates(part.function)) continue;
    CommunicationChecker checker(part);
    AXCCL_RETURN_IF_ERROR(channels.Check(checker, part.function, nullptr));
    AXCCL_RETURN_IF_ERROR(checker.CheckRegions());
    if (checker.MustBeExecuted()) AXCCL_RETURN_IF_ERROR(checker.Add(part.function, &communication));
  }
  return communication.Run();
}

}  // namespace axccl::program
