// The names of a function body: registers, variables and labels of nested { } blocks.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/softgpu/engine/ptx_ir.h"

namespace softgpu::engine {

class Scopes {
 public:
  explicit Scopes(FunctionIr* function) : function_(function) { Open(); }

  void Open() { scopes_.emplace_back(); }
  // Leaves the function. Returns false and sets `missing` if a branch names a label that does not exist.
  bool Close(std::string_view* missing);
  bool IsOutermost() const { return scopes_.size() == 1; }

  void DeclareRegister(std::string_view name, Type type);
  // Declares name0 .. name<count-1>.
  void DeclareRegisters(std::string_view prefix, uint32_t count, Type type);
  void DeclareVariable(const VariableIr* variable);
  // Declares a formal parameter, whose register or variable exists already.
  void DeclareFormal(const OperandIr& formal) { scopes_.back().names[formal.name] = formal; }
  void DeclareLabel(std::string_view name);
  void DeclareTargets(std::string_view name, std::vector<std::string_view> labels);

  // Finds a register or variable; false if there is none of that name.
  bool Find(std::string_view name, OperandIr* operand) const;
  // Fills in `targets` of the statement at `index` once the names are known.
  void Branch(uint32_t statement, std::string_view label);

 private:
  struct Range {
    std::string_view prefix;
    uint32_t first, count;
    Type type;
  };
  struct Pending {
    uint32_t statement;
    std::string_view name;
  };
  struct Scope {
    std::map<std::string_view, OperandIr> names;
    std::vector<Range> ranges;
    std::map<std::string_view, uint32_t> labels;
    std::map<std::string_view, std::vector<std::string_view>> lists;
    std::vector<Pending> pending;
  };

  bool Resolve(const Scope& scope, const Pending& pending);

  FunctionIr* const function_;
  std::vector<Scope> scopes_;
};

}  // namespace softgpu::engine
