#include "tools/softgpu/engine/program_layout.h"

#include <algorithm>
#include <set>

namespace softgpu::engine {
namespace {

constexpr uint32_t kFirstPredicate = 3;

uint32_t Align(uint32_t offset, uint32_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

// Returns where the variable is, in memory of which `*end` bytes are taken.
uint32_t Place(const VariableIr& variable, uint32_t* end) {
  const uint32_t offset = Align(*end, std::max(variable.align, 1u));
  *end = offset + static_cast<uint32_t>(variable.bytes);
  return offset;
}

}  // namespace

const FunctionIr* ProgramLayout::FunctionNamed(std::string_view name) const {
  const auto found = module_.function_named.find(name);
  return found == module_.function_named.end() ? nullptr : found->second;
}

ProgramLayout::Node* ProgramLayout::NodeOf(const FunctionIr* function) {
  const auto [found, fresh] = nodes_.try_emplace(function);
  Node* const node = &found->second;
  if (!fresh) return node;
  node->survey = &SurveyBody(module_, *function);
  for (const FunctionIr* callee : node->survey->functions) {
    if (callee->has_body) node->callees.push_back(callee);
  }
  return node;
}

// Depth first, so that callees come before their callers.
void ProgramLayout::Visit(const FunctionIr* function) {
  struct Step {
    const FunctionIr* function;
    size_t next;
  };
  std::vector<Step> path;
  const auto enter = [&](const FunctionIr* to) {
    Node* const node = NodeOf(to);
    circular_ |= node->state == Node::kOpen;
    if (node->state != Node::kNew) return;
    node->state = Node::kOpen;
    calls_by_address_ |= node->survey->calls_by_address;
    path.push_back({to, 0});
  };
  for (enter(function); !path.empty();) {
    Step& step = path.back();
    Node* const node = NodeOf(step.function);
    if (step.next < node->callees.size()) {
      enter(node->callees[step.next++]);
      continue;
    }
    node->state = Node::kDone;
    order_.push_back(step.function);
    path.pop_back();
  }
}

// Functions whose addresses are in variables.
void ProgramLayout::VisitAddressed() {
  for (const auto& variable : module_.variables) {
    for (const AddressInitialiser& address : variable->addresses) {
      const FunctionIr* const callee = FunctionNamed(address.symbol);
      if (callee != nullptr && callee->has_body) Visit(callee);
    }
  }
}

void ProgramLayout::PlaceShared(const VariableIr& variable) {
  // "extern": its length is set by the launch; all of them begin behind the others.
  if (variable.is_extern || variable.bytes == 0 || shared_offsets_.contains(&variable)) return;
  shared_offsets_[&variable] = Place(variable, &program_->shared_bytes);
}

// Those that belong to the module, and shared memory that functions declare.
bool ProgramLayout::PlaceModuleVariables(std::string* error) {
  uint32_t dynamic_alignment = 16;
  const auto place = [&](const VariableIr& variable) {
    if (variable.space == Space::kLocal && !local_offsets_.contains(&variable))
      local_offsets_[&variable] = Place(variable, &program_->local_bytes);
    if (variable.space != Space::kShared) return;
    PlaceShared(variable);
    if (variable.is_extern) dynamic_alignment = std::max(dynamic_alignment, variable.align);
  };
  for (const FunctionIr* function : order_) {
    const BodySurvey& survey = *NodeOf(function)->survey;
    for (const VariableIr* variable : survey.variables) place(*variable);
    if (!survey.declares_shared) continue;
    if (!ParseBody(module_, *function)) {
      *error = "function '" + function->name + "', " + function->error;
      return false;
    }
    for (const auto& variable : function->variables) {
      if (variable->space == Space::kShared) place(*variable);
    }
  }
  program_->shared_bytes = Align(program_->shared_bytes, dynamic_alignment);
  return true;
}

// A function is recursive if it may call itself through others. A call by address may call any function but the entry.
bool ProgramLayout::MayRecur(const FunctionIr* function) {
  std::vector<const FunctionIr*> work = {function};
  std::set<const FunctionIr*> seen;
  while (!work.empty()) {
    const FunctionIr* const at = work.back();
    work.pop_back();
    const Node* const node = NodeOf(at);
    if (at != order_.back() && node->survey->calls_by_address) return true;
    for (const FunctionIr* callee : node->callees) {
      if (callee == function) return true;
      if (seen.insert(callee).second) work.push_back(callee);
    }
  }
  return false;
}

void ProgramLayout::PlaceProcedures() {
  program_->procedures = std::vector<Procedure>(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    Procedure& procedure = program_->procedures[i];
    procedure.function = order_[i];
    procedure.entry = static_cast<uint32_t>(i) << kProcedureBits;
    procedure_of_[order_[i]] = static_cast<int32_t>(i);
  }
  const bool stacked = !circular_ && !calls_by_address_;
  program_->values = kWarpLanes;  // the sink
  program_->predicates = kFirstPredicate;
  program_->local_bytes = Align(program_->local_bytes, kLocalAlignment);
  for (Procedure& procedure : program_->procedures) {
    procedure.first_value = static_cast<ColumnId>(program_->values);
    procedure.first_predicate = program_->predicates;
    procedure.local_begin = program_->local_bytes;
  }
  for (size_t i = order_.size(); i-- > 0;) {
    const Node& node = *NodeOf(order_[i]);
    Procedure& procedure = program_->procedures[i];
    if (!stacked) {
      procedure.first_value = static_cast<ColumnId>(program_->values);
      procedure.first_predicate = program_->predicates;
      procedure.local_begin = program_->local_bytes;
      procedure.recursive = MayRecur(order_[i]);
    }
    procedure.last_value = procedure.first_value + static_cast<ColumnId>(node.survey->columns * kWarpLanes);
    procedure.last_predicate = procedure.first_predicate + node.survey->predicates;
    procedure.local_end = Align(procedure.local_begin + node.survey->local_bytes, kLocalAlignment);
    program_->values = std::max(program_->values, static_cast<uint32_t>(procedure.last_value));
    program_->predicates = std::max(program_->predicates, procedure.last_predicate);
    program_->local_bytes = std::max(program_->local_bytes, procedure.local_end);
    if (!stacked) continue;
    for (const FunctionIr* function : node.callees) {
      Procedure& callee = program_->procedures[static_cast<size_t>(procedure_of_[function])];
      callee.first_value = std::max(callee.first_value, procedure.last_value);
      callee.first_predicate = std::max(callee.first_predicate, procedure.last_predicate);
      callee.local_begin = std::max(callee.local_begin, procedure.local_end);
    }
  }
}

bool ProgramLayout::LayOut(const FunctionIr& entry, std::string* error) {
  uint32_t parameter_bytes = 0;
  for (const OperandIr& parameter : entry.parameters)
    entry_parameters_[parameter.variable] = Place(*parameter.variable, &parameter_bytes);
  Visit(&entry);
  if (calls_by_address_) {
    order_.pop_back();
    VisitAddressed();
    order_.push_back(&entry);
  }
  if (order_.size() > kMostProcedures) {
    *error = "it calls " + std::to_string(order_.size()) + " functions, which are too many";
    return false;
  }
  if (!PlaceModuleVariables(error)) return false;
  PlaceProcedures();
  uint64_t constants = 2;  // ids are below zero, so the first column is never used
  for (const auto& [function, node] : nodes_) {
    constants += node.survey->constants;
    program_->reads_shared_in_bulk |= node.survey->reads_shared_in_bulk;
  }
  program_->constants = MakeRaw<uint64_t>(constants * kWarpLanes);
  program_->most_constants = constants;
  return true;
}

void ProgramLayout::PlaceVariables(const Procedure& procedure) {
  uint32_t end = procedure.local_begin;
  for (const auto& variable : procedure.function->variables) {
    if (variable->space == Space::kLocal || variable->space == Space::kParam)
      local_offsets_[variable.get()] = Place(*variable, &end);
  }
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
