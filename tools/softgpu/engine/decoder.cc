#include "tools/softgpu/engine/decoder.h"

#include <bit>
#include <unordered_map>

#include "tools/softgpu/engine/small_float.h"
#include "tools/softgpu/engine/special_register.h"

namespace softgpu::engine {
namespace {

const std::unordered_map<std::string_view, DecodeFunction>& Opcodes() {
  static const auto* const table = [] {
    auto* rows = new std::unordered_map<std::string_view, DecodeFunction>;
    for (std::span<const OpcodeRow> family :
         {IntegerOpcodes(), BitOpcodes(), ArithmeticOpcodes(), CompareOpcodes(), MathOpcodes(), ConvertOpcodes(),
          MoveOpcodes(), MemoryOpcodes(), AtomicOpcodes(), MultimemOpcodes(), ControlOpcodes(), WarpOpcodes(),
          BarrierOpcodes(), AsyncOpcodes()}) {
      for (const OpcodeRow& row : family) rows->emplace(row.opcode, row.decode);
    }
    return rows;
  }();
  return *table;
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (char c : text) {
    const bool blank = c == '\n' || c == '\t' || c == ' ';
    if (!blank) line += c;
    if (blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  return line;
}

}  // namespace

Decoder::Decoder(const ModuleIr& module, const SymbolAddresses& symbols, Program* program)
    : symbols_(symbols), program_(program), places_(module, program), columns_(program) {}

bool Decoder::Begin(const FunctionIr& entry, std::string* error) {
  program_->name = entry.name;
  if (!places_.LayOut(entry, error)) return false;
  program_->entry = program_->procedures.back().entry;
  return Decode(&program_->procedures.back(), error);
}

bool Decoder::Decode(Procedure* procedure, std::string* error) {
  std::lock_guard lock(mutex_);
  if (procedure->ready.load(std::memory_order_relaxed)) return true;
  if (procedure->error.empty()) {
    procedure_ = procedure;
    error_.clear();
    const FunctionIr& function = *procedure->function;
    if (!ParseBody(places_.module(), function)) {
      procedure->error = "function '" + function.name + "', " + function.error;
    } else if (DecodeProcedure()) {
      procedure->ready.store(true, std::memory_order_release);
      return true;
    } else {
      procedure->error = error_;
    }
  }
  *error = procedure->error;
  return false;
}

const Procedure* Program::Ready(int32_t index, std::string* error) const {
  const Procedure& procedure = procedures[static_cast<size_t>(index)];
  if (procedure.ready.load(std::memory_order_acquire)) return &procedure;
  return decoder->Decode(const_cast<Procedure*>(&procedure), error) ? &procedure : nullptr;
}

bool Decoder::DecodeProcedure() {
  const FunctionIr& function = *procedure_->function;
  layout_ = {};
  layout_.columns.assign(function.registers.size(), kSinkColumn);
  layout_.predicates.assign(function.registers.size(), kSinkPredicate);
  layout_.next_predicate = procedure_->first_predicate;
  columns_.Begin(procedure_);
  places_.PlaceVariables(*procedure_);
  if (procedure_->entry != program_->entry) PassingOfFormals();
  const auto next_pc = [&] { return procedure_->entry + static_cast<uint32_t>(procedure_->code.size()); };
  for (const StatementIr& statement : function.statements) {
    layout_.statement_pc.push_back(next_pc());
    if (!DecodeStatement(statement)) return false;
  }
  layout_.statement_pc.push_back(next_pc());
  static const StatementIr end = [] {
    StatementIr ret;
    ret.opcode = ret.text = "ret";
    return ret;
  }();
  if (!DecodeStatement(end)) return false;
  if (columns_.overflowed() || procedure_->code.size() > size_t{1} << kProcedureBits)
    return Fail("the function is too large");
  PatchBranches();
  return true;
}

void Decoder::PatchBranches() {
  for (Instr& instr : procedure_->code) {
    if (instr.statement->targets.empty()) continue;
    if (instr.statement->opcode == "bra") {
      instr.target = layout_.statement_pc[instr.statement->targets[0]];
    } else {
      std::vector<uint32_t>& table = procedure_->branch_tables[instr.target];
      for (uint32_t statement : instr.statement->targets) table.push_back(layout_.statement_pc[statement]);
    }
  }
}

bool Decoder::DecodeStatement(const StatementIr& statement) {
  statement_ = &statement;
  taken_.assign(statement.modifiers.size(), false);
  const auto row = Opcodes().find(statement.opcode);
  if (row == Opcodes().end()) return Fail("unknown instruction '" + std::string(statement.opcode) + "'");
  if (!row->second(*this)) return Fail("this form of '" + std::string(statement.opcode) + "' is not supported");
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i])
      return Fail("'." + std::string(statement.modifiers[i]) + "' of '" + std::string(statement.opcode) +
                  "' is not understood");
  }
  return !failed();
}

bool Decoder::Fail(const std::string& what) {
  if (error_.empty())
    error_ = "line " + std::to_string(statement_->line) + " of the PTX, '" + OneLine(statement_->text) + "': " + what;
  return false;
}

const OperandIr& Decoder::operand(size_t i) const {
  static const OperandIr missing;
  return i < statement_->operands.size() ? statement_->operands[i] : missing;
}

bool Decoder::Take(std::string_view modifier) {
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] || statement_->modifiers[i] != modifier) continue;
    taken_[i] = true;
    return true;
  }
  return false;
}

int Decoder::TakeOneOf(std::span<const std::string_view> names, int otherwise) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (Take(names[i])) return static_cast<int>(i);
  }
  return otherwise;
}

void Decoder::TakeStartingWith(std::string_view prefix) {
  for (size_t i = 0; i < taken_.size(); ++i) taken_[i] = taken_[i] || statement_->modifiers[i].starts_with(prefix);
}

Type Decoder::TakeType() {
  for (size_t i = 0; i < taken_.size(); ++i) {
    const Type type = taken_[i] ? Type::kNone : TypeNamed(statement_->modifiers[i]);
    if (type == Type::kNone) continue;
    taken_[i] = true;
    return type;
  }
  return Type::kNone;
}

Instr& Decoder::Emit(Handler run) {
  Instr& instr = procedure_->code.emplace_back();
  instr.run = run;
  instr.statement = statement_;
  instr.hint = static_cast<uint8_t>(procedure_->code.size());
  if (statement_->guard.kind != OperandIr::kNone) instr.guard = SourcePredicateOf(statement_->guard);
  return instr;
}

ColumnId Decoder::ImmediateColumn(const OperandIr& operand, Type type) {
  uint64_t bits = operand.bits;
  if (operand.literal == OperandIr::kInteger && IsFloat(type) && SizeOf(type) >= 4) {
    // "1" in place of a float; nvcc never writes that.
    const double value = static_cast<double>(static_cast<int64_t>(operand.bits));
    if (type == Type::kF64) bits = std::bit_cast<uint64_t>(value);
    if (type == Type::kF32) bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  } else if (operand.literal == OperandIr::kFloat32 && type == Type::kF64) {
    bits = std::bit_cast<uint64_t>(double{std::bit_cast<float>(static_cast<uint32_t>(operand.bits))});
  } else if (operand.literal == OperandIr::kFloat64 && SizeOf(type) < 8) {
    const double value = std::bit_cast<double>(operand.bits);
    if (type == Type::kF16) {
      bits = RoundTo(kHalf, value, Rounding::kNearest);
    } else if (type == Type::kBf16) {
      bits = RoundTo(kBfloat, value, Rounding::kNearest);
    } else {
      bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    }
  }
  return columns_.Constant(bits);
}

ColumnId Decoder::VariableAddress(const VariableIr& variable, int64_t offset) {
  switch (variable.space) {
    case Space::kShared:
      return columns_.Constant(places_.SharedOffset(variable) + static_cast<uint64_t>(offset));
    case Space::kLocal:
      return columns_.SpecialValue(Special::kLocalBase, places_.LocalOffset(variable) + offset);
    case Space::kParam:
      if (places_.IsParameterOfEntry(variable))
        return columns_.SpecialValue(Special::kParameterBase, places_.ParameterOffset(variable) + offset);
      return columns_.SpecialValue(Special::kLocalBase, places_.LocalOffset(variable) + offset);
    default:
      return columns_.Constant(symbols_.AddressOf(variable) + static_cast<uint64_t>(offset));
  }
}

ColumnId Decoder::SourceOf(const OperandIr& operand, Type type) {
  switch (operand.kind) {
    case OperandIr::kRegister:
      if (operand.type == Type::kPred) break;
      return TargetOf(operand);
    case OperandIr::kImmediate:
      return ImmediateColumn(operand, type);
    case OperandIr::kVariable:
      return VariableAddress(*operand.variable, operand.offset);
    case OperandIr::kFunction:
      return columns_.Constant(reinterpret_cast<uintptr_t>(places_.FunctionNamed(operand.name)));
    case OperandIr::kSpecial:
      if (operand.name == "WARP_SZ") return columns_.Constant(kWarpLanes);
      if (const auto special = SpecialNamed(operand.name)) return columns_.SpecialValue(*special, 0);
      Fail("unknown special register '" + std::string(operand.name) + "'");
      return kSinkColumn;
    default:
      break;
  }
  Fail("operand '" + std::string(operand.name) + "' is no value");
  return kSinkColumn;
}

ColumnId Decoder::TargetOf(const OperandIr& operand) {
  if (operand.kind == OperandIr::kSink) return kSinkColumn;
  if (operand.kind != OperandIr::kRegister || operand.type == Type::kPred) {
    Fail("operand '" + std::string(operand.name) + "' is no register");
    return kSinkColumn;
  }
  ColumnId& column = layout_.columns[operand.index];
  if (column == kSinkColumn) column = columns_.New(operand.type == Type::kB128 ? 2 : 1);
  return column;
}

PredicateId Decoder::SourcePredicateOf(const OperandIr& operand) {
  if (operand.kind == OperandIr::kImmediate) return operand.bits != 0 ? kTrue : kTrue + 1;
  return TargetPredicateOf(operand) * 2 + (operand.negated ? 1 : 0);
}

uint32_t Decoder::TargetPredicateOf(const OperandIr& operand) {
  if (operand.kind == OperandIr::kSink) return kSinkPredicate;
  if (operand.kind != OperandIr::kRegister || operand.type != Type::kPred) {
    Fail("operand '" + std::string(operand.name) + "' is no predicate");
    return kSinkPredicate;
  }
  uint32_t& index = layout_.predicates[operand.index];
  if (index == kSinkPredicate) index = layout_.next_predicate++;
  return index;
}

void Decoder::Address(const OperandIr& operand, Space* space, Instr* instr) {
  if (operand.kind != OperandIr::kAddress) {
    Fail("an address is expected");
    return;
  }
  instr->offset = operand.offset;
  if (operand.parts.empty()) {
    instr->a = columns_.Constant(0);
    return;
  }
  const OperandIr& base = operand.parts[0];
  if (base.kind == OperandIr::kVariable) {
    if (*space == Space::kGeneric) *space = base.variable->space;
    // Variables of threads and blocks lie at a constant distance from a base.
    if (base.variable->space == Space::kLocal ||
        (base.variable->space == Space::kParam && !places_.IsParameterOfEntry(*base.variable))) {
      instr->a = columns_.SpecialValue(Special::kLocalBase, 0);
      instr->offset += places_.LocalOffset(*base.variable);
      if (*space == Space::kParam) *space = Space::kLocal;
      return;
    }
  }
  instr->a = SourceOf(base, Type::kB64);
}

void Decoder::PassingOfFormals() {
  const auto formal = [&](const OperandIr& operand) {
    Passing passing;
    if (operand.kind == OperandIr::kRegister) {
      passing.to = passing.from = TargetOf(operand);
    } else {
      passing.to = passing.from = static_cast<int32_t>(places_.LocalOffset(*operand.variable));
      passing.bytes = static_cast<uint32_t>(operand.variable->bytes);
    }
    return passing;
  };
  const FunctionIr& function = *procedure_->function;
  for (const OperandIr& operand : function.results) procedure_->results.push_back(formal(operand));
  for (const OperandIr& operand : function.parameters) procedure_->parameters.push_back(formal(operand));
}

// The caller's side of the arguments and results.
bool Decoder::BuildCall(CallSite* site, const FunctionIr* callee) {
  site->procedure = callee == nullptr ? -1 : places_.ProcedureOf(callee);
  const auto actual = [&](const OperandIr& operand) {
    Passing passing;
    if (operand.kind == OperandIr::kVariable && places_.IsLocal(operand.variable)) {
      passing.to = passing.from = static_cast<int32_t>(places_.LocalOffset(*operand.variable));
      passing.bytes = static_cast<uint32_t>(operand.variable->bytes);
    } else {
      passing.to = passing.from = SourceOf(operand, Type::kB64);
    }
    return passing;
  };
  for (const OperandIr& operand : statement_->results) site->results.push_back(actual(operand));
  for (const OperandIr& operand : statement_->arguments) site->arguments.push_back(actual(operand));
  if (callee == nullptr) return true;
  if (site->procedure < 0) return Fail("function '" + callee->name + "' has no body");
  if (site->results.size() > callee->results.size() || site->arguments.size() != callee->parameters.size())
    return Fail("the call does not match the parameters of '" + callee->name + "'");
  return true;
}

}  // namespace softgpu::engine
