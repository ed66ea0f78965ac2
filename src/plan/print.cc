#include <charconv>

#include "src/plan/text.h"

namespace axccl::plan {

namespace {

void AddNumber(std::string* out, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out->append(digits, end);
}

void AddField(std::string* out, const char* key, int64_t value) {
  *out += key;
  *out += ' ';
  AddNumber(out, value);
  *out += '\n';
}

void AddOperand(std::string* out, const Operand& o) {
  *out += o.buffer == Buffer::kInput ? " in[" : o.buffer == Buffer::kOutput ? " out[" : " slot[";
  if (o.buffer == Buffer::kMulticast) {
    *out += "all";
  } else {
    AddNumber(out, o.rank);
  }
  *out += "].";
  if (!IsSlot(o)) {
    AddNumber(out, o.block);
    *out += '.';
  }
  AddNumber(out, o.part);
  if (o.parts != 1) {
    *out += ':';
    AddNumber(out, o.parts);
  }
}

void AddData(std::string* out, const Op& op) {
  *out += op.kind == OpKind::kCopy ? "copy" : "reduce";
  if (op.finish) *out += " finish";
  for (const Operand& o : op.dst) AddOperand(out, o);
  *out += " <-";
  for (const Operand& o : op.src) AddOperand(out, o);
}

void AddSync(std::string* out, const Op& op, int lane) {
  *out += op.kind == OpKind::kSignal ? "signal " : "wait ";
  if (op.peer == kAllPeers) {
    *out += "all";
  } else {
    AddNumber(out, op.peer);
  }
  if (op.kind == OpKind::kWait && op.from_lane != lane) {
    *out += " l";
    AddNumber(out, op.from_lane);
  }
  *out += " e";
  AddNumber(out, op.endpoint);
  if (op.kind == OpKind::kWait) {
    *out += " v";
    AddNumber(out, op.value);
  }
}

void AddNotify(std::string* out, const Op& op, int rank) {
  *out += "notify ";
  AddNumber(out, op.chunk);
  if (op.peer == rank) return;
  *out += " at ";
  AddNumber(out, op.peer);
}

void AddOp(std::string* out, const Op& op, int rank, int lane) {
  *out += '#';
  AddNumber(out, op.id);
  *out += ' ';
  switch (op.kind) {
    case OpKind::kCopy:
    case OpKind::kReduce:
      return AddData(out, op);
    case OpKind::kSignal:
    case OpKind::kWait:
      return AddSync(out, op, lane);
    case OpKind::kNop:
      *out += "nop";
      return;
    case OpKind::kAwait:
      *out += "await ";
      return AddNumber(out, op.chunk);
    case OpKind::kNotify:
      return AddNotify(out, op, rank);
  }
}

void AddHeader(std::string* out, const Schedule& s) {
  AddField(out, "axccl-plan", s.slices == 0 ? kTextVersion : kSlicedTextVersion);
  *out += "algorithm " + s.algorithm + "\nkind " + KindName(s.contract.kind) + "\n";
  AddField(out, "ranks", s.contract.ranks);
  AddField(out, "root", s.contract.root);
  if (!s.placement.is_flat()) {
    *out += "machines";
    for (int r = 0; r < s.placement.ranks(); ++r) {
      *out += ' ';
      AddNumber(out, s.placement.MachineOf(r));
    }
    *out += '\n';
  }
  AddField(out, "parts", s.parts);
  if (s.slices != 0) {
    AddField(out, "slices", s.slices);
    *out += s.produced ? "produced yes\n" : "produced no\n";
  }
  AddField(out, "lanes", s.lanes);
  AddField(out, "slots", s.slots);
  AddField(out, "endpoints", s.endpoints);
  *out += s.direct ? "direct yes\n" : "direct no\n";
  *out += "inline";
  for (const int16_t endpoint : s.inline_endpoint) {
    *out += ' ';
    if (endpoint < 0) {
      *out += '-';
    } else {
      AddNumber(out, endpoint);
    }
  }
  *out += '\n';
}

}  // namespace

bool IsAlgorithmName(std::string_view name) {
  if (name.empty() || name.size() > kMaxAlgorithmName) return false;
  for (const char c : name) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-')) return false;
  }
  return true;
}

std::string Print(const Op& op, int rank, int lane) {
  std::string out;
  AddOp(&out, op, rank, lane);
  return out;
}

std::string Print(const Schedule& schedule) {
  std::string out;
  AddHeader(&out, schedule);
  for (size_t r = 0; r < schedule.program.size(); ++r) {
    for (size_t l = 0; l < schedule.program[r].size(); ++l) {
      out += "rank ";
      AddNumber(&out, static_cast<int64_t>(r));
      AddField(&out, " lane", static_cast<int64_t>(l));
      for (const Op& op : schedule.program[r][l].ops) {
        AddOp(&out, op, static_cast<int>(r), static_cast<int>(l));
        out += '\n';
      }
    }
  }
  return out;
}

}  // namespace axccl::plan
