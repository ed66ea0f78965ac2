#include "tools/softgpu/engine/ptx_scope.h"

#include <charconv>

namespace softgpu::engine {

void Scopes::DeclareRegister(std::string_view name, Type type) {
  OperandIr operand;
  operand.kind = OperandIr::kRegister;
  operand.type = type;
  operand.name = name;
  operand.index = static_cast<uint32_t>(function_->registers.size());
  function_->registers.push_back({type});
  scopes_.back().names[name] = operand;
}

void Scopes::DeclareRegisters(std::string_view prefix, uint32_t count, Type type) {
  scopes_.back().ranges.push_back({prefix, static_cast<uint32_t>(function_->registers.size()), count, type});
  function_->registers.insert(function_->registers.end(), count, {type});
}

void Scopes::DeclareVariable(const VariableIr* variable) {
  OperandIr operand;
  operand.kind = OperandIr::kVariable;
  operand.type = variable->type;
  operand.variable = variable;
  operand.name = variable->name;
  scopes_.back().names[variable->name] = operand;
}

void Scopes::DeclareLabel(std::string_view name) {
  scopes_.back().labels[name] = static_cast<uint32_t>(function_->statements.size());
}

void Scopes::DeclareTargets(std::string_view name, std::vector<std::string_view> labels) {
  scopes_.back().lists[name] = std::move(labels);
}

bool Scopes::Find(std::string_view name, OperandIr* operand) const {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  uint32_t number = 0;
  const bool numbered = digits > 0 && digits < name.size() &&
                        std::from_chars(name.data() + digits, name.data() + name.size(), number).ec == std::errc();
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->names.find(name); found != scope->names.end()) {
      *operand = found->second;
      return true;
    }
    if (!numbered) continue;
    for (const Range& range : scope->ranges) {
      if (number >= range.count || range.prefix != name.substr(0, digits)) continue;
      operand->kind = OperandIr::kRegister;
      operand->type = range.type;
      operand->index = range.first + number;
      operand->name = name;
      return true;
    }
  }
  return false;
}

void Scopes::Branch(uint32_t statement, std::string_view label) {
  scopes_.back().pending.push_back({statement, label});
}

bool Scopes::Resolve(const Scope& scope, const Pending& pending) {
  std::vector<uint32_t>& targets = function_->statements[pending.statement].targets;
  if (const auto label = scope.labels.find(pending.name); label != scope.labels.end()) {
    targets = {label->second};
    return true;
  }
  const auto list = scope.lists.find(pending.name);
  if (list == scope.lists.end()) return false;
  for (std::string_view name : list->second) {
    const auto label = scope.labels.find(name);
    if (label == scope.labels.end()) return false;
    targets.push_back(label->second);
  }
  return true;
}

bool Scopes::Close(std::string_view* missing) {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const Pending& pending : scope.pending) {
    if (Resolve(scope, pending)) continue;
    if (scopes_.empty()) {
      *missing = pending.name;
      return false;
    }
    scopes_.back().pending.push_back(pending);
  }
  return true;
}

}  // namespace softgpu::engine
