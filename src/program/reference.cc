#include "src/program/reference.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "src/program/facts.h"
#include "src/program/kinds.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

using Shared = std::shared_ptr<const Tensor>;

Shared Share(Tensor tensor) { return std::make_shared<const Tensor>(std::move(tensor)); }

// A function, or a region, that a rank is in.
struct Frame {
  const Function* function;
  const Operation* owner;  // of a region; null for the part's function
  size_t next = 0;         // operation
};

struct Rank {
  int number = 0;
  const Function* function = nullptr;  // null: it has no part
  std::unordered_map<Id, Shared> values;
  std::vector<Frame> frames;
  const Operation* waits_in = nullptr;
  Tensors outputs;
};

// Whether two ranks make the same call of a collective (check.h), if they name the same ranks of it. Parts may write
// the other groups in other ways.
bool IsSameCall(const Operation& a, const Operation& b) {
  return a.kind == b.kind && std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(),
                                        [](const Attribute& mine, const Attribute& theirs) {
                                          return mine.attr == Attr::kGroups || mine == theirs;
                                        });
}

class Machine {
 public:
  Machine(const Program& program, const Observer& observer)
      : ranks_(static_cast<size_t>(program.ranks)), observer_(observer) {
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r].number = static_cast<int>(r);
    for (const Part& part : program.parts) {
      for (const int64_t r : part.ranks) ranks_[static_cast<size_t>(r)].function = &part.function;
    }
  }

  void Begin(const std::vector<Tensors>& inputs);
  Result<std::vector<Tensors>> Run();

 private:
  using Route = std::tuple<int64_t, int64_t, int64_t>;  // channel, source, target

  void Advance(Rank* rank);
  bool Step(Rank* rank, const Operation& operation);
  void Enter(Rank* rank, const Function& function, const Operation* owner, const std::vector<Shared>& arguments);
  void Leave(Rank* rank);
  void EnterRegion(Rank* rank, const Operation& operation);
  void SetResults(Rank* rank, const Operation& operation, std::vector<Shared> values);
  bool Collect(Rank* rank, const Operation& operation);
  void Send(Rank* rank, const Operation& operation);
  bool Receive(Rank* rank, const Operation& operation);
  Status DescribeStandstill() const;
  void Wake(Rank* rank) {
    rank->waits_in = nullptr;
    ready_.push_back(rank);
  }

  static std::vector<Shared> Values(const Rank& rank, const std::vector<Id>& ids) {
    std::vector<Shared> values;
    for (const Id id : ids) values.push_back(rank.values.at(id));
    return values;
  }

  std::vector<Rank> ranks_;
  const Observer& observer_;
  std::deque<Rank*> ready_;
  std::map<Route, std::deque<Shared>> sent_;
  Status status_;  // an error ends the run
};

void Machine::Begin(const std::vector<Tensors>& inputs) {
  for (Rank& rank : ranks_) {
    if (rank.function == nullptr) continue;
    std::vector<Shared> arguments;
    for (const Tensor& input : inputs[static_cast<size_t>(rank.number)]) arguments.push_back(Share(input));
    Enter(&rank, *rank.function, nullptr, arguments);
    ready_.push_back(&rank);
  }
}

Result<std::vector<Tensors>> Machine::Run() {
  while (!ready_.empty() && status_.ok()) {
    Rank* const rank = ready_.front();
    ready_.pop_front();
    Advance(rank);
  }
  AXCCL_RETURN_IF_ERROR(status_);
  std::vector<Tensors> outputs;
  for (Rank& rank : ranks_) {
    if (!rank.frames.empty()) return DescribeStandstill();
    outputs.push_back(std::move(rank.outputs));
  }
  return outputs;
}

// Until the rank ends or has to wait.
void Machine::Advance(Rank* rank) {
  while (!rank->frames.empty()) {
    Frame& frame = rank->frames.back();
    if (frame.next == frame.function->operations.size()) {
      Leave(rank);
      continue;
    }
    const Operation& operation = frame.function->operations[frame.next];
    if (!Step(rank, operation)) {
      rank->waits_in = &operation;
      return;
    }
  }
}

// Returns false if the operation has to wait. Goes on behind it otherwise.
bool Machine::Step(Rank* rank, const Operation& operation) {
  if (IsCommunication(operation.kind) && !IsMessage(operation.kind)) return Collect(rank, operation);
  if (operation.kind == OpKind::kRecv && !Receive(rank, operation)) return false;
  ++rank->frames.back().next;
  switch (operation.kind) {
    case OpKind::kRecv:
      break;
    case OpKind::kSend:
      Send(rank, operation);
      break;
    case OpKind::kFree:
      for (const Id id : operation.operands) rank->values.erase(id);
      break;
    case OpKind::kIf:
    case OpKind::kWhile:
      EnterRegion(rank, operation);
      break;
    case OpKind::kOptimizationBarrier:
      SetResults(rank, operation, Values(*rank, operation.operands));
      break;
    case OpKind::kPartitionId:
      SetResults(rank, operation, {Share(Tensor::Of(static_cast<uint32_t>(rank->number)))});
      break;
    case OpKind::kReplicaId:
      SetResults(rank, operation, {Share(Tensor::Of(0))});
      break;
    default: {
      const std::vector<Shared> values = Values(*rank, operation.operands);
      std::vector<const Tensor*> operands;
      for (const Shared& value : values) operands.push_back(value.get());
      SetResults(rank, operation, {Share(ComputeLocal(operation, operands))});
    }
  }
  return true;
}

// ---- functions and regions ----

void Machine::SetResults(Rank* rank, const Operation& operation, std::vector<Shared> values) {
  for (size_t i = 0; i < operation.results.size(); ++i) {
    if (observer_) observer_(rank->number, operation, i, *values[i]);
    rank->values[operation.results[i].id] = std::move(values[i]);
  }
}

void Machine::Enter(Rank* rank, const Function& function, const Operation* owner,
                    const std::vector<Shared>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) rank->values[function.arguments[i].id] = arguments[i];
  rank->frames.push_back({&function, owner});
}

void Machine::EnterRegion(Rank* rank, const Operation& operation) {
  const std::vector<Shared> operands = Values(*rank, operation.operands);
  if (operation.kind == OpKind::kWhile) return Enter(rank, operation.regions[0], &operation, operands);
  Enter(rank, operation.regions[*operands[0]->at(0) != 0 ? 0 : 1], &operation, {});
}

// At the end of a function or region.
void Machine::Leave(Rank* rank) {
  const Frame frame = rank->frames.back();
  std::vector<Shared> results = Values(*rank, frame.function->results);
  rank->frames.pop_back();
  if (frame.owner == nullptr) {
    for (const Shared& result : results) rank->outputs.push_back(*result);
    rank->values.clear();
    return;
  }
  if (frame.owner->kind == OpKind::kIf) return SetResults(rank, *frame.owner, std::move(results));
  const Function &cond = frame.owner->regions[0], &body = frame.owner->regions[1];
  if (frame.function == &body) return Enter(rank, cond, frame.owner, results);
  std::vector<Id> ids;
  for (const Value& argument : cond.arguments) ids.push_back(argument.id);
  std::vector<Shared> carried = Values(*rank, ids);
  if (*results[0]->at(0) != 0) return Enter(rank, body, frame.owner, carried);
  SetResults(rank, *frame.owner, std::move(carried));
}

// ---- between ranks ----

// Runs a collective if this rank is the last one of its group to come to it.
bool Machine::Collect(Rank* rank, const Operation& operation) {
  const Ints members = GroupOf(operation, rank->number);
  if (members.empty()) {
    ++rank->frames.back().next;
    std::vector<Shared> zeros;
    for (const Value& result : operation.results) zeros.push_back(Share(Tensor::Zeros(result.type)));
    SetResults(rank, operation, std::move(zeros));
    return true;
  }
  std::vector<std::vector<Shared>> held;
  std::vector<std::vector<const Tensor*>> operands;
  for (const int64_t m : members) {
    const Rank& member = ranks_[static_cast<size_t>(m)];
    const Operation* const there = &member == rank ? &operation : member.waits_in;
    if (there == nullptr || !IsSameCall(*there, operation) || GroupOf(*there, member.number) != members) return false;
    held.push_back(Values(member, there->operands));
    operands.emplace_back();
    for (const Shared& value : held.back()) operands.back().push_back(value.get());
  }
  status_ = CheckRoots(operation, operands, members);
  if (!status_.ok()) return false;
  std::vector<Tensors> results = ComputeCollective(operation, operands, members);
  for (size_t p = 0; p < members.size(); ++p) {
    Rank& member = ranks_[static_cast<size_t>(members[p])];
    std::vector<Shared> values;
    for (Tensor& result : results[p]) values.push_back(Share(std::move(result)));
    SetResults(&member, &member == rank ? operation : *member.waits_in, std::move(values));
    ++member.frames.back().next;
    if (&member != rank) Wake(&member);
  }
  return true;
}

void Machine::Send(Rank* rank, const Operation& operation) {
  for (const Ints& pair : Get<Groups>(operation, Attr::kPairs)) {
    if (pair[0] != rank->number) continue;
    sent_[{Get<int64_t>(operation, Attr::kChannel), pair[0], pair[1]}].push_back(
        rank->values.at(operation.operands[0]));
    Rank& target = ranks_[static_cast<size_t>(pair[1])];
    if (target.waits_in != nullptr && target.waits_in->kind == OpKind::kRecv) Wake(&target);
  }
}

bool Machine::Receive(Rank* rank, const Operation& operation) {
  for (const Ints& pair : Get<Groups>(operation, Attr::kPairs)) {
    if (pair[1] != rank->number) continue;
    std::deque<Shared>& sent = sent_[{Get<int64_t>(operation, Attr::kChannel), pair[0], pair[1]}];
    if (sent.empty()) return false;
    SetResults(rank, operation, {std::move(sent.front())});
    sent.pop_front();
  }
  return true;
}

Status Machine::DescribeStandstill() const {
  std::string text;
  int shown = 0;
  for (const Rank& rank : ranks_) {
    if (rank.frames.empty() || shown == 2) continue;
    ++shown;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank.number) + " in %" +
            std::to_string(rank.waits_in->id) + " " + std::string(InfoOf(rank.waits_in->kind).name);
  }
  return MakeStatus(Code::kInvalidUsage, "ranks wait for ever: %s", text.c_str());
}

// One input of a rank; those of the ranks before it are right.
Status CheckInput(const Part& part, const std::vector<Tensors>& inputs, size_t rank, size_t i) {
  const Value& argument = part.function.arguments[i];
  const Tensor& input = inputs[rank][i];
  if (input.type != argument.type)
    return MakeStatus(Code::kInvalidArgument, "rank %zu: input %zu is %s, and argument %%%u is %s", rank, i,
                      Print(input.type).c_str(), argument.id, Print(argument.type).c_str());
  const auto first = static_cast<size_t>(part.ranks[0]);
  if (!input.type.dims.empty() || input == inputs[first][i]) return Status();
  return MakeStatus(
      Code::kInvalidArgument,
      "rank %zu: input %zu, argument %%%u, is not the same as on rank %zu; an input without dimensions is "
      "the same on all ranks of a part",
      rank, i, argument.id, first);
}

}  // namespace

Status CheckInputs(const Program& program, const std::vector<Tensors>& inputs) {
  if (inputs.size() != static_cast<size_t>(program.ranks))
    return MakeStatus(Code::kInvalidArgument, "there are inputs for %zu ranks, and the program has %d", inputs.size(),
                      program.ranks);
  std::vector<const Part*> parts(inputs.size());
  for (const Part& part : program.parts) {
    for (const int64_t rank : part.ranks) parts[static_cast<size_t>(rank)] = &part;
  }
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    const size_t wanted = parts[rank] == nullptr ? 0 : parts[rank]->function.arguments.size();
    if (inputs[rank].size() != wanted)
      return MakeStatus(Code::kInvalidArgument, "rank %zu has %zu inputs, and its part has %zu arguments", rank,
                        inputs[rank].size(), wanted);
    for (size_t i = 0; i < wanted; ++i) AXCCL_RETURN_IF_ERROR(CheckInput(*parts[rank], inputs, rank, i));
  }
  return Status();
}

Result<std::vector<Tensors>> RunReference(const Program& program, const std::vector<Tensors>& inputs,
                                          const Observer& observer) {
  AXCCL_RETURN_IF_ERROR(CheckInputs(program, inputs));
  Machine machine(program, observer);
  machine.Begin(inputs);
  return machine.Run();
}

}  // namespace axccl::program
