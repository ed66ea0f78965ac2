#include "src/algo/builder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "src/plan/walk.h"

namespace axccl::algo {

using plan::Lane;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

void Insert(RankSet* set, int rank) { (*set)[rank / 64] |= uint64_t{1} << (rank % 64); }
void Merge(RankSet* set, const RankSet& other) {
  for (size_t i = 0; i < other.size(); ++i) (*set)[i] |= other[i];
}

struct SlotUsers {
  std::set<int> writers;
  std::set<int> readers;
};

// The writers and readers of each slot, by (owner, slot).
std::map<std::pair<int, int>, SlotUsers> CollectSlotUsers(const std::vector<Lane>& program) {
  std::map<std::pair<int, int>, SlotUsers> users;
  const auto each = [&](const std::vector<Operand>& operands, int rank, std::set<int> SlotUsers::*role) {
    for (const Operand& o : operands) {
      if (!plan::IsSlot(o)) continue;
      plan::ForEachRank(o, static_cast<int>(program.size()), [&](const Operand& one) {
        for (int i = 0; i < one.parts; ++i) (users[{one.rank, one.part + i}].*role).insert(rank);
      });
    }
  };
  for (size_t r = 0; r < program.size(); ++r) {
    for (const Op& op : program[r].ops) {
      each(op.dst, static_cast<int>(r), &SlotUsers::writers);
      each(op.src, static_cast<int>(r), &SlotUsers::readers);
    }
  }
  return users;
}

// Tracks which ranks' beginnings each rank knows of.
struct Knowledge {
  using Carried = std::shared_ptr<const RankSet>;

  // All signals of a rank between two of its waits carry the same set.
  Carried Signal(uint32_t rank, const Op&) {
    if (!carries[rank]) carries[rank] = std::make_shared<const RankSet>(known[rank]);
    return carries[rank];
  }
  void Pass(uint32_t rank, const Op&, const Carried& carried) {
    Merge(&known[rank], *carried);
    carries[rank] = nullptr;
  }
  void Move(uint32_t, const Op&) {}

  std::vector<RankSet> known;
  std::vector<Carried> carries;
};

Op MakeSync(OpKind kind, int peer, int endpoint, int value) {
  Op op;
  op.kind = kind;
  op.peer = static_cast<int16_t>(peer);
  op.endpoint = static_cast<uint16_t>(endpoint);
  op.value = static_cast<uint16_t>(value);
  return op;
}

}  // namespace

std::vector<RankSet> KnownBegins(const std::vector<const Lane*>& program) {
  const int n = static_cast<int>(program.size());
  Knowledge knowledge{std::vector<RankSet>(n, RankSet((n + 63) / 64, 0)), std::vector<Knowledge::Carried>(n)};
  for (int r = 0; r < n; ++r) Insert(&knowledge.known[r], r);
  plan::FollowTurn(program, 1, &knowledge);
  return std::move(knowledge.known);
}

bool AllContainAll(const std::vector<RankSet>& sets) {
  for (const RankSet& set : sets) {
    for (size_t r = 0; r < sets.size(); ++r) {
      if (!Contains(set, static_cast<int>(r))) return false;
    }
  }
  return true;
}

Builder::Builder(const plan::Contract& contract, std::string_view algorithm, int parts, std::span<const int> only)
    : contract_(contract),
      algorithm_(algorithm),
      parts_(parts),
      programmed_(only.begin(), only.end()),
      program_(contract.ranks) {
  if (!programmed_.empty()) return;
  programmed_.resize(static_cast<size_t>(contract.ranks));
  std::iota(programmed_.begin(), programmed_.end(), 0);
}

void Builder::Copy(int rank, std::vector<Operand> dst, Operand src, State state) {
  Op op;
  op.kind = OpKind::kCopy;
  op.finish = state == State::kFinal;
  op.dst = std::move(dst);
  op.src = {src};
  program_[rank].ops.push_back(std::move(op));
}

void Builder::Reduce(int rank, std::vector<Operand> dst, std::vector<Operand> src, State state) {
  Op op;
  op.kind = OpKind::kReduce;
  op.finish = state == State::kFinal;
  op.dst = std::move(dst);
  op.src = std::move(src);
  program_[rank].ops.push_back(std::move(op));
}

void Builder::Signal(int rank, int peer, int endpoint) {
  program_[rank].ops.push_back(MakeSync(OpKind::kSignal, peer, endpoint, 0));
}

void Builder::Wait(int rank, int source, int endpoint, int value) {
  program_[rank].ops.push_back(MakeSync(OpKind::kWait, source, endpoint, value));
}

void Builder::WaitAll(int rank, int endpoint, int value) {
  for (int q = 0; q < ranks(); ++q) {
    if (q != rank) Wait(rank, q, endpoint, value);
  }
}

void Builder::WaitToken(int rank, int from_lane, int endpoint) {
  Wait(rank, rank, endpoint);
  program_[rank].ops.back().from_lane = static_cast<uint16_t>(from_lane);
}

void Builder::AddCredits() {
  std::set<std::pair<int, int>> credits;  // (reader, writer)
  std::vector<const Lane*> program;
  for (const Lane& lane : program_) program.push_back(&lane);
  const std::vector<RankSet> known = KnownBegins(program);
  if (AllContainAll(known)) return;
  for (const auto& [slot, users] : CollectSlotUsers(program_)) {
    for (int w : users.writers) {
      for (int r : users.readers) {
        if (!Contains(known[w], r)) credits.insert({r, w});
      }
    }
  }
  std::vector<int> endpoint(ranks(), 0);  // the first that the rank does not use for data
  for (int r = 0; r < ranks(); ++r) {
    for (const Op& op : program_[r].ops) {
      if (op.kind == OpKind::kSignal) endpoint[r] = std::max(endpoint[r], op.endpoint + 1);
    }
  }
  std::vector<int> given(ranks(), 0);
  for (const auto& [reader, writer] : credits) {
    const int e = endpoint[reader] + given[reader];
    auto& ops = program_[reader].ops;
    ops.insert(ops.begin() + given[reader]++, MakeSync(OpKind::kSignal, writer, e, 0));
    Wait(writer, reader, e);
  }
}

Schedule Builder::Empty() const {
  Schedule s;
  s.algorithm = std::string(algorithm_);
  s.contract = contract_;
  s.parts = static_cast<uint16_t>(parts_);
  s.lanes = 0;
  s.program.resize(ranks());
  return s;
}

void Builder::MoveTo(Schedule* schedule) {
  for (int r = 0; r < ranks(); ++r) {
    schedule->program[r].push_back(std::move(program_[r]));
    program_[r] = Lane();
  }
  ++schedule->lanes;
}

void Builder::Seal(Schedule* schedule) const {
  uint32_t id = 0;
  int slots = 0, endpoints = 0;
  for (auto& lanes : schedule->program) {
    for (size_t l = 0; l < lanes.size(); ++l) {
      for (Op& op : lanes[l].ops) {
        op.id = id++;
        if (op.kind == OpKind::kSignal) endpoints = std::max(endpoints, op.endpoint + 1);
        if (op.kind == OpKind::kWait && op.peer != static_cast<int>(&lanes - schedule->program.data())) {
          op.from_lane = static_cast<uint16_t>(l);
        }
        for (const auto* operands : {&op.dst, &op.src}) {
          for (const Operand& o : *operands) {
            if (plan::IsSlot(o)) slots = std::max(slots, o.part + o.parts);
          }
        }
      }
    }
  }
  schedule->slots = static_cast<uint16_t>(slots);
  schedule->endpoints = static_cast<uint16_t>(endpoints);
  schedule->inline_endpoint.assign(slots, -1);
  for (const InlineSlot& i : inline_slots_) schedule->inline_endpoint[i.slot] = static_cast<int16_t>(i.endpoint);
}

Schedule Builder::Build(int lanes) {
  if (static_cast<int>(programmed_.size()) == ranks()) AddCredits();
  Schedule schedule = Empty();
  for (int l = 1; l < lanes; ++l) {
    std::vector<Lane> pattern = program_;
    MoveTo(&schedule);
    program_ = std::move(pattern);
  }
  MoveTo(&schedule);
  Seal(&schedule);
  return schedule;
}

}  // namespace axccl::algo
