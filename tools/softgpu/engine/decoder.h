// Turns statements into instructions. Each family of instructions (ops_*.cc) registers a function per opcode, which
// takes the modifiers that it knows, asks for the columns of its operands and emits instructions.
//
// The first failure of a statement is kept. A modifier that no function took is a failure too: an instruction is either
// understood completely or an error.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/softgpu/engine/columns.h"
#include "tools/softgpu/engine/machine.h"
#include "tools/softgpu/engine/program_layout.h"
#include "tools/softgpu/engine/ptx_ir.h"

namespace softgpu::engine {

// The addresses of a loaded module's variables.
class SymbolAddresses {
 public:
  virtual ~SymbolAddresses() = default;
  // The address of a .global or .const variable.
  virtual uint64_t AddressOf(const VariableIr& variable) const = 0;
};

class Decoder {
 public:
  Decoder(const ModuleIr& module, const SymbolAddresses& symbols, Program* program);

  // Makes the program of `entry`, and its first procedure ready. Returns false and sets `error` on failure.
  bool Begin(const FunctionIr& entry, std::string* error);
  // Makes another one ready. Thread-safe.
  bool Decode(Procedure* procedure, std::string* error);

  // For the families:
  const StatementIr& statement() const { return *statement_; }
  size_t operands() const { return statement_->operands.size(); }
  const OperandIr& operand(size_t i) const;
  // Takes a modifier if the statement has it. Each can be taken once.
  bool Take(std::string_view modifier);
  // Takes the first of `names` that the statement has, and returns its position; `otherwise` if it has none.
  int TakeOneOf(std::span<const std::string_view> names, int otherwise);
  // Takes the next modifier that is a type; kNone if there is no other.
  Type TakeType();
  // Takes all modifiers that start so (level::eviction_priority, L2::128B); returns whether there were any.
  void TakeStartingWith(std::string_view prefix);
  bool Fail(const std::string& what);
  bool failed() const { return !error_.empty(); }

  Instr& Emit(Handler run);
  // The column of an operand that is read as `type`.
  ColumnId Source(size_t i, Type type) { return SourceOf(operand(i), type); }
  ColumnId SourceOf(const OperandIr& operand, Type type);
  ColumnId Target(size_t i) { return TargetOf(operand(i)); }
  ColumnId TargetOf(const OperandIr& operand);
  // The target d of "d|p", then p.
  PredicateId SourcePredicate(size_t i) { return SourcePredicateOf(operand(i)); }
  PredicateId SourcePredicateOf(const OperandIr& operand);
  uint32_t TargetPredicateOf(const OperandIr& operand);
  // Sets a and offset of the instruction. `space` becomes the variable's if the instruction names none.
  void Address(const OperandIr& operand, Space* space, Instr* instr);
  const ProgramLayout& places() const { return places_; }
  Columns& columns() { return columns_; }
  Procedure& procedure() { return *procedure_; }
  // Fills in the call of the present statement, as far as possible without the procedure.
  bool BuildCall(CallSite* site, const FunctionIr* callee);

 private:
  struct Layout {
    std::vector<ColumnId> columns;     // by register
    std::vector<uint32_t> predicates;  // by register
    uint32_t next_predicate = 0;
    std::vector<uint32_t> statement_pc;
  };

  bool DecodeProcedure();
  bool DecodeStatement(const StatementIr& statement);
  void PatchBranches();
  void PassingOfFormals();
  ColumnId VariableAddress(const VariableIr& variable, int64_t offset);
  ColumnId ImmediateColumn(const OperandIr& operand, Type type);

  const SymbolAddresses& symbols_;
  Program* const program_;
  ProgramLayout places_;
  Columns columns_;
  Layout layout_;
  std::mutex mutex_;
  Procedure* procedure_ = nullptr;
  const StatementIr* statement_ = nullptr;
  std::vector<bool> taken_;
  std::string error_;
};

using DecodeFunction = bool (*)(Decoder&);
struct OpcodeRow {
  std::string_view opcode;
  DecodeFunction decode;
};
// The opcodes of one family each.
std::span<const OpcodeRow> IntegerOpcodes();
std::span<const OpcodeRow> BitOpcodes();
std::span<const OpcodeRow> ArithmeticOpcodes();
std::span<const OpcodeRow> CompareOpcodes();
std::span<const OpcodeRow> MathOpcodes();
std::span<const OpcodeRow> ConvertOpcodes();
std::span<const OpcodeRow> MoveOpcodes();
std::span<const OpcodeRow> MemoryOpcodes();
std::span<const OpcodeRow> AtomicOpcodes();
std::span<const OpcodeRow> MultimemOpcodes();
std::span<const OpcodeRow> ControlOpcodes();
std::span<const OpcodeRow> WarpOpcodes();
std::span<const OpcodeRow> BarrierOpcodes();
std::span<const OpcodeRow> AsyncOpcodes();

}  // namespace softgpu::engine
