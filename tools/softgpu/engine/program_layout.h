// What a kernel needs: the functions that it calls, and places for their variables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/softgpu/engine/machine.h"
#include "tools/softgpu/engine/ptx_ir.h"

namespace softgpu::engine {

class ProgramLayout {
 public:
  ProgramLayout(const ModuleIr& module, Program* program) : module_(module), program_(program) {}

  // Finds the functions of `entry`, makes a procedure of the program for each, and places their variables. Returns
  // false with `error` if one of the functions could not be parsed.
  bool LayOut(const FunctionIr& entry, std::string* error);

  // Callees before callers where possible, the entry last.
  const std::vector<const FunctionIr*>& functions() const { return functions_; }
  // Null if the module has none of that name.
  const FunctionIr* FunctionNamed(std::string_view name) const;
  // -1 if it has no body.
  int32_t ProcedureOf(const FunctionIr* function) const;

  bool IsParameterOfEntry(const VariableIr& variable) const { return entry_parameters_.contains(&variable); }
  uint32_t ParameterOffset(const VariableIr& variable) const { return entry_parameters_.at(&variable); }
  bool IsLocal(const VariableIr* variable) const { return local_offsets_.contains(variable); }
  uint32_t LocalOffset(const VariableIr& variable) const { return local_offsets_.at(&variable); }
  uint32_t SharedOffset(const VariableIr& variable) const;

 private:
  bool Collect(const FunctionIr& entry, std::string* error);
  void CollectFrom(const FunctionIr& function, std::vector<const FunctionIr*>* work);
  void PlaceShared(const OperandIr& operand);
  void PlaceSharedOf(const FunctionIr& function);
  void PlaceLocal(const FunctionIr& function);
  void MarkRecursion();

  const ModuleIr& module_;
  Program* const program_;
  std::vector<const FunctionIr*> functions_;
  bool calls_by_address_ = false;
  std::map<const FunctionIr*, std::vector<const FunctionIr*>> calls_;
  std::map<const FunctionIr*, int32_t> procedure_of_;
  std::map<const VariableIr*, uint32_t> shared_offsets_, local_offsets_, entry_parameters_;
};

}  // namespace softgpu::engine
