// Turns statements into instructions. Each family of instructions (ops_*.cc) registers a function per opcode, which
// takes the modifiers that it knows, asks for the columns of its operands and emits instructions.
//
// The first failure of a statement is kept. A modifier that no function took is a failure too: an instruction is either
// understood completely or an error.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/softgpu/engine/machine.h"
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

  // Builds everything that `entry` needs. Returns false and sets `error` on failure.
  bool Build(const FunctionIr& entry, std::string* error);

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
  ColumnId Constant(uint64_t value);
  ColumnId SpecialValue(Special special, int64_t addend);
  // A fresh column for values between two instructions of one statement.
  ColumnId Temporary();
  bool IsParameterOfEntry(const VariableIr& variable) const { return entry_parameters_.contains(&variable); }
  uint32_t ParameterOffset(const VariableIr& variable) const { return entry_parameters_.at(&variable); }
  Program& program() { return *program_; }
  // Fills in the call of the present statement, as far as possible without the procedure.
  bool BuildCall(CallSite* site, const FunctionIr* callee);
  int32_t ProcedureOf(const FunctionIr* function) const;
  const FunctionIr* FunctionNamed(std::string_view name) const;
  std::vector<uint32_t> BranchTargets() const { return statement_->targets; }

 private:
  struct Layout {
    std::vector<ColumnId> columns;     // by register
    std::vector<uint32_t> predicates;  // by register
    std::vector<uint32_t> statement_pc;
  };

  bool Collect(const FunctionIr& entry);
  void CollectFrom(const FunctionIr& function, std::vector<const FunctionIr*>* work);
  void LayOut(const FunctionIr& entry);
  void PlaceShared(const OperandIr& operand);
  void PlaceSharedOf(const FunctionIr& function);
  void PlaceLocal(const FunctionIr& function);
  void MarkRecursion();
  bool DecodeFunction(const FunctionIr& function, Procedure* procedure);
  bool DecodeStatement(const StatementIr& statement);
  void PatchBranches(uint32_t first_instr);
  void PassingOfFormals(Procedure* procedure);
  uint32_t LocalOffset(const VariableIr& variable) const { return local_offsets_.at(&variable); }
  uint32_t SharedOffset(const VariableIr& variable);
  ColumnId VariableAddress(const VariableIr& variable, int64_t offset);
  ColumnId ImmediateColumn(const OperandIr& operand, Type type);
  ColumnId NewColumn(uint32_t columns);

  const ModuleIr& module_;
  const SymbolAddresses& symbols_;
  Program* const program_;
  std::vector<const FunctionIr*> functions_;  // callees before callers where possible; the entry is last
  bool calls_by_address_ = false;
  std::map<const FunctionIr*, std::vector<const FunctionIr*>> calls_;
  std::map<const FunctionIr*, int32_t> procedure_of_;
  std::map<const VariableIr*, uint32_t> shared_offsets_, local_offsets_, entry_parameters_;
  std::map<uint64_t, ColumnId> constants_;
  std::map<std::pair<Special, int64_t>, ColumnId> specials_;
  Layout layout_;
  const FunctionIr* function_ = nullptr;
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
std::span<const OpcodeRow> ControlOpcodes();
std::span<const OpcodeRow> WarpOpcodes();
std::span<const OpcodeRow> BarrierOpcodes();
std::span<const OpcodeRow> AsyncOpcodes();

}  // namespace softgpu::engine
