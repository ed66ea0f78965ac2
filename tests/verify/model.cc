#include "tests/verify/model.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>

namespace axccl::verify {

using plan::Buffer;
using plan::Contract;
using plan::Kind;
using plan::Op;
using plan::Operand;
using plan::OpKind;

namespace {

// Names of user nodes differ from those of operations.
constexpr uint64_t kUserName = uint64_t{1} << 40;

uint64_t Pack(uint64_t buffer, uint64_t turn, uint64_t rank, uint64_t lane, uint64_t block, uint64_t part) {
  return buffer << 60 | turn << 56 | rank << 44 | lane << 32 | block << 16 | part;
}

uint64_t Full(int ranks) {
  uint64_t counts = 0;
  for (int r = 0; r < ranks; ++r) counts |= uint64_t{1} << (4 * r);
  return counts;
}

}  // namespace

Model::Model(const plan::Schedule& schedule)
    : lowered_(schedule), s_(lowered_.schedule), joined_(schedule.direct || schedule.slices != 0) {
  BuildGraph();
  Close();
}

int Model::AddNode(const Op* op, int turn, int rank, int lane, uint64_t name) {
  nodes_.push_back({name, op, turn, rank, lane});
  after_.emplace_back();
  return static_cast<int>(nodes_.size()) - 1;
}

void Model::BuildGraph() {
  // A joined schedule runs one operation per turn, between two user nodes; others repeat turns inside one operation.
  for (int t = 0; t <= kTurns; ++t) {
    user_.emplace_back();
    for (int r = 0; r < s_.contract.ranks; ++r) {
      const bool exists = joined_ || t == 0 || t == kTurns;
      user_[t].push_back(exists ? AddNode(nullptr, t, r, 0, kUserName + t * 4096 + r) : -1);
    }
  }
  last_.assign(static_cast<size_t>(s_.contract.ranks) * s_.lanes, -1);
  for (int t = 0; t < kTurns; ++t) BuildTurn(t);
}

void Model::BuildTurn(int turn) {
  std::map<std::tuple<int, int, int>, std::vector<int>> signals;
  const size_t first = nodes_.size();
  for (int r = 0; r < s_.contract.ranks; ++r) {
    for (int l = 0; l < s_.lanes; ++l) {
      // Without a user in between, a lane's turn begins when its own previous turn has ended.
      int& last = last_[static_cast<size_t>(r) * s_.lanes + l];
      if (user_[turn][r] >= 0) last = user_[turn][r];
      for (const Op& op : s_.program[r][l].ops) {
        const int node = AddNode(&op, turn, r, l, uint64_t{op.id} * kTurns + turn);
        AddEdge(last, node);
        if (op.kind == OpKind::kSignal) signals[{r, l, op.endpoint}].push_back(node);
        last = node;
      }
      if (user_[turn + 1][r] >= 0) AddEdge(last, user_[turn + 1][r]);
    }
  }
  const size_t end = nodes_.size();
  AddChunkUsers(first, turn);
  for (size_t i = first; i < end; ++i) {
    const Node node = nodes_[i];
    if (node.op->kind != OpKind::kWait) continue;
    const auto& causes = signals[{node.op->peer, node.op->from_lane, node.op->endpoint}];
    if (causes.size() < node.op->value) {
      fault_ = "a wait has no signal";
      continue;
    }
    const int cause = causes[node.op->value - 1];
    const int peer = nodes_[cause].op->peer;
    const bool reached = peer == plan::kAllPeers ? node.rank != node.op->peer : peer == node.rank;
    if (!reached) fault_ = "a wait's signal goes elsewhere";
    AddEdge(cause, static_cast<int>(i));
  }
}

// Of the awaits and notifies among the nodes from `first` on.
void Model::AddChunkUsers(size_t first, int turn) {
  for (size_t i = first, end = nodes_.size(); i < end; ++i) {
    const Node node = nodes_[i];
    const bool consumes = node.op->kind == OpKind::kNotify;
    if (!consumes && node.op->kind != OpKind::kAwait) continue;
    const int rank = consumes ? node.op->peer : node.rank, chunk = node.op->chunk;
    const uint64_t name = (consumes ? 3 : 2) * kUserName + (uint64_t(turn) * 4096 + rank) * plan::kMaxChunks + chunk;
    const int user = AddNode(nullptr, turn, rank, 0, name);
    nodes_[user].chunk = chunk;
    nodes_[user].consumes = consumes;
    AddEdge(user_[turn][rank], user);
    consumes ? AddEdge(static_cast<int>(i), user) : AddEdge(user, static_cast<int>(i));
    AddEdge(user, user_[turn + 1][rank]);
  }
}

void Model::Close() {
  const size_t n = nodes_.size();
  std::vector<int> missing(n, 0);
  for (const auto& list : after_) {
    for (int to : list) ++missing[to];
  }
  before_.assign(n, std::vector<uint64_t>((n + 63) / 64, 0));
  for (size_t i = 0; i < n; ++i) {
    if (missing[i] == 0) order_.push_back(static_cast<int>(i));
  }
  for (size_t head = 0; head < order_.size(); ++head) {
    const int from = order_[head];
    for (int to : after_[from]) {
      for (size_t w = 0; w < before_[to].size(); ++w) before_[to][w] |= before_[from][w];
      before_[to][from / 64] |= uint64_t{1} << (from % 64);
      if (--missing[to] == 0) order_.push_back(to);
    }
  }
  if (order_.size() < n && fault_.empty()) fault_ = "deadlock";
}

// With slices, all lanes name parts of the same blocks.
int Model::LaneOf(const Operand& o, int lane) const {
  return s_.slices != 0 && o.buffer != Buffer::kScratch ? 0 : lane;
}

// User parts of the turns of a schedule that is not joined are disjoint; scratch exists kRotation times.
uint64_t Model::PlaceOf(const Operand& o, int part, int turn, int lane, uint32_t in_place) const {
  if (o.buffer == Buffer::kScratch) return Pack(3, turn % plan::kRotation, o.rank, lane, 0, o.part + part);
  int input = 0, output = 0;
  const bool can = plan::InPlaceBlocks(s_.contract, o.rank, &input, &output);
  const bool aliased = can && ((in_place >> o.rank) & 1) && o.buffer == Buffer::kInput && o.block == input;
  const bool is_output = aliased || o.buffer == Buffer::kOutput;
  return Pack(is_output ? 2 : 1, joined_ ? 0 : turn, o.rank, LaneOf(o, lane), aliased ? output : o.block,
              o.part + part);
}

void Model::AddUserTouches(int node, uint32_t in_place, std::vector<Touch>* touches) const {
  const Node& user = nodes_[node];
  std::set<uint64_t> places;
  for (int l = 0; l < s_.lanes; ++l) {
    for (int p = 0; p < s_.parts; ++p) {
      for (int t = 0; t < (joined_ ? 1 : kTurns); ++t) {
        Operand o;
        o.rank = static_cast<uint16_t>(user.rank);
        for (int b = 0; b < plan::InputBlocks(s_.contract, user.rank); ++b) {
          o.buffer = Buffer::kInput;
          o.block = static_cast<uint16_t>(b);
          places.insert(PlaceOf(o, p, t, l, in_place));
        }
        for (int b = 0; b < plan::OutputBlocks(s_.contract, user.rank); ++b) {
          o.buffer = Buffer::kOutput;
          o.block = static_cast<uint16_t>(b);
          places.insert(PlaceOf(o, p, t, l, in_place));
        }
      }
    }
  }
  for (uint64_t place : places) touches->push_back({place, node, true});
}

void Model::AddChunkTouches(int node, uint32_t in_place, std::vector<Touch>* touches) const {
  const Node& user = nodes_[node];
  const int parts = s_.parts / s_.slices;
  const Operand o = {user.consumes ? Buffer::kOutput : Buffer::kInput, static_cast<uint16_t>(user.rank),
                     static_cast<uint16_t>(user.chunk / s_.slices),
                     static_cast<uint16_t>(user.chunk % s_.slices * parts), 1};
  for (int p = 0; p < parts; ++p) touches->push_back({PlaceOf(o, p, user.turn, 0, in_place), node, !user.consumes});
}

// Calls f(place, signal) with the inline slots that a node writes, and the node of the signal that publishes each, -1
// if none does.
template <class F>
void Model::ForEachInline(int node, F f) const {
  const Node& writer = nodes_[node];
  for (const Operand& o : writer.op->dst) {
    for (int i = 0; o.buffer == Buffer::kScratch && i < o.parts; ++i) {
      const int endpoint = s_.inline_endpoint[o.part + i];
      if (endpoint < 0) continue;
      int signal = -1;
      for (size_t k = node + 1; k < nodes_.size() && signal < 0; ++k) {
        const Node& at = nodes_[k];
        if (at.turn != writer.turn || at.rank != writer.rank || at.lane != writer.lane || at.op == nullptr) break;
        if (at.op->kind == OpKind::kSignal && at.op->endpoint == endpoint) signal = static_cast<int>(k);
      }
      f(PlaceOf(o, i, writer.turn, writer.lane, 0), signal);
    }
  }
}

// The signal that publishes an inline slot writes it once more.
void Model::AddPublications(int node, std::vector<Touch>* touches) const {
  ForEachInline(node, [&](uint64_t place, int signal) {
    if (signal >= 0) touches->push_back({place, signal, true});
  });
}

// Another rank reads an inline slot after a write that no signal of the turn publishes.
std::string Model::FindUnpublished() const {
  std::string fault;
  const auto reads = [&](const Node& node, uint64_t place) {
    for (const Operand& o : node.op->src) {
      for (int i = 0; i < o.parts; ++i) {
        if (PlaceOf(o, i, node.turn, node.lane, 0) == place) return true;
      }
    }
    return false;
  };
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    if (nodes_[i].op == nullptr) continue;
    ForEachInline(i, [&](uint64_t place, int signal) {
      for (int k = 0; signal < 0 && k < static_cast<int>(nodes_.size()); ++k) {
        const Node& node = nodes_[k];
        if (node.op == nullptr || node.turn != nodes_[i].turn || node.rank == nodes_[i].rank || !Before(i, k)) continue;
        if (reads(node, place)) fault = NameOf(k) + " reads what " + NameOf(i) + " writes and no signal publishes";
      }
    });
  }
  return fault;
}

std::vector<Model::Touch> Model::Touches(uint32_t in_place) const {
  std::vector<Touch> touches;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    const Node& node = nodes_[i];
    if (node.op == nullptr) {
      node.chunk < 0 ? AddUserTouches(i, in_place, &touches) : AddChunkTouches(i, in_place, &touches);
      continue;
    }
    // In place, a copy may have its source as destination; if nothing is scaled, it then does nothing.
    const auto onto_itself = [&](const Operand& o) {
      return !plan::Reduces(s_.contract.kind) && PlaceOf(o, 0, node.turn, node.lane, in_place) ==
                                                     PlaceOf(node.op->src[0], 0, node.turn, node.lane, in_place);
    };
    for (const Operand& o : node.op->src) {
      for (int p = 0; p < o.parts; ++p) touches.push_back({PlaceOf(o, p, node.turn, node.lane, in_place), i, false});
    }
    for (const Operand& o : node.op->dst) {
      for (int p = 0; p < o.parts && !onto_itself(o); ++p) {
        touches.push_back({PlaceOf(o, p, node.turn, node.lane, in_place), i, true});
      }
    }
    AddPublications(i, &touches);
  }
  std::sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) { return a.place < b.place; });
  return touches;
}

std::string Model::NameOf(int node) const {
  const Node& n = nodes_[node];
  return (n.op == nullptr ? "the user" : "op " + std::to_string(n.op->id)) + " of rank " + std::to_string(n.rank) +
         " turn " + std::to_string(n.turn);
}

std::string Model::FindRace(uint32_t in_place) const {
  const std::vector<Touch> touches = Touches(in_place);
  for (size_t i = 0; i < touches.size(); ++i) {
    for (size_t k = i + 1; k < touches.size() && touches[k].place == touches[i].place; ++k) {
      const int a = touches[i].node, b = touches[k].node;
      if (!(touches[i].write || touches[k].write) || a == b || Before(a, b) || Before(b, a)) continue;
      return "race between " + NameOf(a) + " and " + NameOf(b);
    }
  }
  return std::string();
}

// A lane accesses a slot by itself and as one of all ranks', one of them a write, with no signal in between.
std::string Model::FindMixedWays() const {
  struct Way {
    bool to_all, write;
    auto operator<=>(const Way&) const = default;
  };
  std::map<std::pair<int, int>, int> signals;                             // [rank, lane]
  std::map<std::tuple<int, int, uint64_t, int>, std::set<Way>> accesses;  // [rank, lane, place, signals before]
  for (const Node& n : nodes_) {                                          // in the order of each lane
    if (n.op == nullptr) continue;
    const int now = signals[{n.rank, n.lane}] += n.op->kind == OpKind::kSignal;
    const auto note = [&](const Operand& o, int p, bool to_all, bool write) {
      accesses[{n.rank, n.lane, PlaceOf(o, p, n.turn, n.lane, 0), now}].insert({to_all, write});
    };
    for (const Operand& o : n.op->src) {
      for (int p = 0; o.buffer == Buffer::kScratch && p < o.parts; ++p)
        note(o, p, lowered_.in_any_order.count(n.op->id) != 0, false);
    }
    for (const Operand& o : n.op->dst) {
      for (int p = 0; o.buffer == Buffer::kScratch && p < o.parts; ++p)
        note(o, p, lowered_.stored_to_all.count({n.op->id, o.part + p}) != 0, true);
    }
  }
  for (const auto& [at, ways] : accesses) {
    const bool alone = ways.count({false, false}) + ways.count({false, true}) != 0;
    const bool to_all = ways.count({true, false}) + ways.count({true, true}) != 0;
    const bool writes = ways.count({false, true}) + ways.count({true, true}) != 0;
    if (alone && to_all && writes) return "a lane of rank " + std::to_string(std::get<0>(at)) + " mixes both ways";
  }
  return std::string();
}

std::map<uint32_t, Op> Model::DataOps() const {
  std::map<uint32_t, Op> ops;
  for (const Node& node : nodes_) {
    if (node.op != nullptr && (node.op->kind == OpKind::kCopy || node.op->kind == OpKind::kReduce))
      ops[node.op->id] = *node.op;
  }
  return ops;
}

bool Model::KeepsOrderOf(Model* other, std::string* why) {
  if (!fault_.empty() || !other->fault_.empty()) return *why = fault_ + other->fault_, false;
  std::unordered_map<uint64_t, int> named;
  for (size_t i = 0; i < nodes_.size(); ++i) named[nodes_[i].name] = static_cast<int>(i);
  if (DataOps() != other->DataOps()) return *why = "its data operations differ", false;
  const std::vector<Touch> touches = other->Touches(~0u);
  for (size_t i = 0; i < touches.size(); ++i) {
    for (size_t k = i + 1; k < touches.size() && touches[k].place == touches[i].place; ++k) {
      int a = touches[i].node, b = touches[k].node;
      if (!(touches[i].write || touches[k].write) || a == b) continue;
      if (!other->Before(a, b)) std::swap(a, b);
      const auto from = named.find(other->nodes_[a].name), to = named.find(other->nodes_[b].name);
      if (from != named.end() && to != named.end() && Before(from->second, to->second)) continue;
      *why = other->NameOf(a) + " no longer comes before " + other->NameOf(b);
      return false;
    }
  }
  if (s_.contract.kind != Kind::kBarrier || Complete()) return true;
  *why = "a rank may leave before another came";
  return false;
}

int Model::Expression(const std::vector<int>& terms) {
  return expressions_.try_emplace(terms, static_cast<int>(expressions_.size()) + 1000).first->second;
}

// The value of an operand. `store`: it is stored as it is, which rounds a contribution.
Model::Value Model::Load(const Memory& memory, const Operand& o, int part, const Node& node, uint32_t in_place,
                         bool store) {
  const bool reduces = plan::Reduces(s_.contract.kind);
  const auto it = memory.find(PlaceOf(o, part, node.turn, node.lane, in_place));
  if (it == memory.end()) return Value();
  Value v = it->second;
  if (!reduces) {
    // An output that no operation wrote is undefined, although in place it happens to hold the input.
    if (v.raw && o.buffer != Buffer::kInput) return Value();
    v.raw = false;
    return v;
  }
  // An input is scaled when it is read, which is right only for what the user left there, and only there.
  if (v.raw != (o.buffer == Buffer::kInput)) return Value();
  v.raw = false;
  if (store && v.expression < 1000) v.expression = Expression({v.expression});
  return v;
}

Model::Value Model::Combined(const std::vector<Value>& terms, int mark) {
  Value sum = terms[0];
  std::vector<int> expression;
  for (size_t i = 0; i < terms.size(); ++i) {
    const Value& t = terms[i];
    if (t.expression == 0 || t.finished != 0 || t.block != sum.block || t.part != sum.part) return Value();
    if (i > 0) sum.counts += t.counts;
    expression.push_back(t.expression);
  }
  if (mark != 0) expression.push_back(mark);
  if (terms.size() > 1) sum.expression = Expression(expression);
  return sum;
}

void Model::ExecuteOp(const Node& node, uint32_t in_place, Memory* memory,
                      std::map<uint32_t, std::vector<uint64_t>>* results) {
  const Op& op = *node.op;
  std::vector<std::pair<uint64_t, Value>> stores;
  for (int p = 0; p < op.src[0].parts; ++p) {
    std::vector<Value> terms;
    for (const Operand& o : op.src) terms.push_back(Load(*memory, o, p, node, in_place, op.src.size() == 1));
    const int mark = lowered_.in_any_order.count(op.id) != 0 ? -1 - static_cast<int>(op.id) : 0;
    Value v = op.kind == OpKind::kReduce ? Combined(terms, mark) : terms[0];
    v.finished += op.finish;
    // A factor of the result comes after the rounding if another operation has stored the fold.
    if (op.finish && terms.size() == 1 && s_.contract.ranks > 1 && v.expression != 0)
      v.expression = Expression({v.expression, std::numeric_limits<int>::min()});
    for (const Operand& o : op.dst) stores.push_back({PlaceOf(o, p, node.turn, node.lane, in_place), v});
    (*results)[op.id].insert((*results)[op.id].end(), {v.counts, static_cast<uint64_t>(v.block * 65536 + v.part),
                                                       static_cast<uint64_t>(v.finished), v.expression != 0});
  }
  std::set<uint64_t> once;
  for (auto& [place, value] : stores) (*memory)[place] = once.insert(place).second ? value : Value();
}

// Runs one turn of all lanes, in the order found.
Model::Memory Model::Execute(uint32_t in_place, std::map<uint32_t, std::vector<uint64_t>>* results) {
  Memory memory;
  for (int r = 0; r < s_.contract.ranks; ++r) {
    for (int b = 0; b < plan::InputBlocks(s_.contract, r); ++b) {
      for (int l = 0; l < s_.lanes; ++l) {
        for (int p = 0; p < s_.parts; ++p) {
          const Operand o = {Buffer::kInput, static_cast<uint16_t>(r), static_cast<uint16_t>(b), 0, 1};
          memory[PlaceOf(o, p, 0, l, in_place)] = {uint64_t{1} << (4 * r), b, p, 0, r + 1, true};
        }
      }
    }
  }
  for (int i : order_) {
    const Node& node = nodes_[i];
    const bool data = node.op != nullptr && (node.op->kind == OpKind::kCopy || node.op->kind == OpKind::kReduce);
    if (data && node.turn == 0) ExecuteOp(node, in_place, &memory, results);
  }
  return memory;
}

bool Model::IsExpected(const Value& v, int rank, int block, int part) const {
  const Contract& c = s_.contract;
  if (v.expression == 0 || v.part != part) return false;
  if (plan::Reduces(c.kind)) {
    const int from = c.kind == Kind::kReduceScatter ? rank : 0;
    return v.counts == Full(c.ranks) && v.finished == 1 && v.block == from && !v.raw;
  }
  const bool by_block = c.kind == Kind::kAllGather || c.kind == Kind::kGather || c.kind == Kind::kAllToAll;
  const bool by_rank = c.kind == Kind::kAllToAll || c.kind == Kind::kScatter;
  return v.counts == uint64_t{1} << (4 * (by_block ? block : c.root)) && v.block == (by_rank ? rank : 0);
}

std::string Model::FindWrongOutput(uint32_t in_place) {
  std::map<uint32_t, std::vector<uint64_t>> results;
  const Memory memory = Execute(in_place, &results);
  for (int r = 0; r < s_.contract.ranks; ++r) {
    for (int b = 0; b < plan::OutputBlocks(s_.contract, r); ++b) {
      for (int l = 0; l < s_.lanes; ++l) {
        for (int p = 0; p < s_.parts; ++p) {
          const Operand o = {Buffer::kOutput, static_cast<uint16_t>(r), static_cast<uint16_t>(b), 0, 1};
          const auto it = memory.find(PlaceOf(o, p, 0, l, in_place));
          if (it == memory.end() || !IsExpected(it->second, r, b, p)) {
            return "wrong output of rank " + std::to_string(r) + " block " + std::to_string(b) + " part " +
                   std::to_string(p) + " in place " + std::to_string(in_place);
          }
        }
      }
    }
  }
  return FindWrongBits(memory);
}

std::string Model::FindWrongBits(const Memory& memory) const {
  if (s_.contract.kind != Kind::kAllReduce) return std::string();
  std::map<std::pair<int, int>, std::set<int>> expressions;
  for (const auto& [place, value] : memory) {
    if (place >> 60 == 2) expressions[{place >> 32 & 0xfff, place & 0xffff}].insert(value.expression);
  }
  for (const auto& [at, set] : expressions) {
    if (set.size() != 1) return "ranks get different bits";
  }
  return std::string();
}

bool Model::Complete() const {
  const auto in_first_turn = [this](size_t i, int rank, int lane) {
    const Node& n = nodes_[i];
    return n.op != nullptr && n.turn == 0 && n.rank == rank && (joined_ || n.lane == lane);
  };
  // Lanes of a direct schedule begin and end together.
  const auto follows = [&](int r, int q, int lane) {
    for (size_t a = 0; a < nodes_.size(); ++a) {
      if (!in_first_turn(a, q, lane)) continue;
      for (size_t b = 0; b < nodes_.size(); ++b) {
        if (in_first_turn(b, r, lane) && Before(static_cast<int>(a), static_cast<int>(b))) return true;
      }
    }
    return false;
  };
  for (int r = 0; r < s_.contract.ranks; ++r) {
    for (int q = 0; q < s_.contract.ranks; ++q) {
      for (int l = 0; q != r && l < s_.lanes; ++l) {
        if (!follows(r, q, l)) return false;
      }
    }
  }
  return true;
}

bool Model::InGroupOrder() {
  const int n = s_.contract.ranks;
  if (!plan::Reduces(s_.contract.kind)) return true;
  std::map<uint32_t, std::vector<uint64_t>> results;
  const Memory memory = Execute(0, &results);
  std::set<int> right;
  for (const auto& [terms, number] : expressions_) {
    bool ascending = terms.size() == static_cast<size_t>(n);
    for (int r = 0; ascending && r < n; ++r) {
      const auto stored = expressions_.find({r + 1});
      const int term = terms[static_cast<size_t>(r)];
      ascending = term == r + 1 || (stored != expressions_.end() && term == stored->second);
    }
    if (ascending) right.insert(number);
  }
  return std::all_of(memory.begin(), memory.end(), [&](const auto& at) {
    return at.first >> 60 != 2 || at.second.finished == 0 || right.count(at.second.expression) != 0;
  });
}

std::string Model::FindFault() {
  if (!fault_.empty()) return fault_;
  for (uint32_t in_place : {0u, ~0u}) {
    if (std::string race = FindRace(in_place); !race.empty()) return race;
  }
  if (std::string mixed = FindMixedWays(); !mixed.empty()) return mixed;
  if (std::string unpublished = FindUnpublished(); !unpublished.empty()) return unpublished;
  std::set<uint32_t> mixtures = {0u, ~0u, 0x5555u, 0xaaaau};
  for (int r = 0; r < s_.contract.ranks; ++r) mixtures.insert(1u << r);
  for (uint32_t m = 0; s_.contract.ranks <= 4 && m < 1u << s_.contract.ranks; ++m) mixtures.insert(m);
  for (uint32_t in_place : mixtures) {
    if (std::string wrong = FindWrongOutput(in_place); !wrong.empty()) return wrong;
  }
  return s_.contract.kind == Kind::kBarrier && !Complete() ? "a rank may leave before another came" : "";
}

std::map<uint32_t, std::vector<uint64_t>> Model::Results() {
  std::map<uint32_t, std::vector<uint64_t>> results;
  Execute(0, &results);
  return results;
}

}  // namespace axccl::verify
