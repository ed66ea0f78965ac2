// Element by element: the reference's arithmetic, with the kind of operation known to the compiler.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "src/program/fast/fast.h"
#include "src/program/reference/arithmetic.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

// Calls visit(constant) with the one of kValues that `value` is.
template <auto... kValues, class Value, class Visit>
void VisitConstant(Value value, const Visit& visit) {
  (void)((value == kValues && (visit(std::integral_constant<Value, kValues>()), true)) || ...);
}

template <class Visit>
void VisitUnaryKind(OpKind kind, const Visit& visit) {
  using enum OpKind;
  VisitConstant<kAbs, kCosine, kExponential, kFloor, kLog, kNegate, kNot, kRsqrt, kSign, kSine, kSqrt, kTanh>(kind,
                                                                                                              visit);
}

template <class Visit>
void VisitBinaryKind(OpKind kind, const Visit& visit) {
  using enum OpKind;
  VisitConstant<kAdd, kAnd, kDivide, kMaximum, kMinimum, kMultiply, kOr, kPower, kRemainder, kSubtract, kXor>(kind,
                                                                                                              visit);
}

// to[i] = compute(i), for each element of *to.
template <class Target, class Compute>
void FillElements(Target target, Tensor* to, const Compute& compute) {
  uint8_t* const bytes = to->bytes.data();
  const size_t size = to->element(), elements = static_cast<size_t>(Elements(to->type));
  for (size_t i = 0; i < elements; ++i) target.Store(compute(i), bytes + i * size);
}

// Reads an element of the operand. A scalar operand of clamp and select stands for all elements.
template <class Source>
auto Reader(Source source, const Tensor& operand) {
  const uint8_t* const bytes = operand.bytes.data();
  constexpr size_t kSize =
      sizeof(std::conditional_t < std::is_same_v<Source, ShortScalar<5>> || std::is_same_v<Source, ShortScalar<8>>,
             uint16_t, typename Source::Number >);
  return [=](size_t i) { return source.Load(bytes + i * kSize); };
}

Tensor FastUnary(OpKind kind, const Tensor& operand) {
  Tensor result = Tensor::Zeros(operand.type);
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    VisitUnaryKind(kind, [&](auto known) {
      const auto x = Reader(scalar, operand);
      FillElements(scalar, &result, [&](size_t i) { return Unary(known(), x(i)); });
    });
  });
  return result;
}

Tensor FastBinary(OpKind kind, const Tensor& left, const Tensor& right) {
  Tensor result = Tensor::Zeros(left.type);
  VisitScalar(left.type.data_type, [&](auto scalar) {
    VisitBinaryKind(kind, [&](auto known) {
      const auto a = Reader(scalar, left), b = Reader(scalar, right);
      FillElements(scalar, &result, [&](size_t i) { return Binary(known(), a(i), b(i)); });
    });
  });
  return result;
}

Tensor FastConvert(const Tensor& operand, const TensorType& type) {
  if (operand.type.data_type == type.data_type) return {type, operand.bytes};
  Tensor result = Tensor::Zeros(type);
  VisitScalar(operand.type.data_type, [&](auto source) {
    VisitScalar(type.data_type, [&](auto target) {
      using To = typename decltype(target)::Number;
      const auto x = Reader(source, operand);
      if constexpr (std::is_same_v<To, float>) {
        FillElements(target, &result, x);  // rounded once, also to 16 bits
      } else {
        FillElements(target, &result, [&](size_t i) { return Convert<To>(x(i)); });
      }
    });
  });
  return result;
}

Tensor FastCompare(Direction direction, const Tensor& left, const Tensor& right, const TensorType& type) {
  using enum Direction;
  Tensor result = Tensor::Zeros(type);
  VisitScalar(left.type.data_type, [&](auto scalar) {
    VisitConstant<kEq, kNe, kGe, kGt, kLe, kLt>(direction, [&](auto known) {
      const auto a = Reader(scalar, left), b = Reader(scalar, right);
      FillElements(Scalar<bool, uint8_t>(), &result, [&](size_t i) { return Compare(known(), a(i), b(i)); });
    });
  });
  return result;
}

template <class Word>
void SelectWords(const uint8_t* predicate, const Tensor& on_true, const Tensor& on_false, Tensor* result) {
  const auto a = Reader(Scalar<Word>(), on_true), b = Reader(Scalar<Word>(), on_false);
  FillElements(Scalar<Word>(), result, [&](size_t i) {
    const Word x = a(i), y = b(i);
    return predicate[i] != 0 ? x : y;
  });
}

Tensor FastSelect(const Tensor& predicate, const Tensor& on_true, const Tensor& on_false) {
  if (predicate.type.dims.empty()) return *predicate.at(0) != 0 ? on_true : on_false;
  Tensor result = Tensor::Zeros(on_true.type);
  VisitConstant<size_t{1}, size_t{2}, size_t{4}, size_t{8}>(result.element(), [&](auto size) {
    using Word = std::conditional_t<
        size() == 1, uint8_t,
        std::conditional_t<size() == 2, uint16_t, std::conditional_t<size() == 4, uint32_t, uint64_t>>>;
    SelectWords<Word>(predicate.bytes.data(), on_true, on_false, &result);
  });
  return result;
}

Tensor FastIsFinite(const Tensor& operand, const TensorType& type) {
  Tensor result = Tensor::Zeros(type);
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    const auto x = Reader(scalar, operand);
    for (size_t i = 0; i < result.bytes.size(); ++i) result.bytes[i] = std::isfinite(static_cast<double>(x(i)));
  });
  return result;
}

Tensor FastClamp(const Tensor& least, const Tensor& operand, const Tensor& most) {
  Tensor result = Tensor::Zeros(operand.type);
  const size_t of_least = least.type.dims.empty() ? 0 : 1, of_most = most.type.dims.empty() ? 0 : 1;
  VisitScalar(operand.type.data_type, [&](auto scalar) {
    const auto low = Reader(scalar, least), x = Reader(scalar, operand), high = Reader(scalar, most);
    FillElements(scalar, &result, [&](size_t i) {
      const auto raised = Binary(OpKind::kMaximum, x(i), low(i * of_least));
      return Binary(OpKind::kMinimum, raised, high(i * of_most));
    });
  });
  return result;
}

}  // namespace

Tensor FastElements(const Operation& operation, TensorSpan operands) {
  switch (operation.kind) {
    case OpKind::kConvert:
      return FastConvert(*operands[0], operation.results[0].type);
    case OpKind::kCompare:
      return FastCompare(Get<Direction>(operation, Attr::kDirection), *operands[0], *operands[1],
                         operation.results[0].type);
    case OpKind::kIsFinite:
      return FastIsFinite(*operands[0], operation.results[0].type);
    case OpKind::kSelect:
      return FastSelect(*operands[0], *operands[1], *operands[2]);
    case OpKind::kClamp:
      return FastClamp(*operands[0], *operands[1], *operands[2]);
    case OpKind::kCopy:
      return *operands[0];
    default:
      return operands.size() == 1 ? FastUnary(operation.kind, *operands[0])
                                  : FastBinary(operation.kind, *operands[0], *operands[1]);
  }
}

}  // namespace axccl::program
