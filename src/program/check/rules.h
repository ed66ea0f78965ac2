// The parts of CheckTypes (check.h): what one operation must satisfy, by families of kinds. Each rule sees the
// operation with the types of its operands, may rely on the numbers of operands, results, attributes and regions
// (program.h), and on nothing else. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/kinds.h"
#include "src/program/program.h"

namespace axccl::program {

// "part main, %50 all_gather: <what> [StableHLO all_gather (C6)]"; without the last if `constraint` is empty. The text
// in brackets names the operation of which StableHLO has the constraint.
Status OperationError(const Part& part, const Operation& operation, const char* constraint, const std::string& what);

// An operation where it stands. Refers to the program.
struct Site {
  const Program& program;
  const Part& part;
  const Operation& operation;
  std::vector<const TensorType*> operands;

  const TensorType& operand(size_t i) const { return *operands[i]; }
  const TensorType& result(size_t i = 0) const { return operation.results[i].type; }
  const Ints& list(Attr attr) const { return Get<Ints>(operation, attr); }
  int64_t number(Attr attr) const { return Get<int64_t>(operation, attr); }

  Status Fail(const char* constraint, const std::string& what) const {
    return OperationError(part, operation, constraint, what);
  }
  // "operand %3 has type f32[2]" and "result %4 has type f32[2]", with what is wanted behind it.
  Status FailOperand(size_t i, const char* constraint, const std::string& wanted) const;
  Status FailResult(size_t i, const char* constraint, const std::string& wanted) const;
  // The i-th operand or result must have that type.
  Status ExpectOperand(size_t i, const TensorType& type, const char* constraint) const;
  Status ExpectResult(size_t i, const TensorType& type, const char* constraint) const;
  // The i-th operand must have the data type of operand 0, or result 0 that type.
  Status ExpectDataType(size_t i, const char* constraint) const;
  Status ExpectResultDataType(const char* constraint) const;
};

inline int64_t Rank(const TensorType& type) { return static_cast<int64_t>(type.dims.size()); }

// Product and sum of sizes, or -1, which is no size, if one of them is negative or the result does not fit.
int64_t Times(int64_t a, int64_t b);
int64_t Plus(int64_t a, int64_t b);

// What a list of dimensions must satisfy: each below `bound` (`range`), no two equal (`unique`), ascending (`sorted`).
// The strings are the constraints; null: none.
struct ListRule {
  Attr attr;
  int64_t bound;
  const char* range;
  const char* unique;
  const char* sorted = nullptr;
};
Status CheckList(const Site& site, const ListRule& rule);
// The list must have `size` members.
Status CheckLength(const Site& site, Attr attr, int64_t size, const char* constraint);
// The number must be a dimension of a tensor with `bound` dimensions.
Status CheckDim(const Site& site, Attr attr, int64_t bound, const char* constraint);
// The two lists together must have no two equal members.
Status CheckDisjoint(const Site& site, Attr a, Attr b, const char* constraint);
// The data type must have the operation.
Status CheckFold(const Site& site, DataType type, const char* constraint);

// Whether the kind belongs to the family.
bool IsElementwise(OpKind kind);
Status CheckElementwise(const Site& site);
Status CheckShape(const Site& site);       // the other local operations without regions
Status CheckDot(const Site& site);         // dot, dot_general
Status CheckGather(const Site& site);      // gather
Status CheckScatter(const Site& site);     // scatter
Status CheckCollective(const Site& site);  // what is between ranks

}  // namespace axccl::program
