#include "src/program/check/communication.h"

#include <algorithm>
#include <set>

#include "src/program/check/rules.h"
#include "src/program/facts.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

// "{0,2}", of many ranks the first ones
std::string RanksText(const Ints& ranks) {
  constexpr size_t kMost = 16;
  std::string text = "{";
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i) text += (i == 0 ? "" : ",") + std::to_string(ranks[i]);
  return text + (ranks.size() > kMost ? ",... " + std::to_string(ranks.size()) + " ranks}" : "}");
}

std::string CallText(const Operation& operation) {
  return "%" + std::to_string(operation.id) + " " + std::string(InfoOf(operation.kind).name);
}

// What must be equal on all members of a meeting, besides the members. The types of operands follow from it.
std::string DetailsText(const Operation& operation) {
  std::string text;
  for (const Attribute& attribute : operation.attributes) {
    if (attribute.attr == Attr::kGroups) continue;
    text += text.empty() ? "" : " ";
    text += InfoOf(attribute.attr).name;
    text += '=';
    if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
      text += std::to_string(*number);
    } else if (const auto* fold = std::get_if<Combine>(&attribute.value)) {
      text += NameOf(*fold);
    } else if (const auto* pairs = std::get_if<Groups>(&attribute.value)) {
      for (const Ints& pair : *pairs) text += RanksText(pair);
    }
  }
  for (const Value& result : operation.results) text += " " + Print(result.type);
  return text;
}

}  // namespace

bool Communicates(const Operation& operation) {
  return IsCommunication(operation.kind) || std::any_of(operation.regions.begin(), operation.regions.end(),
                                                        [](const Function& region) { return Communicates(region); });
}

bool Communicates(const Function& function) {
  return std::any_of(function.operations.begin(), function.operations.end(),
                     [](const Operation& operation) { return Communicates(operation); });
}

Communication::Communication(const std::vector<const Part*>& parts) {
  for (const Part* part : parts) {
    for (const int64_t rank : part->ranks) {
      slots_[rank] = ranks_.size();
      ranks_.push_back({.number = rank, .part = part});
    }
  }
}

Status Communication::Expect(const Part& part, const Operation& operation, int64_t rank) const {
  if (slots_.contains(rank)) return Status();
  return OperationError(part, operation, "", "rank " + std::to_string(rank) + " is in no part");
}

uint32_t Communication::AddCall(const Operation& operation, const TensorType* type) {
  calls_.push_back({&operation, type});
  return static_cast<uint32_t>(calls_.size() - 1);
}

Status Communication::Add(const Part& part, const Operation& operation, const TensorType* type) {
  if (IsMessage(operation.kind)) return AddMessages(part, operation, type);
  return AddMeeting(part, operation, MembersOf(operation));
}

Status Communication::AddMeeting(const Part& part, const Operation& operation, const std::vector<Ints>& sets) {
  const auto is_here = [&](int64_t rank) {
    const auto slot = slots_.find(rank);
    return slot != slots_.end() && ranks_[slot->second].part == &part;
  };
  // Other operations with regions meet at their own only, those of one part.
  const bool has_regions = !operation.regions.empty();
  const std::string details = has_regions ? part.function.name + " " + CallText(operation)
                                          : std::string(InfoOf(operation.kind).name) + " " + DetailsText(operation);
  const uint32_t call = AddCall(operation, nullptr);
  for (const Ints& members : sets) {
    if (members.size() < 2 || std::none_of(members.begin(), members.end(), is_here)) continue;
    std::string key = details;
    for (const int64_t rank : members) {
      AXCCL_RETURN_IF_ERROR(Expect(part, operation, rank));
      key += ' ' + std::to_string(rank);
    }
    const auto [known, is_new] = known_meetings_.emplace(std::move(key), static_cast<uint32_t>(meetings_.size()));
    if (is_new) meetings_.push_back({.members = members});
    for (const int64_t rank : members) {
      if (is_here(rank)) At(rank).events.push_back({call, known->second});
    }
  }
  return Status();
}

Status Communication::AddMessages(const Part& part, const Operation& operation, const TensorType* type) {
  const bool is_send = operation.kind == OpKind::kSend;
  const int64_t channel = Get<int64_t>(operation, Attr::kChannel);
  const uint32_t call = AddCall(operation, is_send ? type : &operation.results[0].type);
  for (const Ints& pair : Get<Groups>(operation, Attr::kPairs)) {
    const int64_t own = pair[is_send ? 0 : 1], other = pair[is_send ? 1 : 0];
    if (!std::binary_search(part.ranks.begin(), part.ranks.end(), own)) continue;
    AXCCL_RETURN_IF_ERROR(Expect(part, operation, other));
    const auto [known, is_new] =
        known_queues_.emplace(std::tuple(pair[0], pair[1], channel), static_cast<uint32_t>(queues_.size()));
    if (is_new) queues_.push_back({.source = pair[0], .target = pair[1], .channel = channel});
    At(own).events.push_back({call, known->second});
  }
  return Status();
}

std::vector<size_t> Communication::Sizes(const Part& part) const {
  std::vector<size_t> sizes;
  for (const int64_t rank : part.ranks) sizes.push_back(At(rank).events.size());
  return sizes;
}

size_t Communication::total() const {
  size_t total = 0;
  for (const Rank& rank : ranks_) total += rank.events.size();
  return total;
}

void Communication::Repeat(const Part& part, const std::vector<size_t>& since, int64_t times) {
  for (size_t i = 0; i < part.ranks.size(); ++i) {
    std::vector<Event>& events = At(part.ranks[i]).events;
    const size_t begin = since[i], end = events.size();
    if (begin == end) continue;
    events.reserve(end + (end - begin) * static_cast<size_t>(times));
    for (int64_t time = 0; time < times; ++time) {
      for (size_t k = begin; k < end; ++k) events.push_back(events[k]);
    }
  }
}

// ---- execution ----

Status Communication::Run() {
  for (size_t slot = 0; slot < ranks_.size(); ++slot) {
    ready_.push_back(slot);
    while (!ready_.empty()) {
      const size_t next = ready_.back();
      ready_.pop_back();
      AXCCL_RETURN_IF_ERROR(Advance(next));
    }
  }
  for (size_t slot = 0; slot < ranks_.size(); ++slot) {
    if (!ranks_[slot].HasEnded()) return ReportStuck(slot);
  }
  return ReportLeft();
}

// Executes the events of a rank up to one that has to wait.
Status Communication::Advance(size_t slot) {
  Rank& rank = ranks_[slot];
  while (!rank.waits && !rank.HasEnded()) {
    const Event& event = rank.events[rank.next];
    bool goes_on = true;
    if (KindOf(event) == OpKind::kSend) {
      Queue& queue = queues_[event.target];
      queue.calls.push_back(event.call);
      // The target may wait for this message, or for something else.
      if (queue.calls.size() == 1 && queue.target != rank.number) ready_.push_back(slots_.at(queue.target));
    } else if (KindOf(event) == OpKind::kRecv) {
      AXCCL_RETURN_IF_ERROR(Receive(&rank, &goes_on));
    } else {
      goes_on = Arrive(event, slot);
    }
    if (!goes_on) return Status();
    ++rank.next;
  }
  return Status();
}

Status Communication::Receive(Rank* rank, bool* is_there) {
  const Event& event = rank->events[rank->next];
  Queue& queue = queues_[event.target];
  *is_there = !queue.calls.empty();
  if (!*is_there) return Status();
  const Event sent{queue.calls.front(), event.target};
  queue.calls.pop_front();
  const TensorType &wanted = *calls_[event.call].type, &found = *calls_[sent.call].type;
  if (wanted == found) return Status();
  return {Code::kInvalidUsage, "rank " + std::to_string(queue.target) + " expects " + Print(wanted) + " in " +
                                   TextOf(event, false) + ", rank " + std::to_string(queue.source) + " sends " +
                                   Print(found) + " in " + TextOf(sent, false)};
}

// Whether the rank is the last that reaches its meeting; all others then go on, too.
bool Communication::Arrive(const Event& event, size_t slot) {
  Meeting& meeting = meetings_[event.target];
  if (++meeting.arrived < meeting.members.size()) {
    ranks_[slot].waits = true;
    return false;
  }
  meeting.arrived = 0;
  for (const int64_t member : meeting.members) {
    const size_t other = slots_.at(member);
    if (other == slot) continue;
    ++ranks_[other].next;
    ranks_[other].waits = false;
    ready_.push_back(other);
  }
  return true;
}

// ---- reports ----

std::string Communication::TextOf(const Event& event, bool with_details) const {
  const Operation& operation = *calls_[event.call].operation;
  std::string text = CallText(operation);
  if (IsMessage(operation.kind)) {
    const Queue& queue = queues_[event.target];
    const bool is_send = operation.kind == OpKind::kSend;
    return text + (is_send ? " to rank " : " from rank ") + std::to_string(is_send ? queue.target : queue.source) +
           " on channel " + std::to_string(queue.channel);
  }
  text += " on " + RanksText(meetings_[event.target].members);
  return with_details ? text + " (" + DetailsText(operation) + ")" : text;
}

size_t Communication::BlockerOf(size_t slot) const {
  const Event& event = NextOf(slot);
  if (KindOf(event) == OpKind::kRecv) return slots_.at(queues_[event.target].source);
  for (const int64_t member : meetings_[event.target].members) {
    const size_t other = slots_.at(member);
    const bool is_there =
        !ranks_[other].HasEnded() && KindOf(NextOf(other)) != OpKind::kRecv && NextOf(other).target == event.target;
    if (!is_there) return other;
  }
  return slot;
}

// Follows who waits for whom from the rank on, to one that has ended or comes a second time.
Status Communication::ReportStuck(size_t slot) const {
  std::set<size_t> seen = {slot};
  size_t blocker = BlockerOf(slot);
  while (!ranks_[blocker].HasEnded() && seen.insert(blocker).second) {
    slot = blocker;
    blocker = BlockerOf(slot);
  }
  const Event& mine = NextOf(slot);
  const std::string waits = "rank " + std::to_string(ranks_[slot].number) + " waits in ";
  const std::string other = ", rank " + std::to_string(ranks_[blocker].number);
  if (ranks_[blocker].HasEnded()) return {Code::kInvalidUsage, waits + TextOf(mine, true) + other + " ends without it"};
  const Event& theirs = NextOf(blocker);
  const bool is_alike = KindOf(mine) == KindOf(theirs) && KindOf(mine) != OpKind::kRecv &&
                        meetings_[mine.target].members == meetings_[theirs.target].members;
  return {Code::kInvalidUsage,
          waits + TextOf(mine, is_alike) + other + " goes to " + TextOf(theirs, is_alike) + " first"};
}

Status Communication::ReportLeft() const {
  for (size_t i = 0; i < queues_.size(); ++i) {
    const Queue& queue = queues_[i];
    if (queue.calls.empty()) continue;
    return {Code::kInvalidUsage, "rank " + std::to_string(queue.source) + " sends in " +
                                     TextOf({queue.calls.front(), static_cast<uint32_t>(i)}, false) + ", rank " +
                                     std::to_string(queue.target) + " ends without receiving it"};
  }
  return Status();
}

}  // namespace axccl::program
