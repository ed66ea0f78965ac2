// The strict recursive-descent parser of modules: text to tree. What the tree says of operations is known and complete:
// their names, their attributes' names, and how many operands, results and regions they have. Attributes are not read.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/program/stablehlo/scanner.h"
#include "src/program/stablehlo/syntax.h"
#include "src/program/stablehlo/tree.h"

namespace axccl::program::stablehlo {

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Result<Module> Run();

 private:
  struct Binding {
    ValueId first = 0;
    size_t count = 0;  // 0: not visible any more
  };

  // ---- module.cc: modules, functions, meshes ----

  bool ReadModule();
  bool ReadItem();
  bool ReadGenericItem();
  bool ReadFunc();
  // Reads up to ')'.
  bool ReadParameters(std::vector<std::vector<NamedAttr>>* attributes);
  bool ReadFuncResults();
  bool ReadGenericFunc(size_t at);
  bool CheckFunc(const std::vector<NamedAttr>& attributes);
  bool TakeArgumentAttributes(const NamedAttr* list);
  bool TakeDonation(size_t argument, const std::vector<NamedAttr>& attributes);
  bool CheckResultAttributes(const std::vector<NamedAttr>& attributes);
  bool TakeModuleAttributes(const std::vector<NamedAttr>& attributes);
  bool ReadMeshAttributes();
  bool ReadNoTypes();
  bool AddMesh(size_t at, std::string_view name, const AttrNode& attr);

  // ---- parser.cc: scopes, regions, operations in generic form ----

  bool Define(size_t at, std::string_view name, ValueId first, size_t count);
  void CloseScope(size_t mark);
  bool ReadValue(ValueId* value);
  bool ReadValues(std::vector<ValueId>* values);  // up to the last that a comma precedes
  ValueId AddValues(const std::vector<TensorType>& types);
  bool ReadArguments(Region* region);                      // `%a: tensor<f32>, %b: ...` up to ')'
  bool ReadRegion(int depth, Region* region);              // from '{' to '}'
  bool ReadBody(int depth, size_t scope, Region* region);  // behind '{' and arguments
  bool ReadOp(int depth, Op* op);
  bool ReadManualRegion(bool has_arguments, Op* op);
  bool ReadGeneric(int depth, Op* op);
  bool CheckPlace(int depth, bool is_generic, Op* op);
  bool CheckName(Op* op);
  bool CheckOp(const Op& op);
  bool CheckTypes(const Op& op, size_t at, const std::vector<TensorType>& types);
  bool SetTypes(Op* op, size_t at, const std::vector<TensorType>& operands, const std::vector<TensorType>& results);

  // ---- pretty.cc: operations in pretty form ----

  bool ReadPretty(int depth, Op* op);
  bool ReadDict(Op* op);
  bool ReadSyntax(const Syntax& syntax, Op* op);
  bool ReadClause(const Clause& clause, Op* op);
  bool ReadClauses(const Syntax& syntax, Op* op);
  bool ReadRanges(Op* op);
  bool ReadTypes(Types types, Op* op);
  bool ReadReturn(Op* op);
  bool ReadCall(Op* op);
  bool ReadConstant(Op* op);
  bool ReadReduce(int depth, Op* op);
  bool ReadReducer(int depth, Op* op);
  bool ReadWhile(int depth, Op* op);
  bool ReadManual(Op* op);
  void Apply(size_t at, std::string_view name, Op* reduce);

  Scanner in_;
  Module module_;
  bool is_manual_ = false;  // in an sdy.manual_computation
  Func* func_ = nullptr;    // the one that is being read
  std::unordered_map<std::string_view, Binding> names_;
  std::vector<std::string_view> defined_;  // the visible names, in order
  std::unordered_set<std::string_view> symbols_;
};

}  // namespace axccl::program::stablehlo
