#include "tools/softgpu/engine/program_layout.h"

#include <algorithm>
#include <set>

namespace softgpu::engine {
namespace {

uint32_t Align(uint32_t offset, uint32_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

template <class F>
void ForOperands(const std::vector<OperandIr>& operands, F&& f) {
  for (const OperandIr& operand : operands) {
    f(operand);
    ForOperands(operand.parts, f);
  }
}

template <class F>
void ForOperands(const FunctionIr& function, F&& f) {
  for (const StatementIr& statement : function.statements) {
    for (const auto* list : {&statement.operands, &statement.results, &statement.arguments}) ForOperands(*list, f);
  }
}

}  // namespace

const FunctionIr* ProgramLayout::FunctionNamed(std::string_view name) const {
  const auto found = module_.function_named.find(name);
  return found == module_.function_named.end() ? nullptr : found->second;
}

void ProgramLayout::CollectFrom(const FunctionIr& function, std::vector<const FunctionIr*>* work) {
  std::vector<const FunctionIr*>& callees = calls_[&function];
  for (const StatementIr& statement : function.statements) {
    const bool call = statement.opcode == "call";
    if (call && statement.operands[0].kind != OperandIr::kFunction) calls_by_address_ = true;
    ForOperands(statement.operands, [&](const OperandIr& operand) {
      if (operand.kind != OperandIr::kFunction) return;
      const FunctionIr* const callee = FunctionNamed(operand.name);
      if (callee == nullptr || !callee->has_body) return;
      callees.push_back(callee);
      work->push_back(callee);
    });
  }
}

bool ProgramLayout::Collect(const FunctionIr& entry, std::string* error) {
  std::vector<const FunctionIr*> work = {&entry};
  std::set<const FunctionIr*> seen;
  bool tables_added = false;
  while (!work.empty()) {
    const FunctionIr* const function = work.back();
    work.pop_back();
    if (seen.insert(function).second) {
      if (!function->error.empty()) {
        *error = "function '" + function->name + "', " + function->error;
        return false;
      }
      CollectFrom(*function, &work);
      if (function != &entry) functions_.insert(functions_.begin(), function);
    }
    // Functions whose addresses are in variables.
    if (!work.empty() || !calls_by_address_ || tables_added) continue;
    tables_added = true;
    for (const auto& variable : module_.variables) {
      for (const AddressInitialiser& address : variable->addresses) {
        const FunctionIr* const callee = FunctionNamed(address.symbol);
        if (callee != nullptr && callee->has_body) work.push_back(callee);
      }
    }
  }
  functions_.push_back(&entry);
  return true;
}

// A function is recursive if it may call itself through others. A call by address may call any function.
void ProgramLayout::MarkRecursion() {
  for (Procedure& procedure : program_->procedures) {
    std::vector<const FunctionIr*> work = {procedure.function};
    std::set<const FunctionIr*> seen;
    while (!work.empty() && !procedure.recursive) {
      const FunctionIr* const function = work.back();
      work.pop_back();
      for (const FunctionIr* callee : calls_[function]) {
        procedure.recursive |= callee == procedure.function;
        if (seen.insert(callee).second) work.push_back(callee);
      }
      for (const StatementIr& statement : function->statements)
        procedure.recursive |= function != functions_.back() && statement.opcode == "call" &&
                               statement.operands[0].kind != OperandIr::kFunction;
    }
  }
}

void ProgramLayout::PlaceShared(const OperandIr& operand) {
  const VariableIr* const variable = operand.variable;
  if (operand.kind != OperandIr::kVariable || variable == nullptr || variable->space != Space::kShared) return;
  // "extern": its length is set by the launch; all of them begin behind the others.
  if (variable->is_extern || variable->bytes == 0 || shared_offsets_.contains(variable)) return;
  const uint32_t offset = Align(program_->shared_bytes, std::max(variable->align, 1u));
  shared_offsets_[variable] = offset;
  program_->shared_bytes = offset + static_cast<uint32_t>(variable->bytes);
}

void ProgramLayout::PlaceSharedOf(const FunctionIr& function) {
  ForOperands(function, [&](const OperandIr& operand) { PlaceShared(operand); });
}

void ProgramLayout::PlaceLocal(const FunctionIr& function) {
  for (const auto& variable : function.variables) {
    if (variable->space != Space::kLocal && variable->space != Space::kParam) continue;
    const uint32_t offset = Align(program_->local_bytes, std::max(variable->align, 1u));
    local_offsets_[variable.get()] = offset;
    program_->local_bytes = offset + static_cast<uint32_t>(variable->bytes);
  }
  // .local of module scope
  ForOperands(function, [&](const OperandIr& operand) {
    if (operand.kind != OperandIr::kVariable || operand.variable->space != Space::kLocal) return;
    if (local_offsets_.contains(operand.variable)) return;
    const uint32_t offset = Align(program_->local_bytes, std::max(operand.variable->align, 1u));
    local_offsets_[operand.variable] = offset;
    program_->local_bytes = offset + static_cast<uint32_t>(operand.variable->bytes);
  });
}

bool ProgramLayout::LayOut(const FunctionIr& entry, std::string* error) {
  if (!Collect(entry, error)) return false;
  uint32_t offset = 0;
  for (const OperandIr& parameter : entry.parameters) {
    offset = Align(offset, std::max(parameter.variable->align, 1u));
    entry_parameters_[parameter.variable] = offset;
    offset += static_cast<uint32_t>(parameter.variable->bytes);
  }
  uint32_t dynamic_alignment = 16;
  for (const FunctionIr* function : functions_) {
    PlaceSharedOf(*function);
    ForOperands(*function, [&](const OperandIr& operand) {
      if (operand.kind == OperandIr::kVariable && operand.variable->space == Space::kShared)
        dynamic_alignment = std::max(dynamic_alignment, operand.variable->is_extern ? operand.variable->align : 1);
    });
    Procedure& procedure = program_->procedures.emplace_back();
    procedure.function = function;
    procedure_of_[function] = static_cast<int32_t>(program_->procedures.size() - 1);
    procedure.local_begin = program_->local_bytes;
    PlaceLocal(*function);
    procedure.local_end = program_->local_bytes;
  }
  program_->shared_bytes = Align(program_->shared_bytes, dynamic_alignment);
  MarkRecursion();
  return true;
}

uint32_t ProgramLayout::SharedOffset(const VariableIr& variable) const {
  const auto found = shared_offsets_.find(&variable);
  return found == shared_offsets_.end() ? program_->shared_bytes : found->second;
}

int32_t ProgramLayout::ProcedureOf(const FunctionIr* function) const {
  const auto found = procedure_of_.find(function);
  return found == procedure_of_.end() ? -1 : found->second;
}

}  // namespace softgpu::engine
