// Branches, calls, returns, ends.
#include <algorithm>
#include <cstring>

#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

void RunBranch(Warp& w, const Instr& in, uint32_t lanes) {
  w.looped |= in.target < w.pc;
  if (lanes != w.active) {
    w.Detach(lanes, in.target);
    return;
  }
  w.pc = in.target;
  if (w.diverged()) w.stop = 0;
}

bool DecodeBranch(Decoder& decoder) {
  decoder.Take("uni");
  decoder.Emit(RunBranch);
  return true;
}

// target: the table.
void RunBranchTable(Warp& w, const Instr& in, uint32_t lanes) {
  const std::vector<uint32_t>& table = w.program->ProcedureAt(w.pc).branch_tables[in.target];
  const uint64_t* const index = w.In(in.a);
  ForLanes(lanes, [&](uint32_t i) {
    const uint32_t chosen = static_cast<uint32_t>(index[i]);
    if (chosen >= table.size()) {
      w.Fail(in, i, "index " + std::to_string(chosen) + " is beyond the " + std::to_string(table.size()) + " targets");
      return;
    }
    w.looped |= table[chosen] < w.pc;
    w.Detach(1u << i, table[chosen]);
  });
}

bool DecodeBranchTable(Decoder& decoder) {
  if (!decoder.Take("idx")) return false;
  decoder.Take("uni");
  const ColumnId a = decoder.Source(0, Type::kU32);
  decoder.procedure().branch_tables.emplace_back();
  Instr& in = decoder.Emit(RunBranchTable);
  in.a = a;
  in.target = static_cast<uint32_t>(decoder.procedure().branch_tables.size() - 1);
  return true;
}

std::byte* LocalOf(Warp& w, uint32_t lane) {
  return w.block->local + uint64_t{w.index * kWarpLanes + lane} * w.block->local_stride;
}

// The values that a call passes, on their way between two places.
using Passed = std::vector<std::byte>;

Passed ReadPassed(Warp& w, uint32_t lane, const Passing& from) {
  Passed value(from.bytes == 0 ? sizeof(uint64_t) : from.bytes);
  if (from.bytes == 0) {
    std::memcpy(value.data(), &w.In(from.from)[lane], sizeof(uint64_t));
  } else {
    std::memcpy(value.data(), LocalOf(w, lane) + from.from, from.bytes);
  }
  return value;
}

void WritePassed(Warp& w, uint32_t lane, const Passing& to, const Passed& value) {
  if (to.bytes == 0) {
    uint64_t bits = 0;
    std::memcpy(&bits, value.data(), std::min(value.size(), sizeof bits));
    w.Out(to.to)[lane] = bits;
  } else {
    std::memcpy(LocalOf(w, lane) + to.to, value.data(), std::min<size_t>(value.size(), to.bytes));
  }
}

// From places to others that are not the same.
void PassAll(Warp& w, uint32_t lane, const std::vector<Passing>& from, const std::vector<Passing>& to) {
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (from[i].bytes == 0 && to[i].bytes == 0) {
      w.Out(to[i].to)[lane] = w.In(from[i].from)[lane];
    } else if (from[i].bytes != 0 && to[i].bytes != 0) {
      std::memcpy(LocalOf(w, lane) + to[i].to, LocalOf(w, lane) + from[i].from, std::min(from[i].bytes, to[i].bytes));
    } else {
      WritePassed(w, lane, to[i], ReadPassed(w, lane, from[i]));
    }
  }
}

std::vector<Passed> ReadAll(Warp& w, uint32_t lane, const std::vector<Passing>& places) {
  std::vector<Passed> values;
  for (const Passing& place : places) values.push_back(ReadPassed(w, lane, place));
  return values;
}

void WriteAll(Warp& w, uint32_t lane, const std::vector<Passing>& places, const std::vector<Passed>& values) {
  for (size_t i = 0; i < std::min(places.size(), values.size()); ++i) WritePassed(w, lane, places[i], values[i]);
}

void Save(Warp& w, uint32_t lane, const Procedure& procedure, Frame* frame) {
  for (ColumnId at = procedure.first_value; at < procedure.last_value; at += static_cast<ColumnId>(kWarpLanes))
    frame->saved.push_back(w.Out(at)[lane]);
  for (uint32_t p = procedure.first_predicate; p < procedure.last_predicate; ++p)
    frame->saved.push_back(w.predicates[p] >> lane & 1);
  const std::byte* const local = LocalOf(w, lane);
  frame->saved_local.assign(local + procedure.local_begin, local + procedure.local_end);
}

void Restore(Warp& w, uint32_t lane, const Procedure& procedure, const Frame& frame) {
  size_t next = 0;
  for (ColumnId at = procedure.first_value; at < procedure.last_value; at += static_cast<ColumnId>(kWarpLanes))
    w.Out(at)[lane] = frame.saved[next++];
  for (uint32_t p = procedure.first_predicate; p < procedure.last_predicate; ++p)
    w.SetPredicate(p, 1u << lane, frame.saved[next++] != 0 ? kAllLanes : 0);
  std::copy(frame.saved_local.begin(), frame.saved_local.end(), LocalOf(w, lane) + procedure.local_begin);
}

// Deep enough for any real recursion, and small enough to stop an endless one.
constexpr size_t kDeepestCall = 4096;

void Enter(Warp& w, const Instr& in, uint32_t lane, const CallSite& call, const Procedure& procedure) {
  std::vector<Frame>& stack = w.frames[lane];
  if (stack.size() >= kDeepestCall) {
    w.Fail(in, lane, "calls are nested too deeply");
    return;
  }
  Frame& frame = stack.emplace_back();
  frame.return_to = w.pc;
  frame.call = &call;
  frame.procedure = &procedure;
  w.FillSpecials(procedure, lane);
  if (!procedure.recursive) return PassAll(w, lane, call.arguments, procedure.parameters);
  const std::vector<Passed> arguments = ReadAll(w, lane, call.arguments);
  Save(w, lane, procedure, &frame);
  WriteAll(w, lane, procedure.parameters, arguments);
}

void RunCall(Warp& w, const Instr& in, uint32_t lanes) {
  if (w.frames.empty()) w.frames.resize(kWarpLanes);
  const CallSite& call = w.program->ProcedureAt(w.pc).calls[in.target];
  const uint64_t* const address = w.In(in.a);
  std::string error;
  ForLanes(lanes, [&](uint32_t i) {
    int32_t index = call.procedure;
    if (index < 0) {
      const auto& procedures = w.program->procedures;
      const auto found = std::find_if(procedures.begin(), procedures.end(), [&](const Procedure& procedure) {
        return reinterpret_cast<uintptr_t>(procedure.function) == address[i];
      });
      if (found == procedures.end()) {
        w.Fail(in, i, "the address called is of no function");
        return;
      }
      index = static_cast<int32_t>(found - procedures.begin());
    }
    const Procedure* const procedure = w.program->Ready(index, &error);
    if (procedure == nullptr) {
      w.Fail(in, i, error);
      return;
    }
    Enter(w, in, i, call, *procedure);
    w.Detach(1u << i, procedure->entry);
  });
}

void RunReturn(Warp& w, const Instr&, uint32_t lanes) {
  uint32_t ended = 0;
  ForLanes(lanes, [&](uint32_t i) {
    if (w.frames.empty() || w.frames[i].empty()) {
      ended |= 1u << i;
      return;
    }
    const Frame frame = std::move(w.frames[i].back());
    w.frames[i].pop_back();
    w.Detach(1u << i, frame.return_to);
    if (!frame.procedure->recursive) return PassAll(w, i, frame.procedure->results, frame.call->results);
    const std::vector<Passed> results = ReadAll(w, i, frame.procedure->results);
    Restore(w, i, *frame.procedure, frame);
    WriteAll(w, i, frame.call->results, results);
  });
  if (ended != 0) w.Exit(ended);
}

// Functions that the driver provides.
enum class External : uint8_t { kAssert, kPrint, kUnknown };

void RunExternal(Warp& w, const Instr& in, uint32_t lanes) {
  const CallSite& call = w.program->ProcedureAt(w.pc).calls[in.target];
  const uint32_t first = static_cast<uint32_t>(std::countr_zero(lanes));
  if (static_cast<External>(in.kind) == External::kUnknown) {
    w.Fail(in, first, "the function has no body");
    return;
  }
  if (static_cast<External>(in.kind) == External::kAssert) {
    const std::vector<Passed> arguments = ReadAll(w, first, call.arguments);
    uint64_t condition = 0;
    std::memcpy(&condition, arguments[0].data(), std::min<size_t>(8, arguments[0].size()));
    w.Fail(in, first, std::string("assertion failed: ") + reinterpret_cast<const char*>(condition));
    return;
  }
  ForLanes(lanes, [&](uint32_t i) {
    for (const Passing& result : call.results) WritePassed(w, i, result, Passed(8));
  });
}

bool DecodeCall(Decoder& decoder) {
  decoder.Take("uni");
  const OperandIr& callee = decoder.operand(0);
  CallSite site;
  const FunctionIr* function = nullptr;
  Handler run = RunCall;
  External external = External::kUnknown;
  ColumnId address = kSinkColumn;
  if (callee.kind == OperandIr::kFunction) {
    function = decoder.places().FunctionNamed(callee.name);
    if (!function->has_body) {
      run = RunExternal;
      if (callee.name == "__assertfail") external = External::kAssert;
      if (callee.name == "vprintf") external = External::kPrint;
      function = nullptr;
    }
  } else {
    address = decoder.Source(0, Type::kB64);
  }
  if (!decoder.BuildCall(&site, function)) return false;
  decoder.procedure().calls.push_back(std::move(site));
  Instr& in = decoder.Emit(run);
  in.a = address;
  in.target = static_cast<uint32_t>(decoder.procedure().calls.size() - 1);
  in.kind = static_cast<uint8_t>(external);
  return true;
}

bool DecodeReturn(Decoder& decoder) {
  decoder.Take("uni");
  decoder.Emit(RunReturn);
  return true;
}

void RunExit(Warp& w, const Instr&, uint32_t lanes) { w.Exit(lanes); }

bool DecodeExit(Decoder& decoder) {
  decoder.Emit(RunExit);
  return true;
}

void RunTrap(Warp& w, const Instr& in, uint32_t lanes) {
  w.Fail(in, static_cast<uint32_t>(std::countr_zero(lanes)), "the thread trapped");
}

bool DecodeTrap(Decoder& decoder) {
  decoder.Emit(RunTrap);
  return true;
}

void RunSleep(Warp& w, const Instr&, uint32_t) {
  w.slept = true;
  w.Yield();
}

bool DecodeSleep(Decoder& decoder) {
  decoder.TakeType();
  decoder.Emit(RunSleep);
  return true;
}

// Launch order of dependent grids, register budgets and profiler events have no effect here.
bool DecodeNothing(Decoder& decoder) {
  decoder.TakeStartingWith("");
  return true;
}

constexpr OpcodeRow kRows[] = {
    {"bra", DecodeBranch},      {"brx", DecodeBranchTable},    {"call", DecodeCall},
    {"ret", DecodeReturn},      {"exit", DecodeExit},          {"trap", DecodeTrap},
    {"brkpt", DecodeNothing},   {"nanosleep", DecodeSleep},    {"griddepcontrol", DecodeNothing},
    {"pmevent", DecodeNothing}, {"setmaxnreg", DecodeNothing},
};

}  // namespace

std::span<const OpcodeRow> ControlOpcodes() { return kRows; }

}  // namespace softgpu::engine
