// Writes a function, operation by operation: ids are given, and result types follow from the operands. For makers and
// transforms of programs; whoever calls it keeps to the constraints that check.h enforces.
//
// Used by one thread.
#pragma once

#include <utility>
#include <vector>

#include "src/program/id_table.h"
#include "src/program/program.h"

namespace axccl::program {

class Builder {
 public:
  explicit Builder(std::string name, Id first = 0) : next_(first) { function_.name = std::move(name); }

  Id Argument(const TensorType& type, bool donated = false);
  // One result of that type; the attributes are those of the kind, in the order of its row.
  Id Add(OpKind kind, std::vector<Id> operands, const TensorType& type, std::vector<Attribute> attributes = {});
  // As the operation, with new ids for its results, whose types must be right. Returns the place of the operation.
  size_t Append(Operation operation);

  // All elements are that value, which the type can represent. Equal constants are one.
  Id Constant(const TensorType& type, double value);
  // The result has the type of the first operand.
  Id Elementwise(OpKind kind, std::vector<Id> operands);
  Id Greater(Id left, Id right);
  Id Dot(Id left, Id right, const Ints& left_contracting, const Ints& right_contracting, const Ints& left_batching = {},
         const Ints& right_batching = {});
  // The initial value is the fold's neutral element; add and max only.
  Id Reduce(Combine fold, Id operand, const Ints& dims);
  Id Broadcast(Id operand, const Ints& sizes, const Ints& dims);

  // Valid until the next argument.
  const TensorType& TypeOf(Id value) const {
    const int64_t place = places_.Find(value);
    if (place < 0) return function_.arguments[static_cast<size_t>(-place) - 1].type;
    const std::vector<Value>& results = function_.operations[static_cast<size_t>(place) - 1].results;
    return results[value - results[0].id].type;
  }
  const std::vector<Operation>& operations() const { return function_.operations; }
  Function Finish(std::vector<Id> results);

 private:
  Function function_;
  Id next_;
  // Of each value: the place of its operation, from 1; or, negative, that of the argument.
  IdTable<int64_t> places_;
  std::vector<std::pair<double, Id>> constants_;
};

// Of the data type, in the machine's byte order.
Literal LiteralOf(DataType type, double value);

}  // namespace axccl::program
