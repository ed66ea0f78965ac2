// Ranks that wait for each other for ever, because they called things in different orders.
//
// The rule. On a channel of a communicator (its collectives, and the messages between any two of its ranks) every rank
// carries out its calls in the order in which it made them; the calls of a group are one step. A collective may wait
// until all its ranks have come to it, a message waits until both have. So when rank a is in a step with something that
// rank b has not come to in its own step or before, and rank b's step has something that rank a has not come to,
// neither will ever get any further. That does not depend on how long anybody has looked, nor on how fresh what was
// looked at is: rank b cannot have left its step since, as that takes rank a. Nor will three ranks or more that wait
// for each other in a circle, each in its step for something that the next has not come to: the first of them to leave
// its step would need another to have left its own before.
//
// Calls on different channels or communicators are not ordered by this rule, and nothing is said about them: whatever a
// rank stands still in, another of its threads or streams may yet make the call that others wait for.
//
// A launch that has stood still for a while (kStandstill) writes down in its rank's block, on a *board*, what it waits
// in, and looks at the boards of those it waits for. When it has seen that such a rank is in a step that does not have
// what it waits for, it notes that on its board, too, so that a circle shows to all that are in it. A program that
// keeps to the rule is never found; ranks that break it are, with the names of what they called. Nothing is done while
// work moves.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {

class Standstill {
 public:
  Standstill() = default;
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;
  ~Standstill();

  // What a launch has left to do on a channel: so many calls from the one with that sequence number on.
  struct Calls {
    Channel* channel;
    const Operation* first;
    uint64_t begin, end;
  };
  static Calls CallsOf(const Operation& first, size_t count);

  // `left`: all that a launch has left, of which nothing can be done. True when ranks were found to wait for each
  // other: the communicator has failed then. To be called by the thread that drives them, and destroyed with the
  // launch, while the channels live.
  bool Check(std::span<const Calls> left);

 private:
  // Those of the channels of one order: a channel for collectives and those of its messages.
  struct Step {
    Channel* main;
    std::vector<Calls> calls;
  };
  struct Held {
    Channel* main;
    WaitBoard* board;
    uint64_t step;  // its name
    uint64_t checksum;
  };
  // For a rank that is in a step without the call.
  struct Wait {
    const Calls* calls;
    int rank;
    uint64_t their_step;
  };
  using Waits = std::vector<Wait>;

  static std::vector<Step> StepsOf(std::span<const Calls> left);
  const WaitBoard* Tell(const Step& step, const Waits& waits);
  Held* BoardFor(const Step& step);
  static Status Compare(const Step& step, Waits* waits);
  static Status CompareWith(const Step& step, const Calls& mine, int position, Waits* waits);
  static Status FindCircle(const Step& step, const WaitBoard& own);

  std::vector<Held> held_;
};

}  // namespace axccl::exec
