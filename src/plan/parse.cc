#include <algorithm>
#include <limits>
#include <utility>

#include "src/base/text_reader.h"
#include "src/plan/text.h"

namespace axccl::plan {

namespace {

// An operation stores its peer as a signed 16-bit number.
constexpr uint64_t kMaxRanks = std::numeric_limits<int16_t>::max();
constexpr uint64_t kMax16 = std::numeric_limits<uint16_t>::max();
constexpr uint64_t kMax32 = std::numeric_limits<uint32_t>::max();

using Reader = TextReader;

template <class T>
bool ReadField(Reader* in, std::string_view key, uint64_t least, uint64_t most, T* value) {
  return in->Expect(key) && in->Expect(" ") && in->Number(least, most, value) && in->Expect("\n");
}

bool ReadName(Reader* in, std::string* name) {
  if (!in->Expect("algorithm ")) return false;
  const size_t mark = in->Mark();
  const std::string_view word = in->Word();
  if (!IsAlgorithmName(word)) {
    in->Back(mark);
    return in->Fail("expected the name of an algorithm ([a-z0-9_-], at most 32 characters)");
  }
  *name = std::string(word);
  return in->Expect("\n");
}

bool ReadKind(Reader* in, Kind* kind) {
  if (!in->Expect("kind ")) return false;
  const size_t mark = in->Mark();
  const std::string_view word = in->Word();
  if (!FindKind(word, kind)) {
    in->Back(mark);
    return in->Fail("expected the name of a collective, such as all_reduce");
  }
  return in->Expect("\n");
}

bool ReadInline(Reader* in, std::vector<int16_t>* endpoints) {
  if (!in->Expect("inline")) return false;
  while (in->Try(" ")) {
    int16_t endpoint = -1;
    if (!in->Try("-") && !in->Number(0, kMaxRanks, &endpoint)) return false;
    if (endpoints->size() == kMax16) return in->Fail("expected at most 65535 entries");
    endpoints->push_back(endpoint);
  }
  return in->Expect("\n");
}

// Reads one number for each rank. New numbers must count up from 0, and there must be more than one machine.
bool ReadMachines(Reader* in, int ranks, Placement* placement) {
  if (!in->Try("machines")) return true;
  std::vector<int> machine_of;
  int machines = 0;
  for (int r = 0; r < ranks; ++r) {
    int machine = 0;
    const int least = r + 1 == ranks && machines == 1 ? 1 : 0;
    if (!in->Expect(" ") || !in->Number(static_cast<uint64_t>(least), static_cast<uint64_t>(machines), &machine))
      return false;
    machine_of.push_back(machine);
    machines = std::max(machines, machine + 1);
  }
  if (machines < 2) return in->Fail("expected more than one machine");
  *placement = Placement::Of(machine_of);
  return in->Expect("\n");
}

bool ReadYesOrNo(Reader* in, std::string_view key, bool* yes) {
  if (!in->Expect(key)) return false;
  *yes = in->Try("yes");
  if (!*yes && !in->Try("no")) return in->Fail("expected 'yes' or 'no'");
  return in->Expect("\n");
}

bool ReadSlices(Reader* in, Schedule* s) {
  return ReadField(in, "slices", 1, kMax16, &s->slices) && ReadYesOrNo(in, "produced ", &s->produced);
}

bool ReadHeader(Reader* in, Schedule* s) {
  int version = 0;
  if (!ReadField(in, "axccl-plan", kTextVersion, kSlicedTextVersion, &version)) return false;
  if (!ReadName(in, &s->algorithm) || !ReadKind(in, &s->contract.kind)) return false;
  if (!ReadField(in, "ranks", 1, kMaxRanks, &s->contract.ranks)) return false;
  if (!ReadField(in, "root", 0, kMaxRanks - 1, &s->contract.root)) return false;
  if (!ReadMachines(in, s->contract.ranks, &s->placement)) return false;
  if (!ReadField(in, "parts", 1, kMax16, &s->parts)) return false;
  if (version == kSlicedTextVersion && !ReadSlices(in, s)) return false;
  if (!ReadField(in, "lanes", 1, kMax16, &s->lanes)) return false;
  if (!ReadField(in, "slots", 0, kMax16, &s->slots)) return false;
  if (!ReadField(in, "endpoints", 0, kMax16, &s->endpoints)) return false;
  return ReadYesOrNo(in, "direct ", &s->direct) && ReadInline(in, &s->inline_endpoint);
}

bool ReadOperand(Reader* in, const Schedule& s, Operand* o) {
  if (in->Try("in[")) {
    o->buffer = Buffer::kInput;
  } else if (in->Try("out[")) {
    o->buffer = Buffer::kOutput;
  } else if (in->Try("slot[all")) {
    o->buffer = Buffer::kMulticast;
  } else if (in->Try("slot[")) {
    o->buffer = Buffer::kScratch;
  } else {
    return in->Fail(
        "expected an operand: in[rank].block.part, out[rank].block.part, slot[rank].slot or slot[all].slot");
  }
  if (o->buffer != Buffer::kMulticast && !in->Number(0, s.contract.ranks - 1, &o->rank)) return false;
  if (!in->Expect("].")) return false;
  if (!IsSlot(*o) && (!in->Number(0, kMax16, &o->block) || !in->Expect("."))) return false;
  if (!in->Number(0, kMax16, &o->part)) return false;
  return !in->Try(":") || in->Number(2, kMax16, &o->parts);
}

bool ReadOperands(Reader* in, const Schedule& s, std::vector<Operand>* operands) {
  do {
    Operand o;
    if (!ReadOperand(in, s, &o)) return false;
    operands->push_back(o);
  } while (in->Try(" "));
  return true;
}

bool ReadData(Reader* in, const Schedule& s, Op* op) {
  op->finish = in->Try("finish ");
  do {
    Operand o;
    if (!ReadOperand(in, s, &o)) return false;
    op->dst.push_back(o);
    if (!in->Expect(" ")) return false;
  } while (!in->Try("<- "));
  return ReadOperands(in, s, &op->src);
}

bool ReadSignal(Reader* in, const Schedule& s, Op* op) {
  if (in->Try("all")) {
    op->peer = kAllPeers;
  } else if (!in->Number(0, s.contract.ranks - 1, &op->peer)) {
    return false;
  }
  return in->Expect(" e") && in->Number(0, kMax16, &op->endpoint);
}

bool ReadWait(Reader* in, const Schedule& s, int lane, Op* op) {
  op->from_lane = static_cast<uint16_t>(lane);
  if (!in->Number(0, s.contract.ranks - 1, &op->peer) || !in->Expect(" ")) return false;
  const size_t mark = in->Mark();
  if (in->Try("l")) {
    if (!in->Number(0, kMax16, &op->from_lane)) return false;
    if (op->from_lane == lane) {
      in->Back(mark);
      return in->Fail("expected the lane to be left out, because it is this lane");
    }
    if (!in->Expect(" ")) return false;
  }
  return in->Expect("e") && in->Number(0, kMax16, &op->endpoint) && in->Expect(" v") &&
         in->Number(1, kMax16, &op->value);
}

bool ReadNotify(Reader* in, const Schedule& s, int rank, Op* op) {
  if (!in->Number(0, kMax16, &op->chunk)) return false;
  op->peer = static_cast<int16_t>(rank);
  const size_t mark = in->Mark();
  if (!in->Try(" at ")) return true;
  if (!in->Number(0, s.contract.ranks - 1, &op->peer)) return false;
  if (op->peer != rank) return true;
  in->Back(mark);
  return in->Fail("expected the rank to be left out, because it is this rank");
}

bool ReadOp(Reader* in, const Schedule& s, int rank, int lane, Op* op) {
  if (!in->Number(0, kMax32, &op->id) || !in->Expect(" ")) return false;
  bool good = true;
  if (in->Try("copy ")) {
    op->kind = OpKind::kCopy;
    good = ReadData(in, s, op);
  } else if (in->Try("reduce ")) {
    op->kind = OpKind::kReduce;
    good = ReadData(in, s, op);
  } else if (in->Try("signal ")) {
    op->kind = OpKind::kSignal;
    good = ReadSignal(in, s, op);
  } else if (in->Try("wait ")) {
    op->kind = OpKind::kWait;
    good = ReadWait(in, s, lane, op);
  } else if (in->Try("nop")) {
    op->kind = OpKind::kNop;
  } else if (s.slices != 0 && in->Try("await ")) {
    op->kind = OpKind::kAwait;
    good = in->Number(0, kMax16, &op->chunk);
  } else if (s.slices != 0 && in->Try("notify ")) {
    op->kind = OpKind::kNotify;
    good = ReadNotify(in, s, rank, op);
  } else {
    good = in->Fail(s.slices == 0 ? "expected an operation: copy, reduce, signal, wait or nop"
                                  : "expected an operation: copy, reduce, signal, wait, nop, await or notify");
  }
  return good && in->Expect("\n");
}

bool ReadProgram(Reader* in, Schedule* s) {
  // Grows with the text, never to a size that the text merely claims.
  for (int r = 0; r < s->contract.ranks; ++r) {
    s->program.emplace_back();
    for (int l = 0; l < s->lanes; ++l) {
      if (!in->Expect("rank " + std::to_string(r) + " lane " + std::to_string(l) + "\n")) return false;
      Lane& lane = s->program.back().emplace_back();
      while (in->Try("#")) {
        Op op;
        if (!ReadOp(in, *s, r, l, &op)) return false;
        lane.ops.push_back(std::move(op));
      }
    }
  }
  return in->AtEnd() || in->Fail("expected an operation or the end of the text");
}

}  // namespace

Result<Schedule> Parse(std::string_view text) {
  Reader in("plan text", text);
  Schedule schedule;
  if (!ReadHeader(&in, &schedule) || !ReadProgram(&in, &schedule)) return in.status();
  return schedule;
}

}  // namespace axccl::plan
