// Detects ranks that wait for each other forever because they made calls in different orders.
//
// The rule: on a channel of a communicator (its collectives, its pipelines, and the messages between any two of its
// ranks), every rank executes its calls in the order in which it made them; the calls of a group are one step. A
// collective may wait until all its ranks have reached it, a message until both have. So when rank a is in a step with
// something that rank b has not reached in its own step or before, and rank b's step has something that rank a has not
// reached, neither will ever continue. That does not depend on how long a rank has looked, nor on how recent the data
// is: rank b cannot have left its step since, because that requires rank a. Neither will three or more ranks that wait
// for each other in a circle, each in its step for something that the next has not reached: the first of them to leave
// its step would need another to have left its own before.
//
// The rule does not order calls on different channels or communicators, and nothing is concluded about them: whatever a
// rank stands still in, another of its threads or streams may still make the call that others wait for.
//
// A launch that has stood still for a while (kStandstill) writes what it waits in to a *board* in its rank's block, and
// reads the boards of the ranks that it waits for. When it sees that such a rank is in a step that does not have what
// it waits for, it writes that on its board, too, so that all ranks in a circle see the circle. A program that follows
// the rule is never reported; ranks that break it are, with the names of their calls. Nothing is done while work moves.
#pragma once

#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {

class Standstill {
 public:
  Standstill() = default;
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;
  ~Standstill() { Leave(); }

  // The calls that a launch has left on a channel: `count` calls from that sequence number on. `text` describes the
  // first for other ranks; empty: it is made when it is needed.
  struct Calls {
    Channel* channel;
    const Call* first;
    uint64_t begin, end;
    std::string_view text = {};
  };
  static Calls CallsOf(const Operation& first, size_t count);

  // `left`: all calls that a launch has left, none of which can continue. Returns true when ranks wait for each other:
  // the communicator has then failed. Called by the thread that drives them. Destroy the object with the launch, while
  // the channels live. Needs no memory where texts are passed, orders have been made room for, and no rank is in a step
  // without a call that this one waits for.
  bool Check(std::span<const Calls> left);
  void MakeRoom(size_t orders) { held_.reserve(orders); }
  // The launch has ended.
  void Leave();

 private:
  // Of the calls that are left, those on the channels of one order: a channel for collectives and those of its
  // messages.
  struct Step {
    Channel* main;
    std::span<const Calls> left;
    bool Has(const Calls& calls) const { return calls.channel->main() == main; }
  };
  struct Held {
    Channel* main;
    WaitBoard* board;
    uint64_t step;  // its name
    uint64_t checksum;
  };
  // The wait for a rank that is in a step without the call.
  struct Wait {
    const Calls* calls;
    int rank;
    uint64_t their_step;
  };
  using Waits = std::vector<Wait>;

  bool CheckStep(const Step& step);
  const WaitBoard* PublishBoard(const Step& step, const Waits& waits);
  Held* BoardFor(const Step& step);
  static Status Compare(const Step& step, Waits* waits);
  static Status CompareWith(const Step& step, const Calls& mine, int position, Waits* waits);
  static Status FindCircle(const Step& step, const WaitBoard& own);

  std::vector<Held> held_;
};

}  // namespace axccl::exec
