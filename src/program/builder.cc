#include "src/program/builder.h"

#include <algorithm>
#include <limits>
#include <string>

#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

bool IsIn(const Ints& list, size_t d) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(d)) != list.end();
}

// What no element is less than.
Literal LeastOf(DataType type) {
  Literal literal;
  literal.bytes.resize(ElementSize(type));
  VisitScalar(type, [&](auto scalar) {
    using Limits = std::numeric_limits<typename decltype(scalar)::Number>;
    scalar.Store(Limits::has_infinity ? -Limits::infinity() : Limits::lowest(), literal.bytes.data());
  });
  return literal;
}

}  // namespace

Literal LiteralOf(DataType type, double value) {
  Literal literal;
  literal.bytes.resize(ElementSize(type));
  VisitScalar(type, [&](auto scalar) {
    scalar.Store(static_cast<typename decltype(scalar)::Number>(value), literal.bytes.data());
  });
  return literal;
}

Id Builder::Argument(const TensorType& type, bool donated) {
  function_.arguments.push_back({next_, type, donated});
  places_[next_] = -static_cast<int64_t>(function_.arguments.size());
  return next_++;
}

Id Builder::Add(OpKind kind, std::vector<Id> operands, const TensorType& type, std::vector<Attribute> attributes) {
  Operation operation;
  operation.kind = kind;
  operation.operands = std::move(operands);
  operation.results.push_back({0, type});
  operation.attributes = std::move(attributes);
  return operations()[Append(std::move(operation))].id;
}

size_t Builder::Append(Operation operation) {
  operation.id = next_;
  if (operation.results.empty()) ++next_;
  for (Value& result : operation.results) {
    result.id = next_++;
    places_[result.id] = static_cast<int64_t>(function_.operations.size()) + 1;
  }
  function_.operations.push_back(std::move(operation));
  return function_.operations.size() - 1;
}

Id Builder::Constant(const TensorType& type, double value) {
  for (const auto& [known, id] : constants_) {
    if (known == value && TypeOf(id) == type) return id;
  }
  const Id id = Add(OpKind::kConstant, {}, type, {{Attr::kValue, LiteralOf(type.data_type, value)}});
  constants_.emplace_back(value, id);
  return id;
}

Id Builder::Elementwise(OpKind kind, std::vector<Id> operands) {
  const TensorType type = TypeOf(operands[kind == OpKind::kSelect ? 1 : 0]);
  return Add(kind, std::move(operands), type);
}

Id Builder::Greater(Id left, Id right) {
  return Add(OpKind::kCompare, {left, right}, {DataType::kBool, TypeOf(left).dims},
             {{Attr::kDirection, Direction::kGt}});
}

Id Builder::Dot(Id left, Id right, const Ints& left_contracting, const Ints& right_contracting,
                const Ints& left_batching, const Ints& right_batching) {
  const TensorType& l = TypeOf(left);
  const TensorType& r = TypeOf(right);
  TensorType type{l.data_type, {}};
  for (const int64_t d : left_batching) type.dims.push_back(l.dims[static_cast<size_t>(d)]);
  for (size_t d = 0; d < l.dims.size(); ++d) {
    if (!IsIn(left_batching, d) && !IsIn(left_contracting, d)) type.dims.push_back(l.dims[d]);
  }
  for (size_t d = 0; d < r.dims.size(); ++d) {
    if (!IsIn(right_batching, d) && !IsIn(right_contracting, d)) type.dims.push_back(r.dims[d]);
  }
  return Add(OpKind::kDotGeneral, {left, right}, type,
             {{Attr::kLhsBatchingDims, left_batching},
              {Attr::kRhsBatchingDims, right_batching},
              {Attr::kLhsContractingDims, left_contracting},
              {Attr::kRhsContractingDims, right_contracting}});
}

Id Builder::Reduce(Combine fold, Id operand, const Ints& dims) {
  const TensorType from = TypeOf(operand);
  TensorType type{from.data_type, {}};
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (!IsIn(dims, d)) type.dims.push_back(from.dims[d]);
  }
  const Literal neutral = fold == Combine::kMax ? LeastOf(from.data_type) : LiteralOf(from.data_type, 0);
  const Id initial = Add(OpKind::kConstant, {}, {from.data_type, {}}, {{Attr::kValue, neutral}});
  return Add(OpKind::kReduce, {operand, initial}, type, {{Attr::kFold, fold}, {Attr::kDims, dims}});
}

Id Builder::Broadcast(Id operand, const Ints& sizes, const Ints& dims) {
  return Add(OpKind::kBroadcastInDim, {operand}, {TypeOf(operand).data_type, sizes}, {{Attr::kDims, dims}});
}

Function Builder::Finish(std::vector<Id> results) {
  function_.results = std::move(results);
  return std::move(function_);
}

}  // namespace axccl::program
