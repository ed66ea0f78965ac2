// Carries out the communication of ranks without data, to find calls that never end.
//
// Each rank executes its events in order. A *meeting* is a call on which a set of ranks agrees: kind, attributes, types
// and members are equal. It ends for all members when the last one has reached it, and may be held any number of times.
// A `send` puts a message into the queue of its channel and pair of ranks, and a `recv` waits until it can take one.
// Nothing depends on who is first: each event waits for certain others, so any order of execution ends in the same
// state.
//
// Refers to the parts. Takes time and memory in proportion to the events.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// The operation communicates, or one in its regions does.
bool Communicates(const Operation& operation);
bool Communicates(const Function& function);

class Communication {
 public:
  // Their ranks have no events yet.
  explicit Communication(const std::vector<const Part*>& parts);

  // Appends the events of a collective, `send` or `recv` to those of the part's ranks. `type` is that of the operand of
  // a `send`. Fails if it names a rank without part.
  Status Add(const Part& part, const Operation& operation, const TensorType* type);
  // Appends a meeting of ranks of one part at an operation with regions.
  Status AddMeeting(const Part& part, const Operation& operation, const std::vector<Ints>& sets);

  // How many events the ranks of a part have, in their order, and all ranks together.
  std::vector<size_t> Sizes(const Part& part) const;
  size_t total() const;
  // Appends what the part's ranks have got since then another `times` times.
  void Repeat(const Part& part, const std::vector<size_t>& since, int64_t times);

  // Executes all events. Fails with the first two calls of different ranks that do not match.
  Status Run();

 private:
  // What one or more ranks do at an operation.
  struct Call {
    const Operation* operation;
    const TensorType* type;  // of a message
  };
  struct Event {
    uint32_t call;
    uint32_t target;  // a queue for `send` and `recv`, else a meeting
  };
  struct Meeting {
    Ints members;
    size_t arrived = 0;
  };
  struct Queue {
    int64_t source, target, channel;
    std::deque<uint32_t> calls = {};  // of messages that have not been received
  };
  struct Rank {
    int64_t number;
    const Part* part;
    std::vector<Event> events = {};
    size_t next = 0;     // event
    bool waits = false;  // in a meeting, which it has reached

    bool HasEnded() const { return next == events.size(); }
  };

  Status AddMessages(const Part& part, const Operation& operation, const TensorType* type);
  Status Expect(const Part& part, const Operation& operation, int64_t rank) const;
  uint32_t AddCall(const Operation& operation, const TensorType* type);
  Rank& At(int64_t rank) { return ranks_[slots_.at(rank)]; }
  const Rank& At(int64_t rank) const { return ranks_[slots_.at(rank)]; }

  Status Advance(size_t slot);
  Status Receive(Rank* rank, bool* is_there);
  bool Arrive(const Event& event, size_t slot);
  Status ReportStuck(size_t slot) const;
  Status ReportLeft() const;
  // The rank for which one waits that cannot continue.
  size_t BlockerOf(size_t slot) const;
  std::string TextOf(const Event& event, bool with_details) const;
  const Event& NextOf(size_t slot) const { return ranks_[slot].events[ranks_[slot].next]; }
  OpKind KindOf(const Event& event) const { return calls_[event.call].operation->kind; }

  std::vector<Rank> ranks_;
  std::unordered_map<int64_t, size_t> slots_;  // of ranks
  std::vector<Call> calls_;
  std::vector<Meeting> meetings_;
  std::unordered_map<std::string, uint32_t> known_meetings_;
  std::vector<Queue> queues_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, uint32_t> known_queues_;
  std::vector<size_t> ready_;  // slots of ranks that may continue
};

}  // namespace axccl::program
