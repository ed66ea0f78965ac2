#include <cmath>
#include <type_traits>

#include "src/program/reference/arithmetic.h"
#include "src/program/reference/compute.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

// Operands of clamp and select may be scalars.
int64_t At(const Tensor& operand, int64_t i) { return operand.type.dims.empty() ? 0 : i; }

Tensor ConvertElements(const Tensor& from, const TensorType& type) {
  Tensor result = Tensor::Zeros(type);
  VisitScalar(from.type.data_type, [&](auto source) {
    VisitScalar(type.data_type, [&](auto target) {
      using To = typename decltype(target)::Number;
      for (int64_t i = 0; i < Elements(type); ++i) {
        const auto number = source.Load(from.at(i));
        if constexpr (std::is_same_v<To, float>) {
          target.Store(number, result.at(i));  // rounded once, also to 16 bits
        } else {
          target.Store(Convert<To>(number), result.at(i));
        }
      }
    });
  });
  return result;
}

Tensor CompareElements(Direction direction, const Tensor& a, const Tensor& b, const TensorType& type) {
  Tensor result = Tensor::Zeros(type);
  VisitScalar(a.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(type); ++i)
      *result.at(i) = Compare(direction, scalar.Load(a.at(i)), scalar.Load(b.at(i)));
  });
  return result;
}

Tensor FiniteElements(const Tensor& operand, const TensorType& type) {
  Tensor result = Tensor::Zeros(type);
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(type); ++i)
      *result.at(i) = std::isfinite(static_cast<double>(scalar.Load(operand.at(i))));
  });
  return result;
}

Tensor SelectElements(const Tensor& predicate, const Tensor& on_true, const Tensor& on_false) {
  Tensor result = Tensor::Zeros(on_true.type);
  for (int64_t i = 0; i < Elements(result.type); ++i)
    CopyElement(*predicate.at(At(predicate, i)) != 0 ? on_true : on_false, i, &result, i);
  return result;
}

Tensor ClampElements(const Tensor& least, const Tensor& operand, const Tensor& most) {
  Tensor result = Tensor::Zeros(operand.type);
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(result.type); ++i) {
      const auto raised = Binary(OpKind::kMaximum, scalar.Load(operand.at(i)), scalar.Load(least.at(At(least, i))));
      scalar.Store(Binary(OpKind::kMinimum, raised, scalar.Load(most.at(At(most, i)))), result.at(i));
    }
  });
  return result;
}

Tensor UnaryElements(OpKind kind, const Tensor& operand) {
  Tensor result = Tensor::Zeros(operand.type);
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(result.type); ++i)
      scalar.Store(Unary(kind, scalar.Load(operand.at(i))), result.at(i));
  });
  return result;
}

Tensor BinaryElements(OpKind kind, const Tensor& a, const Tensor& b) {
  Tensor result = Tensor::Zeros(a.type);
  VisitScalar(a.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(result.type); ++i)
      scalar.Store(Binary(kind, scalar.Load(a.at(i)), scalar.Load(b.at(i))), result.at(i));
  });
  return result;
}

}  // namespace

Tensor ComputeElements(const Operation& operation, TensorSpan operands) {
  switch (operation.kind) {
    case OpKind::kConvert:
      return ConvertElements(*operands[0], operation.results[0].type);
    case OpKind::kCompare:
      return CompareElements(Get<Direction>(operation, Attr::kDirection), *operands[0], *operands[1],
                             operation.results[0].type);
    case OpKind::kIsFinite:
      return FiniteElements(*operands[0], operation.results[0].type);
    case OpKind::kSelect:
      return SelectElements(*operands[0], *operands[1], *operands[2]);
    case OpKind::kClamp:
      return ClampElements(*operands[0], *operands[1], *operands[2]);
    case OpKind::kCopy:
      return *operands[0];
    default:
      return operands.size() == 1 ? UnaryElements(operation.kind, *operands[0])
                                  : BinaryElements(operation.kind, *operands[0], *operands[1]);
  }
}

}  // namespace axccl::program
