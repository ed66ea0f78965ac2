// Collectives whose ranks are all of one part cannot wait for each other in a circle, because all of them execute the
// same list of operations in the same order. So a part without `send`, `recv` and collectives that reach other parts
// needs no execution; of the other parts, all communication is executed without data (communication.h).
//
// How often a region is executed is not known. So its communication must come to an end by itself: only ranks of one
// part that are known to have the same condition communicate in it, and every message is received in the region that
// has sent it. One round then ends as it began, and any number of rounds is as good as none. Around it, the region is
// one meeting of these ranks.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/program/check.h"
#include "src/program/check_rules.h"
#include "src/program/communication.h"
#include "src/program/shared_values.h"

namespace axccl::program {
namespace {

bool IsMessage(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

// What all ranks must agree on to be in the region together.
Id ConditionOf(const Operation& operation) {
  return operation.kind == OpKind::kWhile ? operation.regions[0].results[0] : operation.operands[0];
}

class PartChecker {
 public:
  explicit PartChecker(const Part& part) : part_(part), ranks_(part.ranks.begin(), part.ranks.end()) {
    LearnTypes(part.function);
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
        const TensorType* const type = operation.kind == OpKind::kSend ? types_.at(operation.operands[0]) : nullptr;
        AXCCL_RETURN_IF_ERROR(communication->Add(part_, operation, type));
      } else if (Communicates(operation)) {
        AXCCL_RETURN_IF_ERROR(communication->AddMeeting(part_, operation, values_->SetsOf(ConditionOf(operation))));
      }
    }
    return Status();
  }

  // Ranks outside of the part take part in it.
  bool HasOthers(const Operation& communication) const {
    for (const Ints& members : SetsOfOwn(communication)) {
      if (OtherOf(members) >= 0) return true;
    }
    return false;
  }

 private:
  void LearnTypes(const Function& function) {
    for (const Value& argument : function.arguments) types_[argument.id] = &argument.type;
    for (const Operation& operation : function.operations) {
      for (const Function& region : operation.regions) LearnTypes(region);
      for (const Value& result : operation.results) types_[result.id] = &result.type;
    }
  }

  // A rank of another part, or -1.
  int64_t OtherOf(const Ints& members) const {
    const auto found =
        std::find_if(members.begin(), members.end(), [&](int64_t rank) { return !ranks_.contains(rank); });
    return found == members.end() ? -1 : *found;
  }

  // The sets of ranks that communicate in the operation, of which one or more are of the part.
  std::vector<Ints> SetsOfOwn(const Operation& communication) const {
    std::vector<Ints> sets =
        IsMessage(communication.kind) ? Get<Groups>(communication, Attr::kPairs) : MembersOf(communication);
    std::erase_if(sets, [&](const Ints& members) {
      return std::none_of(members.begin(), members.end(), [&](int64_t rank) { return ranks_.contains(rank); });
    });
    return sets;
  }

  Status CheckRegionsOf(const Function& function) {
    for (const Operation& operation : function.operations) {
      if (operation.regions.empty() || !Communicates(operation)) continue;
      around_.push_back(&operation);
      for (const Function& region : operation.regions) {
        AXCCL_RETURN_IF_ERROR(CheckRegion(region));
        AXCCL_RETURN_IF_ERROR(CheckRegionsOf(region));
      }
      around_.pop_back();
    }
    return Status();
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
    const Operation& inner = *around_.back();
    const std::string within = "%" + std::to_string(inner.id) + " " + std::string(InfoOf(inner.kind).name);
    if (const int64_t other = OtherOf(members); other >= 0)
      return OperationError(
          part_, operation, "",
          "communicates with rank " + std::to_string(other) + " of another part, from within " + within);
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
  std::optional<SharedValues> values_;  // if there are regions with communication
  std::unordered_map<Id, const TensorType*> types_;
  std::vector<const Operation*> around_;  // the operations with regions, from outside to inside
};

// A channel has messages of one region, or of no region. Otherwise a region could receive what is not from it.
class ChannelChecker {
 public:
  Status Check(const Part& part, const Function& function, const Function* region) {
    for (const Operation& operation : function.operations) {
      for (const Function& inner : operation.regions) AXCCL_RETURN_IF_ERROR(Check(part, inner, &inner));
      if (!IsMessage(operation.kind)) continue;
      const int64_t channel = Get<int64_t>(operation, Attr::kChannel);
      const auto [use, is_new] = uses_.emplace(channel, Use{&part, &operation, region});
      if (use->second.region == region) continue;
      return OperationError(part, operation, "",
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

bool MustBeExecuted(const Part& part, const PartChecker& checker) {
  return std::any_of(part.function.operations.begin(), part.function.operations.end(), [&](const Operation& operation) {
    return IsCommunication(operation.kind) && (IsMessage(operation.kind) || checker.HasOthers(operation));
  });
}

}  // namespace

Status CheckCommunication(const Program& program) {
  ChannelChecker channels;
  std::vector<const Part*> parts;
  for (const Part& part : program.parts) {
    AXCCL_RETURN_IF_ERROR(channels.Check(part, part.function, nullptr));
    parts.push_back(&part);
  }
  Communication communication(parts);
  for (const Part& part : program.parts) {
    if (!Communicates(part.function)) continue;
    PartChecker checker(part);
    AXCCL_RETURN_IF_ERROR(checker.CheckRegions());
    if (MustBeExecuted(part, checker)) AXCCL_RETURN_IF_ERROR(checker.Add(part.function, &communication));
  }
  return communication.Run();
}

}  // namespace axccl::program
