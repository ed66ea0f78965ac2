// Plans that follow each other on a channel, proved with vector clocks over what the executor runs: the programs, the
// places that it has prepared for their slots, in lines or in scratch, and its rule when a barrier separates two
// operations.
//
// The verifier proves single plans, whose slots do not move. Here, operations of other plans, lanes and slot sizes
// share the same memory; slots of one plan are sometimes in lines and sometimes in scratch, and wander through the
// scratch from turn to turn; and a direct plan is replaced by another after its prologue. The sender of a message puts
// off its last waits. As in the verifier, one run proves the sequence: a conflict that the order does not decide is
// found whichever of the two accesses comes first. Sequences are drawn from the seed. The users' buffers are not
// checked, because each rank has its own order for these.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/algo/algo.h"
#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using plan::Kind;
using plan::OpKind;

// What all ranks run in one stage: an operation, a barrier, or only the prologue of a direct plan.
struct Stage {
  std::vector<const Prepared*> of;  // [rank]
  uint64_t first_turn = 0;
  bool prologue_only = false;
};

class Clocks {
 public:
  Clocks(const std::vector<Stage>& stages, int ranks) : stages_(stages), ranks_(static_cast<uint32_t>(ranks)) {
    for (const Stage& stage : stages)
      lanes_ = std::max(lanes_, static_cast<uint32_t>(stage.of[0]->program->lanes.size()));
    strands_.resize(size_t{ranks_} * lanes_);
    clock_.resize(strands_.size() * strands_.size());
    arrived_.resize(ranks_);
    put_off_.resize(ranks_);
  }

  // Returns what is wrong; empty if nothing is.
  std::string Run() {
    for (bool moved = true; moved && fault_.empty();) {
      moved = false;
      for (uint32_t x = 0; x < strands_.size() && fault_.empty(); ++x) moved |= Advance(x);
    }
    for (const Strand& strand : strands_) {
      if (fault_.empty() && strand.stage != stages_.size()) fault_ = "a lane never ends";
    }
    return fault_;
  }

 private:
  struct Strand {
    size_t stage = 0;
    uint64_t turn = 0;  // within the stage
    size_t step = 0;
    bool arrived = false;  // at the end of the stage
    uint32_t done = 0;
  };
  struct Event {
    uint32_t strand = ~0u, position = 0;
  };
  struct History {
    Event write;
    std::vector<Event> reads;  // since
  };

  uint32_t* Clock(uint32_t x) { return &clock_[size_t{x} * strands_.size()]; }
  bool Before(const Event& e, uint32_t x) {
    return e.strand == ~0u || e.strand == x || Clock(x)[e.strand] > e.position;
  }
  void Join(uint32_t x, const uint32_t* clock) {
    for (size_t i = 0; i < strands_.size(); ++i) Clock(x)[i] = std::max(Clock(x)[i], clock[i]);
  }

  bool Advance(uint32_t x) {
    Strand& strand = strands_[x];
    bool moved = false;
    while (fault_.empty() && strand.stage < stages_.size() && !strand.arrived) {
      if (AtEnd(x)) {
        Arrive(x);
        return true;
      }
      const Prepared& prepared = PreparedOf(x);
      const Step& step = prepared.program->lanes[x % lanes_][strand.step];
      const uint64_t turn = stages_[strand.stage].first_turn + strand.turn;
      const uint32_t rank = x / lanes_;
      if (!PassPutOff(x)) return moved;
      if (step.kind == OpKind::kWait && rank == 0 && prepared.program->plan->sends_ahead &&
          strand.turn + 1 == prepared.turns) {
        put_off_[rank].push_back({strand.stage, Key(static_cast<uint32_t>(step.peer), step.from_lane, step, turn)});
      } else if (step.kind == OpKind::kWait) {
        const auto signal = signals_.find(Key(static_cast<uint32_t>(step.peer), step.from_lane, step, turn));
        if (signal == signals_.end()) return moved;
        Join(x, signal->second.data());
      } else if (step.kind == OpKind::kSignal) {
        std::vector<uint32_t>& clock = signals_[Key(x / lanes_, x % lanes_, step, turn)];
        clock.assign(Clock(x), Clock(x) + strands_.size());
        clock[x] = strand.done + 1;
      } else {
        Move(x, prepared, step, turn);
      }
      ++strand.step;
      ++strand.done;
      moved = true;
    }
    return moved;
  }

  // A stage of a sender begins with the waits that the one before has put off (message_end.h).
  bool PassPutOff(uint32_t x) {
    for (const PutOff& wait : put_off_[x / lanes_]) {
      if (wait.stage + 1 != strands_[x].stage) continue;
      const auto signal = signals_.find(wait.key);
      if (signal == signals_.end()) return false;
      Join(x, signal->second.data());
    }
    return true;
  }

  const Prepared& PreparedOf(uint32_t x) const { return *stages_[strands_[x].stage].of[x / lanes_]; }

  // Whether the strand has done its part of the stage; starts its next turn if there is one.
  bool AtEnd(uint32_t x) {
    Strand& strand = strands_[x];
    const Prepared& prepared = PreparedOf(x);
    const uint32_t lane = x % lanes_;
    if (lane >= prepared.program->lanes.size()) return true;
    if (stages_[strand.stage].prologue_only) return lane != 0 || strand.step == prepared.program->prologue;
    while (strand.step == prepared.program->lanes[lane].size()) {
      if (strand.turn + 1 >= prepared.turns) return true;
      ++strand.turn;
      strand.step = 0;
    }
    return false;
  }

  // A rank's operation ends when all its lanes have ended; then the next begins.
  void Arrive(uint32_t x) {
    strands_[x].arrived = true;
    const uint32_t rank = x / lanes_, first = rank * lanes_;
    if (++arrived_[rank] < lanes_) return;
    arrived_[rank] = 0;
    for (uint32_t y = first; y < first + lanes_; ++y) Clock(y)[y] = strands_[y].done;
    for (uint32_t y = first + 1; y < first + lanes_; ++y) Join(first, Clock(y));
    for (uint32_t y = first; y < first + lanes_; ++y) {
      if (y != first) std::copy_n(Clock(first), strands_.size(), Clock(y));
      strands_[y] = Strand{strands_[y].stage + 1, 0, 0, false, strands_[y].done};
    }
  }

  static uint64_t Key(uint32_t rank, uint32_t lane, const Step& step, uint64_t turn) {
    return uint64_t{rank} << 56 | uint64_t{lane} << 48 | (turn & 0xffff) << 32 | uint64_t{step.endpoint} << 16 |
           step.value;
  }

  void Move(uint32_t x, const Prepared& prepared, const Step& step, uint64_t turn) {
    const Program& program = *prepared.program;
    for (uint32_t part = 0; part < step.parts; ++part) {
      const uint32_t data_part = program.data_parts[step.data_parts + part];
      const uint64_t count = plan::Resolve(prepared.partition, x % lanes_, strands_[x].turn, data_part).count;
      if (count == 0) continue;
      for (uint32_t i = 0; i < uint32_t{step.num_dst} + step.num_src; ++i) {
        const uint32_t o = i < step.num_src ? step.num_dst + i : i - step.num_src;  // sources first
        const plan::Operand& operand = program.operands[step.operands + o];
        if (operand.buffer != plan::Buffer::kScratch) continue;
        const OperandPlace& place = prepared.places[step.operands + o];
        const auto begin = reinterpret_cast<uintptr_t>(*place.base) + place.offset[turn % plan::kRotation] +
                           prepared.sets.OffsetOf(turn) + part * place.part_bytes;
        Touch(x, begin, count * sizeof(int32_t), o < step.num_dst);
      }
    }
  }

  // Records an access to lines, which no two slots share.
  void Touch(uint32_t x, uintptr_t begin, uint64_t bytes, bool writes) {
    constexpr uintptr_t kLine = 64;
    for (uintptr_t line = begin / kLine; line * kLine < begin + bytes; ++line) {
      History& h = history_[line];
      if (!Before(h.write, x)) return Race(x, writes, h.write, "may write");
      if (!writes) {
        h.reads.push_back({x, strands_[x].done});
        continue;
      }
      for (const Event& read : h.reads) {
        if (!Before(read, x)) return Race(x, writes, read, "may read");
      }
      h.reads.clear();
      h.write = {x, strands_[x].done};
    }
  }

  void Race(uint32_t x, bool writes, const Event& other, const char* does) {
    const Strand& strand = strands_[x];
    fault_ = "in stage " + std::to_string(strand.stage) + " rank " + std::to_string(x / lanes_) + " lane " +
             std::to_string(x % lanes_) + " " + (writes ? "writes" : "reads") + " what rank " +
             std::to_string(other.strand / lanes_) + " lane " + std::to_string(other.strand % lanes_) + " " + does +
             " at the same time";
  }

  const std::vector<Stage>& stages_;
  const uint32_t ranks_;
  uint32_t lanes_ = 1;
  std::vector<Strand> strands_;    // [rank * lanes_ + lane]
  std::vector<uint32_t> clock_;    // [strand][strand] operations known to be done
  std::vector<uint32_t> arrived_;  // [rank] lanes at the end of the stage
  struct PutOff {
    size_t stage;
    uint64_t key;  // of the signal
  };
  std::vector<std::vector<PutOff>> put_off_;  // [rank]
  std::map<uint64_t, std::vector<uint32_t>> signals_;
  std::unordered_map<uintptr_t, History> history_;
  std::string fault_;
};

// When a barrier separates two operations: the executor's rule, and a wrong one.
using Rule = bool (*)(const HostChannel& channel, const Prepared& next);
bool LikeTheExecutor(const HostChannel& channel, const Prepared& next) { return channel.turns().NeedsBarrier(next); }
bool Never(const HostChannel&, const Prepared&) { return false; }

struct Item {
  Call call;
  tune::Access access = tune::Access::kMapped;
  bool leaves = false;  // a direct plan ends after its prologue, because some buffers are out of reach
};

std::string Text(const Item& item) {
  return DescribeCall(item.call) + (item.access == tune::Access::kMapped ? " mapped" : " staged") +
         (item.leaves ? " left" : "");
}

class Chain {
 public:
  explicit Chain(Ensemble* ensemble, uint64_t first_turn) : ensemble_(ensemble) {
    for (int rank = 0; rank < ensemble->ranks(); ++rank) {
      HostChannel* channel = ensemble->host(rank);
      channel->turns() = Turns(first_turn);
    }
  }

  void Append(const Item& item, Rule rule) {
    Stage main = Make([&](HostChannel* channel) { return channel->plans().Prepare(item.call, item.access); });
    if (All([&](HostChannel* channel, size_t rank) { return rule(*channel, *main.of[rank]); })) {
      ++barriers_;
      Add(Make([](HostChannel* channel) { return channel->plans().PrepareBarrier(); }));
    }
    const bool leaves = item.leaves && main.of[0]->program->plan->schedule.direct;
    main.prologue_only = leaves;
    Add(main);
    if (leaves)
      Add(Make([&](HostChannel* channel) { return channel->plans().PrepareBeside(item.call, tune::Access::kNone); }));
  }

  std::string Fault() const { return Clocks(stages_, ensemble_->ranks()).Run(); }
  const std::vector<Stage>& stages() const { return stages_; }
  int barriers() const { return barriers_; }

 private:
  template <class F>
  Stage Make(F prepare) {
    Stage stage;
    stage.first_turn = ensemble_->host(0)->turns().next();
    for (int rank = 0; rank < ensemble_->ranks(); ++rank) {
      const Result<const Prepared*> prepared = prepare(ensemble_->host(rank));
      EXPECT_TRUE(prepared.ok()) << prepared.status().message();
      stage.of.push_back(prepared.value());
      EXPECT_EQ(stage.of[0]->program->plan->hash, prepared.value()->program->plan->hash);
    }
    return stage;
  }
  // The answer of all ranks, which must be the same.
  template <class F>
  bool All(F answer) {
    const bool first = answer(ensemble_->host(0), 0);
    for (int rank = 1; rank < ensemble_->ranks(); ++rank)
      EXPECT_EQ(answer(ensemble_->host(rank), static_cast<size_t>(rank)), first) << "rank " << rank << " differs";
    return first;
  }
  void Add(Stage stage) {
    for (int rank = 0; rank < ensemble_->ranks(); ++rank) {
      HostChannel* channel = ensemble_->host(rank);
      stage.first_turn = channel->turns().next();
      stage.prologue_only ? channel->turns().NotePrologue()
                          : channel->turns().NoteEnd(*stage.of[static_cast<size_t>(rank)]);
    }
    stages_.push_back(std::move(stage));
  }

  Ensemble* const ensemble_;
  std::vector<Stage> stages_;
  int barriers_ = 0;
};

Item MakeItem(const plan::Contract& contract, uint64_t count) {
  Item item;
  item.call.kind = contract.kind;
  item.call.root = contract.root;
  item.call.count = count;
  item.call.type = DataType::kInt32;
  return item;
}

Item AnyItem(int ranks, harness::Random* random) {
  const Shape shape = AnyShape(ranks, random);
  Item item = MakeItem(shape.contract, shape.count);
  if (random->OneIn(2)) item.access = tune::Access::kNone;
  item.leaves = random->OneIn(3);
  return item;
}

EnsembleOptions AnyOptions(harness::Random* random) {
  EnsembleOptions options;
  options.ranks = static_cast<int>(2 + random->Below(4));
  options.lanes = random->Pick(std::vector<int>{1, 1, 2, 3, 8});
  options.algorithms = AnyAlgorithms(random, false);
  options.scratch_bytes = random->OneIn(2) ? 32768 : 131072;
  options.process_bytes = 1u << 20;
  return options;
}

std::string FaultOf(Ensemble* ensemble, const std::vector<Item>& items, uint64_t first_turn, Rule rule) {
  Chain chain(ensemble, first_turn);
  for (const Item& item : items) chain.Append(item, rule);
  return chain.Fault();
}

uint64_t AnyTurn(harness::Random* random) { return random->OneIn(2) ? random->Below(4) : 1000 + random->Below(20000); }

// A, then B, then A again: every pair of some calls, on channels whose kinds use changing algorithms.
TEST(PairsTest, AnyTwoPlansMayFollowEachOther) {
  long chains = 0, never = 0;
  for (uint64_t round = 0; round < 40; ++round) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()) + " round " + std::to_string(round));
    harness::Random random(harness::Scramble(harness::Seed(), 12, round));
    const EnsembleOptions options = AnyOptions(&random);
    Ensemble ensemble(options);
    std::vector<Item> items;
    for (int i = 0; i < 5; ++i) items.push_back(AnyItem(options.ranks, &random));
    for (const Item& a : items) {
      for (const Item& b : items) {
        const uint64_t turn = AnyTurn(&random);
        ++chains;
        ASSERT_EQ(FaultOf(&ensemble, {a, b, a}, turn, LikeTheExecutor), "")
            << Text(a) << ", " << Text(b) << ", and the first again; " << options.ranks << " ranks, " << options.lanes
            << " lanes, " << options.algorithms << ", turn " << turn;
        never += !FaultOf(&ensemble, {a, b, a}, turn, Never).empty();
      }
    }
  }
  std::printf("%ld sequences; without barriers %ld of them are wrong\n", chains, never);
  EXPECT_GT(never, 0);
}

// The rule is needed: for every plan that is not complete there is one that must not follow it at once.
TEST(PairsTest, AMissingBarrierIsFoundForEveryPlanThatNeedsOne) {
  long needed = 0;
  for (int k = 0; k < plan::kNumKinds - 2; ++k) {
    for (const std::string_view algorithm : algo::Algorithms(static_cast<Kind>(k))) {
      const plan::Contract contract{static_cast<Kind>(k), 4, 0};
      if (algo::Complete(algo::Generate(contract, algorithm, 1).value())) continue;
      ++needed;
      bool found = false;
      for (int other = 0; other < plan::kNumKinds - 2 && !found; ++other) {
        for (const std::string_view follower : algo::Algorithms(static_cast<Kind>(other))) {
          if (other == k && follower != algorithm) continue;
          EnsembleOptions options;
          options.ranks = 4;
          options.algorithms = Only(static_cast<Kind>(k), algorithm);
          if (other != k) options.algorithms += ";" + Only(static_cast<Kind>(other), follower);
          options.scratch_bytes = 32768;
          options.process_bytes = 1u << 20;
          Ensemble ensemble(options);
          for (int root = 0; root < (plan::HasRoot(static_cast<Kind>(other)) ? 4 : 1) && !found; ++root) {
            const Item a = MakeItem(contract, 300), b = MakeItem({static_cast<Kind>(other), 4, root}, 300);
            for (const auto& items :
                 {std::vector<Item>{a, b, a, b}, std::vector<Item>{a, a, b, b}, std::vector<Item>{b, b, a, a}}) {
              ASSERT_EQ(FaultOf(&ensemble, items, 0, LikeTheExecutor), "");
              found |= !FaultOf(&ensemble, items, 0, Never).empty();
            }
          }
        }
      }
      EXPECT_TRUE(found) << plan::KindName(contract.kind) << " " << algorithm;
    }
  }
  EXPECT_GT(needed, 0);
}

// Slots of one plan and one size alternate between lines and scratch, without barriers between the calls; and sets of
// slots wander meanwhile.
TEST(PairsTest, SlotsMoveBetweenLinesAndScratch) {
  long both = 0, wandering = 0;
  for (int k = 0; k < plan::kNumKinds - 1; ++k) {
    for (const std::string_view algorithm : algo::Algorithms(static_cast<Kind>(k))) {
      harness::Random random(harness::Scramble(harness::Seed(), 13, static_cast<uint64_t>(k)));
      EnsembleOptions options;
      options.ranks = static_cast<Kind>(k) == Kind::kSendRecv ? 2 : 6;
      options.algorithms = Only(static_cast<Kind>(k), algorithm);
      options.scratch_bytes = 65536;
      options.process_bytes = 1u << 20;
      Ensemble ensemble(options);
      const plan::Contract contract{static_cast<Kind>(k), options.ranks, 0};
      for (const auto& counts : {std::vector<uint64_t>{1, 12, 13, 16}, std::vector<uint64_t>{500, 505}}) {
        Chain chain(&ensemble, AnyTurn(&random));
        for (int i = 0; i < 24; ++i) chain.Append(MakeItem(contract, random.Pick(counts)), LikeTheExecutor);
        EXPECT_EQ(chain.Fault(), "") << plan::KindName(contract.kind) << " " << algorithm;
        EXPECT_EQ(chain.barriers(), 0) << "slots of one size";
        bool in_lines = false, in_scratch = false;
        for (const Stage& stage : chain.stages()) {
          (stage.of[0]->inline_slots ? in_lines : in_scratch) = true;
          wandering += stage.of[0]->sets.count > 1;
          EXPECT_TRUE(!stage.of[0]->inline_slots || stage.of[0]->sets.count == 1) << "lines stay where they are";
        }
        both += in_lines && in_scratch;
      }
    }
  }
  EXPECT_GT(both, 0);
  EXPECT_GT(wandering, 0);
}

}  // namespace
}  // namespace axccl::exec
