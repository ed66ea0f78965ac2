#include "tests/verify/interpreter.h"

#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/harness/random.h"
#include "tests/verify/lowered.h"

namespace axccl::verify {

using harness::Scramble;
using plan::Buffer;
using plan::Contract;
using plan::Kind;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

// Scaling, finishing and garbage are arithmetic, so the final number shows what happened to the data: a contribution x
// is scaled to 3x, a finished fold f is 5f + 1, poison is random. Sums wrap.
constexpr uint64_t kScale = 3;
constexpr uint64_t kPublished = uint64_t{1} << 63;
constexpr uint64_t Finished(uint64_t fold) { return 5 * fold + 1; }

class Machine {
 public:
  Machine(const Schedule& s, const RunOptions& options)
      : s_(Lowered(s).schedule), joined_(s.direct || s.slices != 0), options_(options), random_(options.seed) {
    for (int r = 0; r < s.contract.ranks; ++r) {
      ended_.push_back(0);
      for (int l = 0; l < s.lanes; ++l) strands_.push_back({r, l});
    }
    victim_ = random_.Below(strands_.size() + 1);  // or none
    signals_in_turn_.assign(strands_.size() * s.endpoints, 0);
    const int loads = joined_ ? 1 : options.turns;
    for (int r = 0; r < s.contract.ranks; ++r) {
      for (int t = 0; t < loads; ++t) Load(r, t);
    }
  }

  std::string Go() {
    for (bool moved = true; moved && fault_.empty();) {
      if (s_.produced && !options_.reluctant && random_.OneIn(4)) Produce();
      moved = StepOne();
      if (moved) continue;
      if (options_.reluctant) CheckNothingHoarded();
      moved = options_.reluctant ? ProduceNext() : Produce();
    }
    for (const Strand& strand : strands_) {
      if (strand.turn < options_.turns && fault_.empty()) {
        return "deadlock: rank " + std::to_string(strand.rank) + " lane " + std::to_string(strand.lane) +
               " stops in turn " + std::to_string(strand.turn);
      }
    }
    for (int r = 0; r < s_.contract.ranks && !joined_; ++r) {
      for (int t = 0; t < options_.turns; ++t) Check(r, t);
    }
    return fault_;
  }

 private:
  struct Strand {
    int rank;
    int lane;
    int turn = 0;
    size_t next = 0;
    size_t phase = 0;               // of a data operation: its sources are read, then its destinations written
    bool parked = false;            // waits for the other lanes of its rank at the end of a direct turn
    std::vector<uint64_t> value{};  // [part] the value folded so far
  };

  // Usually steps the favourite, until it blocks or chance selects another. The victim is stepped only when no other
  // strand can go on. Returns false if none can.
  bool StepOne() {
    const size_t n = strands_.size();
    if (random_.OneIn(8)) favourite_ = random_.Below(n);
    for (size_t tried = 0; tried <= n; ++tried) {
      if (favourite_ != victim_ && Step(&strands_[favourite_])) return true;
      favourite_ = tried == 0 ? random_.Below(n) : (favourite_ + 1) % n;
    }
    return victim_ < n && Step(&strands_[victim_]);
  }

  uint64_t Contribution(int turn, int rank, int lane, int block, int part) const {
    if (s_.slices != 0) lane = 0;
    return Scramble(Scramble(options_.seed, turn, rank), Scramble(lane, block, part));
  }

  uint64_t Key(const Operand& o, int part, int turn, int lane) const {
    const bool shared = s_.slices != 0 && o.buffer != Buffer::kScratch;
    const uint64_t at = static_cast<uint64_t>(o.rank) << 44 | static_cast<uint64_t>(shared ? 0 : lane) << 32;
    if (o.buffer == Buffer::kScratch) {
      return uint64_t{3} << 60 | uint64_t(turn % plan::kRotation) << 56 | at | static_cast<uint64_t>(o.part + part);
    }
    int input = 0, output = 0;
    const bool can = plan::InPlaceBlocks(s_.contract, o.rank, &input, &output);
    const bool same = can && ((options_.in_place >> o.rank) & 1) && o.buffer == Buffer::kInput && o.block == input;
    const uint64_t buffer = same || o.buffer == Buffer::kOutput ? 2 : 1;
    return buffer << 60 | uint64_t(joined_ ? 0 : turn & 15) << 56 | at |
           static_cast<uint64_t>(same ? output : o.block) << 16 | static_cast<uint64_t>(o.part + part);
  }

  // The value that lane `lane` of rank `rank` reads there. An inline slot travels in its endpoint's line: other ranks
  // see it as it was when the endpoint was last signalled.
  uint64_t Find(const Operand& o, int part, int turn, const Strand& reader) {
    const bool line = o.buffer == Buffer::kScratch && s_.inline_endpoint[o.part + part] >= 0 && o.rank != reader.rank;
    if (!line) return At(o, part, turn, reader.lane);
    return memory_.try_emplace(Key(o, part, turn, reader.lane) | kPublished, random_.Next()).first->second;
  }

  void Publish(const Strand& writer, int endpoint) {
    for (size_t slot = 0; slot < s_.inline_endpoint.size(); ++slot) {
      if (s_.inline_endpoint[slot] != endpoint) continue;
      Operand o = User(Buffer::kScratch, writer.rank, 0);
      o.part = static_cast<uint16_t>(slot);
      memory_[Key(o, 0, writer.turn, writer.lane) | kPublished] = At(o, 0, writer.turn, writer.lane);
    }
  }

  static Operand User(Buffer buffer, int rank, int block) {
    return {buffer, static_cast<uint16_t>(rank), static_cast<uint16_t>(block), 0, 1};
  }

  uint64_t& At(const Operand& o, int part, int turn, int lane) {
    return memory_.try_emplace(Key(o, part, turn, lane), random_.Next()).first->second;
  }

  // The user of some rank writes a chunk, and declares it ready. Returns false if all are ready.
  bool Produce() {
    if (unready_.empty()) return false;
    std::swap(unready_[random_.Below(unready_.size())], unready_.back());
    const auto [rank, turn, chunk] = unready_.back();
    unready_.pop_back();
    Declare(rank, turn, chunk);
    return true;
  }

  // The next chunk that some rank awaits, of a rank whose turn it is by chance.
  bool ProduceNext() {
    const auto first = static_cast<int>(random_.Below(static_cast<uint64_t>(s_.contract.ranks)));
    for (int i = 0; i < s_.contract.ranks; ++i) {
      const int rank = (first + i) % s_.contract.ranks;
      for (const plan::Lane& lane : s_.program[rank]) {
        for (const Op& op : lane.ops) {
          if (op.kind != OpKind::kAwait || ready_.contains({rank, 0, op.chunk})) continue;
          Declare(rank, 0, op.chunk);
          return true;
        }
      }
    }
    return false;
  }

  void CheckNothingHoarded() {
    for (int r = 0; r < s_.contract.ranks; ++r) {
      for (int chunk = 0; chunk < plan::OutputBlocks(s_.contract, r) * s_.slices; ++chunk) {
        bool ready = true;
        for (int q = 0; q < s_.contract.ranks; ++q) {
          int input = 0;
          const bool from = plan::SourceBlock(s_.contract, r, chunk / s_.slices, q, &input);
          if (from && s_.produced) ready &= ready_.contains({q, 0, input * s_.slices + chunk % s_.slices});
        }
        if (ready && !told_.contains({r, chunk}))
          fault_ = "chunk " + std::to_string(chunk) + " of rank " + std::to_string(r) + " is hoarded";
      }
    }
  }

  void Declare(int rank, int turn, int chunk) {
    const int parts = s_.parts / s_.slices, block = chunk / s_.slices, first = chunk % s_.slices * parts;
    for (int p = first; p < first + parts; ++p)
      At(User(Buffer::kInput, rank, block), p, turn, 0) = Contribution(turn, rank, 0, block, p);
    ready_.insert({rank, turn, chunk});
  }

  // The user of rank r prepares the buffers of turn t: poison in the outputs, then contributions in the inputs.
  void Load(int r, int t) {
    for (const Buffer buffer : {Buffer::kOutput, Buffer::kInput}) {
      const bool input = buffer == Buffer::kInput;
      const int blocks = input ? plan::InputBlocks(s_.contract, r) : plan::OutputBlocks(s_.contract, r);
      for (int b = 0; b < blocks; ++b) {
        for (int l = 0; l < s_.lanes; ++l) {
          for (int p = 0; p < s_.parts; ++p) {
            const bool ready = input && !s_.produced;
            At(User(buffer, r, b), p, t, l) = ready ? Contribution(t, r, l, b, p) : random_.Next();
          }
        }
        for (int i = 0; input && s_.produced && i < s_.slices; ++i) unready_.emplace_back(r, t, b * s_.slices + i);
      }
    }
  }

  uint64_t Expected(int turn, int rank, int lane, int block, int part) const {
    const Contract& c = s_.contract;
    if (plan::Reduces(c.kind)) {
      uint64_t sum = 0;
      for (int q = 0; q < c.ranks; ++q) {
        sum += kScale * Contribution(turn, q, lane, c.kind == Kind::kReduceScatter ? rank : 0, part);
      }
      return Finished(sum);
    }
    const bool by_block = c.kind == Kind::kAllGather || c.kind == Kind::kGather || c.kind == Kind::kAllToAll;
    const bool by_rank = c.kind == Kind::kAllToAll || c.kind == Kind::kScatter;
    return Contribution(turn, by_block ? block : c.root, lane, by_rank ? rank : 0, part);
  }

  void CheckChunk(int r, int t, int chunk) {
    const int parts = s_.parts / s_.slices, block = chunk / s_.slices, first = chunk % s_.slices * parts;
    for (int p = first; p < first + parts && fault_.empty(); ++p) {
      if (At(User(Buffer::kOutput, r, block), p, t, 0) != Expected(t, r, 0, block, p))
        fault_ = "chunk " + std::to_string(chunk) + " of rank " + std::to_string(r) + " is notified too early";
    }
  }

  void Check(int r, int t) {
    for (int b = 0; b < plan::OutputBlocks(s_.contract, r); ++b) {
      for (int l = 0; l < s_.lanes; ++l) {
        for (int p = 0; p < s_.parts; ++p) {
          if (At(User(Buffer::kOutput, r, b), p, t, l) == Expected(t, r, l, b, p) || !fault_.empty()) continue;
          fault_ = "wrong output of rank " + std::to_string(r) + " lane " + std::to_string(l) + " block " +
                   std::to_string(b) + " part " + std::to_string(p) + " in turn " + std::to_string(t);
        }
      }
    }
  }

  // Returns false if the strand cannot go on now.
  bool Step(Strand* strand) {
    if (!fault_.empty() || strand->turn == options_.turns || strand->parked) return false;
    const auto& ops = s_.program[strand->rank][strand->lane].ops;
    if (strand->next == ops.size()) return EndTurn(strand);
    const Op& op = ops[strand->next];
    if (op.kind == OpKind::kWait && !Satisfied(*strand, op)) return false;
    if (op.kind == OpKind::kAwait && !ready_.contains({strand->rank, strand->turn, op.chunk})) return false;
    if (op.kind == OpKind::kNotify) {
      CheckChunk(op.peer, strand->turn, op.chunk);
      told_.insert({op.peer, op.chunk});
    }
    if (op.kind == OpKind::kSignal) {
      Publish(*strand, op.endpoint);
      const uint64_t index = Endpoint(strand->rank, strand->lane, op.endpoint);
      lines_[index * plan::kRotation + strand->turn % plan::kRotation] =
          uint64_t(strand->turn) * 65536 + ++signals_in_turn_[index];
    }
    if ((op.kind == OpKind::kCopy || op.kind == OpKind::kReduce) && !Move(strand, op)) return true;
    ++strand->next;
    strand->phase = 0;
    return true;
  }

  uint64_t Endpoint(int rank, int lane, int endpoint) const {
    return (static_cast<uint64_t>(rank) * s_.lanes + lane) * s_.endpoints + endpoint;
  }

  bool Satisfied(const Strand& strand, const Op& op) {
    const uint64_t index = Endpoint(op.peer, op.from_lane, op.endpoint);
    const auto line = lines_.find(index * plan::kRotation + strand.turn % plan::kRotation);
    return line != lines_.end() && line->second >= uint64_t(strand.turn) * 65536 + op.value;
  }

  // Moves one source or one destination. Returns true when the operation is done.
  bool Move(Strand* strand, const Op& op) {
    const bool reduces = plan::Reduces(s_.contract.kind);
    if (strand->phase < op.src.size()) {
      const Operand& o = op.src[strand->phase];
      if (strand->phase == 0) strand->value.assign(o.parts, 0);
      for (int i = 0; i < o.parts; ++i) {
        const uint64_t x = Find(o, i, strand->turn, *strand);
        strand->value[i] += reduces && o.buffer == Buffer::kInput ? kScale * x : x;
      }
      ++strand->phase;
      return false;
    }
    const Operand& o = op.dst[strand->phase - op.src.size()];
    for (int i = 0; i < o.parts; ++i) {
      At(o, i, strand->turn, strand->lane) = op.finish ? Finished(strand->value[i]) : strand->value[i];
    }
    return ++strand->phase == op.src.size() + op.dst.size();
  }

  void BeginTurn(Strand* strand) {
    ++strand->turn;
    strand->next = 0;
    strand->parked = false;
    for (int e = 0; e < s_.endpoints; ++e) signals_in_turn_[Endpoint(strand->rank, strand->lane, e)] = 0;
  }

  bool EndTurn(Strand* strand) {
    if (!joined_) {
      BeginTurn(strand);
      return true;
    }
    strand->parked = true;
    if (++ended_[strand->rank] < s_.lanes) return true;
    // The operation is over for this rank: the user checks the outputs, spoils all buffers and calls again.
    ended_[strand->rank] = 0;
    Check(strand->rank, strand->turn);
    Load(strand->rank, strand->turn + 1);
    for (Strand& other : strands_) {
      if (other.rank == strand->rank) BeginTurn(&other);
    }
    return true;
  }

  const Schedule s_;
  const bool joined_;  // turns are operations
  const RunOptions options_;
  harness::Random random_;
  std::vector<Strand> strands_;
  size_t favourite_ = 0;
  size_t victim_ = 0;
  std::vector<int> ended_;  // [rank] lanes that have ended the turn
  std::vector<uint64_t> signals_in_turn_;
  std::unordered_map<uint64_t, uint64_t> lines_;
  std::unordered_map<uint64_t, uint64_t> memory_;
  std::vector<std::tuple<int, int, int>> unready_;  // rank, turn and number of input chunks
  std::set<std::tuple<int, int, int>> ready_;
  std::set<std::pair<int, int>> told_;  // rank and number of output chunks
  std::string fault_;
};

}  // namespace

std::string RunOnce(const Schedule& schedule, const RunOptions& options) { return Machine(schedule, options).Go(); }

}  // namespace axccl::verify
