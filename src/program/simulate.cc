#include "src/program/simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "src/program/kinds.h"
#include "src/program/simulate/busy.h"
#include "src/program/simulate/meetings.h"
#include "src/program/simulate/steps.h"
#include "src/program/simulate/work.h"

namespace axccl::program {
namespace {

constexpr size_t kMostSteps = size_t{1} << 23;  // of all parts
constexpr int kComputes = 0, kCommunicates = 1;

// Executes the ranks' steps, each rank as far as it goes without others. Every time follows from earlier ones by
// maximum and sum, so the order in which ranks are executed does not matter.
class Running {
 public:
  Running(const Program& program, Model* model, bool events)
      : model_(*model), communicates_(model->overlaps() ? kCommunicates : kComputes), table_(program.ranks) {
    out_.ranks.resize(static_cast<size_t>(program.ranks));
    slots_.resize(static_cast<size_t>(program.ranks), kNoPart);
    keeps_events_ = events;
  }

  // The steps must outlive it.
  void Add(const Part& part, const PartSteps& steps) {
    out_.parts.push_back(steps.memory);
    for (const int64_t rank : part.ranks) {
      slots_[static_cast<size_t>(rank)] = ranks_.size();
      ready_.push_back(ranks_.size());
      ranks_.push_back({static_cast<int>(rank), &steps, std::vector<double>(steps.num_slots)});
    }
  }

  // Without times.
  Simulation Memory() { return std::move(out_); }

  Result<Simulation> Run() {
    while (!ready_.empty()) {
      const size_t slot = ready_.back();
      ready_.pop_back();
      AXCCL_RETURN_IF_ERROR(Advance(&ranks_[slot]));
    }
    for (const Rank& rank : ranks_) {
      if (rank.next < rank.steps->steps.size()) return ReportStuck(rank);
      out_.seconds = std::max({out_.seconds, rank.free[0], rank.free[1]});
      RankTimes& times = out_.ranks[static_cast<size_t>(rank.number)];
      times.compute = rank.busy.seconds(kComputes);
      times.communication = rank.busy.seconds(kCommunicates);
      times.exposed = times.communication - rank.busy.both();
    }
    return std::move(out_);
  }

 private:
  static constexpr size_t kNoPart = ~size_t{0};

  struct Rank {
    int number;
    const PartSteps* steps;
    std::vector<double> ready;  // [slot]: when the value is there
    size_t next = 0;            // step
    double free[2] = {0, 0};    // when the streams are
    double decided = 0;         // when the last condition was there
    BusyStreams busy = {};

    const SimulatedStep& step() const { return steps->steps[next]; }
  };
  struct Meeting {
    size_t arrived = 0;
    double last = 0;
  };
  // Of messages that have been sent; and the receiver, if it waits.
  struct Queue {
    std::deque<double> sent = {};
    Rank* waits = nullptr;
    double since = 0;
  };

  using Kind = SimulatedStep::Kind;

  double OperandsThere(const Rank& rank, const SimulatedStep& step) const {
    double there = rank.decided;
    for (uint32_t i = 0; i < step.operands; ++i) there = std::max(there, rank.ready[rank.steps->slots[step.first + i]]);
    return there;
  }

  // The rank's next step takes that long; what it takes from a stream, if any.
  void End(Rank* rank, int stream, int shown_as, double begin, double end) {
    const SimulatedStep& step = rank->step();
    for (uint32_t i = 0; i < step.results; ++i) {
      rank->ready[rank->steps->slots[step.first + step.operands + i]] = end;
    }
    ++rank->next;
    if (stream < 0) return;
    rank->free[stream] = end;
    rank->busy.Add(shown_as, begin, end);
    if (keeps_events_) {
      out_.events.push_back({step.operation, rank->number, shown_as == kCommunicates, begin, end, step.live});
    }
  }
  void EndCommunication(Rank* rank, double begin, double end) { End(rank, communicates_, kCommunicates, begin, end); }

  Status Advance(Rank* rank) {
    bool goes_on = true;
    while (goes_on && rank->next < rank->steps->steps.size()) {
      const SimulatedStep& step = rank->step();
      const double there = OperandsThere(*rank, step);
      switch (step.kind) {
        case Kind::kDecide:
          rank->decided = there;
          ++rank->next;
          break;
        case Kind::kLocal:
          if (step.seconds == 0) {
            End(rank, -1, 0, there, there);
          } else {
            const double begin = std::max(there, rank->free[kComputes]);
            End(rank, kComputes, kComputes, begin, begin + step.seconds);
          }
          break;
        case Kind::kCollective:
          AXCCL_RETURN_IF_ERROR(Arrive(rank, there, &goes_on));
          break;
        case Kind::kSend:
          AXCCL_RETURN_IF_ERROR(Send(rank, there, &goes_on));
          break;
        case Kind::kRecv:
          AXCCL_RETURN_IF_ERROR(Receive(rank, there, &goes_on));
          break;
      }
    }
    return Status();
  }

  Status Arrive(Rank* rank, double there, bool* goes_on) {
    const Operation& operation = *rank->step().operation;
    const uint32_t group = table_.GroupOf(operation, rank->number);
    if (group == MeetingTable::kNone) {
      End(rank, -1, 0, there, there);
      return Status();
    }
    if (meetings_.size() < table_.num_groups()) meetings_.resize(table_.num_groups());
    Meeting& meeting = meetings_[group];
    meeting.last = std::max({meeting.last, there, rank->free[communicates_]});
    const Ints& members = table_.MembersOf(group);
    *goes_on = ++meeting.arrived == members.size();
    if (!*goes_on) return Status();
    AXCCL_ASSIGN_OR_RETURN(const double seconds, SecondsOf(rank->step(), group, members));
    const double begin = meeting.last;
    meeting = Meeting();
    for (const int64_t number : members) {
      const size_t slot = slots_[static_cast<size_t>(number)];
      EndCommunication(&ranks_[slot], begin, begin + seconds);
      if (number != rank->number) ready_.push_back(slot);
    }
    return Status();
  }

  Status Send(Rank* rank, double there, bool* goes_on) {
    const Operation& operation = *rank->step().operation;
    const uint32_t number = table_.QueueOf(operation, rank->number);
    if (number == MeetingTable::kNone) {
      ++rank->next;
      return Status();
    }
    Queue& queue = QueueAt(number);
    const double begin = std::max(there, rank->free[communicates_]);
    queue.sent.push_back(begin);
    *goes_on = !model_.send_waits();
    if (*goes_on) {
      AXCCL_ASSIGN_OR_RETURN(const double seconds, SecondsOf(rank->step(), number, table_.EndsOf(number)));
      EndCommunication(rank, begin, begin + seconds);
    }
    Rank* const receiver = std::exchange(queue.waits, nullptr);
    return receiver == nullptr ? Status() : Take(receiver, queue.since, number);
  }

  Status Receive(Rank* rank, double there, bool* goes_on) {
    const uint32_t number = table_.QueueOf(*rank->step().operation, rank->number);
    Queue& queue = QueueAt(number);
    const double since = std::max(there, rank->free[communicates_]);
    *goes_on = false;
    if (!queue.sent.empty()) return Take(rank, since, number);
    queue.waits = rank;
    queue.since = since;
    return Status();
  }

  // The receiver, which has come to its recv, takes the first message; then it goes on, and a sender that waits.
  Status Take(Rank* receiver, double since, uint32_t number) {
    Queue& queue = QueueAt(number);
    const double begin = std::max(since, queue.sent.front());
    queue.sent.pop_front();
    AXCCL_ASSIGN_OR_RETURN(const double seconds, SecondsOf(receiver->step(), number, table_.EndsOf(number)));
    EndCommunication(receiver, begin, begin + seconds);
    ready_.push_back(static_cast<size_t>(receiver - ranks_.data()));
    if (!model_.send_waits()) return Status();
    const size_t sender = slots_[static_cast<size_t>(table_.EndsOf(number)[0])];
    EndCommunication(&ranks_[sender], begin, begin + seconds);
    ready_.push_back(sender);
    return Status();
  }

  Queue& QueueAt(uint32_t number) {
    while (queues_.size() < table_.num_queues()) queues_.emplace_back();
    return queues_[number];
  }

  // Of what the rank has come to. `number`: of the group or queue.
  Result<double> SecondsOf(const SimulatedStep& step, uint32_t number, const Ints& ranks) {
    const auto [known, added] = seconds_.emplace(std::pair(step.operation, number), 0);
    if (!added) return known->second;
    Transfer transfer{*step.operation, ranks, step.operand_bytes};
    for (const Value& result : step.operation->results) transfer.result_bytes += BytesOf(result.type);
    if (step.kind == Kind::kSend) transfer.result_bytes = transfer.operand_bytes;
    if (step.kind == Kind::kRecv) transfer.operand_bytes = transfer.result_bytes;
    AXCCL_ASSIGN_OR_RETURN(known->second, model_.Seconds(transfer));
    return known->second;
  }

  Status ReportStuck(const Rank& rank) const {
    return MakeStatus(Code::kInvalidUsage,
                      "rank %d waits in %%%u %s for ever: with this model, a send waits for its recv", rank.number,
                      rank.step().operation->id, std::string(InfoOf(rank.step().operation->kind).name).c_str());
  }

  Model& model_;
  const int communicates_;  // the stream that does
  bool keeps_events_ = false;
  MeetingTable table_;
  std::vector<Rank> ranks_;
  std::vector<size_t> slots_;  // [rank of the program]: in ranks_
  std::vector<size_t> ready_;  // slots of ranks that may continue
  std::vector<Meeting> meetings_;
  std::deque<Queue> queues_;
  std::map<std::pair<const Operation*, uint32_t>, double> seconds_;
  Simulation out_;
};

}  // namespace

Result<Simulation> Simulate(const Program& program, Model* model, const SimulateOptions& options) {
  const Liveness liveness(program);
  std::vector<PartSteps> parts;
  size_t left = kMostSteps;
  for (const Part& part : program.parts) {
    AXCCL_ASSIGN_OR_RETURN(PartSteps steps, WriteOut(part, liveness, *model, options, left));
    left -= steps.steps.size();
    parts.push_back(std::move(steps));
  }
  Running running(program, model, options.events);
  for (size_t i = 0; i < parts.size(); ++i) running.Add(program.parts[i], parts[i]);
  const bool is_too_large = std::any_of(parts.begin(), parts.end(), [&](const PartSteps& part) {
    return options.most_bytes > 0 && part.memory.peak > options.most_bytes;
  });
  return is_too_large ? running.Memory() : running.Run();
}

}  // namespace axccl::program
