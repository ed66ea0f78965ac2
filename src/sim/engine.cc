#include "src/sim/engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <string>

#include "src/base/format.h"
#include "src/plan/walk.h"

namespace axccl::sim {

using plan::OpKind;

namespace {

// A lane continues, or a message reaches a NIC. All machines order simultaneous events alike: the machine's number is
// compared last, and simultaneous events on different machines do not depend on each other.
struct Event {
  static constexpr uint32_t kMessage = 1u << 31;

  double time = 0;
  // Index among the ranks of its machine: of the strand, or kMessage plus that of the receiving rank.
  uint32_t place = 0;
  uint32_t distance = 0;  // from the message's sender, in machines
  uint32_t source = 0;    // the sender's index on its machine
  uint32_t sequence = 0;  // number of the message among all that the sender sends
  uint32_t machine = 0;
  uint32_t index = 0;  // strand or delivery

  bool is_message() const { return (place & kMessage) != 0; }
  friend auto operator<=>(const Event&, const Event&) = default;
};

struct Strand {
  size_t next = 0;  // step
  uint64_t turn = 0;
  double time = 0;     // time of its current step
  bool waits = false;  // the step before `next` names the wait
};

class Engine {
 public:
  Engine(const Program& program, const Fabric& fabric, double part_bytes, uint64_t turns, const Caller& caller)
      : program_(program),
        fabric_(fabric),
        caller_(caller),
        part_bytes_(part_bytes),
        multicast_seconds_(part_bytes / fabric.multicast_bytes_per_second),
        turns_(turns),
        strands_(program.begin.size() - 1),
        arrivals_(program.counters.size()),
        free_(program.ranks * size_t{kNumResources}, 0),
        sequence_(program.ranks, 0),
        notified_(program.outputs.back(), kNever) {
    const size_t machines = 1 + *std::max_element(program.machine.begin(), program.machine.end());
    outcome_.busy.resize(free_.size());
    outcome_.sent.resize(machines);
    outcome_.received.resize(machines);
    seconds_[kMemory] = part_bytes / fabric.memory_bytes_per_second;
    seconds_[kLinkOut] = seconds_[kLinkIn] = part_bytes / fabric.link_bytes_per_second;
    seconds_[kNicOut] = seconds_[kNicIn] = part_bytes / fabric.nic_bytes_per_second;
  }

  Result<Outcome> Run();

 private:
  uint32_t RankOf(size_t strand) const { return static_cast<uint32_t>(strand) / program_.lanes; }
  Event Resumption(uint32_t strand, double time) const;
  void Advance(uint32_t strand, double time);
  double Take(uint32_t resource, double time, double seconds);
  double Move(const Step& step, double time);
  void Signal(uint32_t rank, const Step& step, double time);
  void Send(uint32_t rank, uint32_t delivery, double time);
  void Land(const Event& event);
  void Arrive(uint32_t counter, double time);
  bool MayPass(const Strand& strand, const Step& wait, double* time);
  Status RunCaller(uint32_t rank);
  std::string MissingChunk(uint32_t rank) const;
  Status Complain(size_t strand) const;

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  const Program& program_;
  const Fabric& fabric_;
  const Caller& caller_;
  const double part_bytes_, multicast_seconds_;
  const uint64_t turns_;
  double seconds_[kNumResources];  // of a part
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::vector<Strand> strands_;
  plan::Signals<double> arrivals_;  // arrival times of signals that have come, or are on their way
  std::vector<double> free_;        // [resource]: when it has served all requests
  std::vector<uint32_t> sequence_;  // [rank]: messages sent
  std::vector<double> notified_;    // [output chunk]: when it comes
  Outcome outcome_;
};

Event Engine::Resumption(uint32_t strand, double time) const {
  const uint32_t rank = RankOf(strand);
  Event event;
  event.time = time;
  event.place = program_.place[rank] * program_.lanes + strand % program_.lanes;
  event.machine = program_.machine[rank];
  event.index = strand;
  return event;
}

// Occupies the resource from `time` on, after all earlier requests; returns when it is free again.
double Engine::Take(uint32_t resource, double time, double seconds) {
  outcome_.busy[resource] += seconds;
  return free_[resource] = std::max(time, free_[resource]) + seconds;
}

double Engine::Move(const Step& step, double time) {
  const auto of_lane = [&](double parts, double rate) { return rate > 0 ? time + parts * part_bytes_ / rate : time; };
  double end = std::max(of_lane(step.in_memory, fabric_.lane_memory_bytes_per_second),
                        of_lane(step.over_links, fabric_.lane_link_bytes_per_second));
  for (uint32_t i = step.first; i < step.first + step.count; ++i) {
    const Share& share = program_.shares[i];
    const double seconds =
        share.parts * seconds_[share.resource % kNumResources] + share.multicast * multicast_seconds_;
    end = std::max(end, Take(share.resource, time, seconds));
  }
  return end;
}

void Engine::Signal(uint32_t rank, const Step& step, double time) {
  for (uint32_t i = step.first; i < step.first + step.count; ++i) {
    const Delivery& delivery = program_.deliveries[i];
    if (delivery.far) {
      Send(rank, i, time);
    } else if (delivery.counter != Delivery::kNoCounter) {
      Arrive(delivery.counter, time + (delivery.token ? 0 : fabric_.signal_seconds));
    }
  }
}

void Engine::Send(uint32_t rank, uint32_t index, double time) {
  const Delivery& delivery = program_.deliveries[index];
  const uint32_t nic = rank * kNumResources + kNicOut;
  const double starts = std::max(time, free_[nic]);
  Take(nic, time, fabric_.message_seconds + delivery.parts * seconds_[kNicOut]);
  outcome_.sent[program_.machine[rank]] += delivery.parts * part_bytes_;
  ++outcome_.messages;
  Event event;
  event.time = starts + fabric_.message_seconds + fabric_.network_seconds;
  event.place = Event::kMessage | program_.place[delivery.to];
  event.distance = delivery.distance;
  event.source = program_.place[rank];
  event.sequence = sequence_[rank]++;
  event.machine = program_.machine[delivery.to];
  event.index = index;
  queue_.push(event);
}

void Engine::Land(const Event& event) {
  const Delivery& delivery = program_.deliveries[event.index];
  const double seconds = fabric_.message_seconds + delivery.parts * seconds_[kNicIn];
  const double end = Take(delivery.to * kNumResources + kNicIn, event.time, seconds);
  outcome_.received[event.machine] += delivery.parts * part_bytes_;
  if (delivery.counter != Delivery::kNoCounter) Arrive(delivery.counter, end);
}

// If the signal's arrival is known, returns true and moves `time` to it if that is later.
bool Engine::MayPass(const Strand& strand, const Step& wait, double* time) {
  const uint64_t number = strand.turn * program_.counters[wait.first].per_turn + wait.value;
  arrivals_.Forget(wait.first, number);
  const double* const arrival = arrivals_.Find(wait.first, number);
  if (arrival != nullptr) *time = std::max(*time, *arrival);
  return arrival != nullptr;
}

void Engine::Arrive(uint32_t counter, double time) {
  arrivals_.Make(counter, time);
  const uint32_t index = program_.counters[counter].strand;
  Strand& strand = strands_[index];
  if (!strand.waits) return;
  const Step& wait = program_.steps[strand.next - 1];
  if (wait.first != counter || !MayPass(strand, wait, &strand.time)) return;
  strand.waits = false;
  queue_.push(Resumption(index, strand.time));
}

// Advances the strand as far as possible. It uses a shared resource only when no earlier event is left. Signals and
// waits only compute times, so it may run ahead through those.
void Engine::Advance(uint32_t index, double time) {
  Strand& strand = strands_[index];
  for (; strand.turn < turns_; ++strand.turn, strand.next = program_.begin[index]) {
    for (; strand.next < program_.begin[index + 1]; ++strand.next) {
      const Step& step = program_.steps[strand.next];
      if (step.shared && !queue_.empty()) {
        const Event event = Resumption(index, time);
        if (queue_.top() < event) return queue_.push(event);
      }
      ++outcome_.operations;
      time += fabric_.op_seconds;
      if (step.kind == OpKind::kCopy) time = Move(step, time);
      if (step.kind == OpKind::kSignal) Signal(RankOf(index), step, time);
      if (step.kind == OpKind::kAwait) time = std::max(time, step.value * caller_.produce_seconds);
      if (step.kind == OpKind::kNotify) notified_[step.first] = time + (step.token ? 0 : fabric_.signal_seconds);
      if (step.kind == OpKind::kWait && !MayPass(strand, step, &time)) {
        strand.time = time;
        strand.waits = true;
        ++strand.next;
        return;
      }
    }
  }
  outcome_.seconds = std::max(outcome_.seconds, time);
}

// No lane waits for what a caller does with output chunks, and when it has computed input chunks is known in advance:
// so a caller can be followed after the lanes have ended.
Status Engine::RunCaller(uint32_t rank) {
  if (const std::string missing = MissingChunk(rank); !missing.empty())
    return MakeStatus(Code::kInvalidUsage, "Simulate: %s; verify the plan", missing.c_str());
  const auto begin = notified_.begin() + program_.outputs[rank], end = notified_.begin() + program_.outputs[rank + 1];
  std::sort(begin, end);
  double time = program_.awaited[rank] * caller_.produce_seconds;
  for (auto chunk = begin; chunk != end; ++chunk) time = std::max(time, *chunk) + caller_.consume_seconds;
  outcome_.seconds = std::max(outcome_.seconds, time);
  return Status();
}

// Names the first output chunk of the rank that was not notified; empty if there is none.
std::string Engine::MissingChunk(uint32_t rank) const {
  const auto begin = notified_.begin() + program_.outputs[rank], end = notified_.begin() + program_.outputs[rank + 1];
  const auto missing = std::find(begin, end, kNever);
  if (missing == end) return "";
  return Format("the caller of rank %u waits forever for output chunk %td: no operation notifies it", rank,
                missing - begin);
}

Status Engine::Complain(size_t index) const {
  const Strand& strand = strands_[index];
  const std::string missing = MissingChunk(RankOf(index));
  return MakeStatus(Code::kInvalidUsage,
                    "Simulate: rank %u, lane %zu waits forever at operation %zu of turn %llu: no such "
                    "signal comes%s%s; verify the plan",
                    RankOf(index), index % program_.lanes, strand.next - program_.begin[index] - 1,
                    static_cast<unsigned long long>(strand.turn), missing.empty() ? "" : ", and ", missing.c_str());
}

Result<Outcome> Engine::Run() {
  for (uint32_t s = 0; s < strands_.size(); ++s) {
    strands_[s].next = program_.begin[s];
    queue_.push(Resumption(s, 0));
  }
  while (!queue_.empty()) {
    const Event event = queue_.top();
    queue_.pop();
    if (event.is_message()) {
      Land(event);
    } else {
      Advance(event.index, event.time);
    }
  }
  for (size_t s = 0; s < strands_.size(); ++s) {
    if (strands_[s].turn < turns_) return Complain(s);
  }
  for (uint32_t rank = 0; rank < program_.ranks; ++rank) AXCCL_RETURN_IF_ERROR(RunCaller(rank));
  return std::move(outcome_);
}

}  // namespace

Result<Outcome> Execute(const Program& program, const Fabric& fabric, double part_bytes, uint64_t turns,
                        const Caller& caller) {
  AXCCL_RETURN_IF_ERROR(Check(fabric));
  for (const double seconds : {caller.produce_seconds, caller.consume_seconds}) {
    if (!std::isfinite(seconds) || seconds < 0)
      return MakeStatus(Code::kInvalidArgument, "Simulate: computing time of a chunk %g; must be finite and at least 0",
                        seconds);
  }
  return Engine(program, fabric, part_bytes, turns, caller).Run();
}

}  // namespace axccl::sim
