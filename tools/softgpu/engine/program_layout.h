// What a kernel needs: the functions that it calls, and places for their registers and variables. Nothing is parsed for
// that, so places are as large as what a function might need at most (BodySurvey).
//
// The places of a function begin behind those of all functions that call it, as on a stack, so functions that are never
// under way at the same time share theirs. If a function may call itself, or may be called by its address, all have
// places of their own.
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

  // Finds the functions of `entry`, makes a procedure of the program for each, callees before callers where possible
  // and the entry last, and places their registers and variables. Returns false with `error` if one of the functions
  // could not be parsed.
  bool LayOut(const FunctionIr& entry, std::string* error);
  // Places the variables that are declared in the procedure's function, which has been parsed.
  void PlaceVariables(const Procedure& procedure);

  const ModuleIr& module() const { return module_; }
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
  struct Node {
    const BodySurvey* survey = nullptr;
    std::vector<const FunctionIr*> callees;  // that have a body
    enum { kNew, kOpen, kDone } state = kNew;
  };

  Node* NodeOf(const FunctionIr* function);
  void Visit(const FunctionIr* function);
  void VisitAddressed();
  bool PlaceModuleVariables(std::string* error);
  void PlaceShared(const VariableIr& variable);
  void PlaceProcedures();
  bool MayRecur(const FunctionIr* function);

  const ModuleIr& module_;
  Program* const program_;
  std::map<const FunctionIr*, Node> nodes_;
  std::vector<const FunctionIr*> order_;  // callees before callers where possible
  bool circular_ = false, calls_by_address_ = false;
  std::map<const FunctionIr*, int32_t> procedure_of_;
  std::map<const VariableIr*, uint32_t> shared_offsets_, local_offsets_, entry_parameters_;
};

}  // namespace softgpu::engine
