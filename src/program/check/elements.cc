#include <algorithm>

#include "src/program/check/rules.h"

namespace axccl::program {
namespace {

// Sets of data types.
constexpr unsigned kBools = 1, kSigned = 2, kUnsigned = 4, kFloats = 8;
constexpr unsigned kIntegers = kSigned | kUnsigned, kNumbers = kIntegers | kFloats, kAll = kNumbers | kBools;

unsigned SetOf(DataType type) {
  if (type == DataType::kBool) return kBools;
  if (IsFloat(type)) return kFloats;
  const bool is_unsigned =
      type == DataType::kUint8 || type == DataType::kUint16 || type == DataType::kUint32 || type == DataType::kUint64;
  return is_unsigned ? kUnsigned : kSigned;
}

const char* WordsFor(unsigned set) {
  switch (set) {
    case kFloats:
      return "floats";
    case kSigned | kFloats:
      return "signed integers or floats";
    case kIntegers | kBools:
      return "booleans or integers";
    default:
      return "integers or floats";
  }
}

// Operations whose operands and result have one type.
struct SameTypes {
  OpKind kind;
  unsigned types;
  const char* same;  // the constraint that types are equal
};

constexpr SameTypes kSameTypes[] = {
    {OpKind::kAbs, kSigned | kFloats, "(C1) (C2)"},
    {OpKind::kAdd, kAll, "(C1)"},
    {OpKind::kAnd, kIntegers | kBools, "(C1)"},
    {OpKind::kCopy, kAll, ""},  // not of StableHLO
    {OpKind::kCosine, kFloats, "(C1)"},
    {OpKind::kDivide, kNumbers, "(C1)"},
    {OpKind::kExponential, kFloats, "(C1)"},
    {OpKind::kFloor, kFloats, "(C1)"},
    {OpKind::kLog, kFloats, "(C1)"},
    {OpKind::kMaximum, kAll, "(C1)"},
    {OpKind::kMinimum, kAll, "(C1)"},
    {OpKind::kMultiply, kAll, "(C1)"},
    {OpKind::kNegate, kNumbers, "(C1)"},
    {OpKind::kNot, kIntegers | kBools, "(C1)"},
    {OpKind::kOr, kIntegers | kBools, "(C1)"},
    {OpKind::kPower, kNumbers, "(C1)"},
    {OpKind::kRemainder, kNumbers, "(C1)"},
    {OpKind::kRsqrt, kFloats, "(C1)"},
    {OpKind::kSign, kSigned | kFloats, "(C1)"},
    {OpKind::kSine, kFloats, "(C1)"},
    {OpKind::kSqrt, kFloats, "(C1)"},
    {OpKind::kSubtract, kNumbers, "(C1)"},
    {OpKind::kTanh, kFloats, "(C1)"},
    {OpKind::kXor, kIntegers | kBools, "(C1)"},
};

const SameTypes* RowOf(OpKind kind) {
  const auto found = std::find_if(std::begin(kSameTypes), std::end(kSameTypes),
                                  [&](const SameTypes& row) { return row.kind == kind; });
  return found == std::end(kSameTypes) ? nullptr : found;
}

Status CheckSame(const Site& site, const SameTypes& row) {
  for (size_t i = 0; i < site.operands.size(); ++i) {
    // Labels of inputs, not numbers of constraints: (I1), (I2).
    if ((SetOf(site.operand(i).data_type) & row.types) == 0)
      return site.FailOperand(i, i == 0 ? "(I1)" : "(I2)", WordsFor(row.types));
    AXCCL_RETURN_IF_ERROR(site.ExpectOperand(i, site.operand(0), row.same));
  }
  return site.ExpectResult(0, site.operand(0), row.same);
}

Status CheckClamp(const Site& site) {
  const TensorType& type = site.operand(1);
  const TensorType scalar{type.data_type, {}};
  for (const size_t bound : {size_t{0}, size_t{2}}) {
    if (site.operand(bound).data_type != type.data_type)
      return site.FailOperand(bound, "(C3)", "elements of type " + std::string(NameOf(type.data_type)));
    if (site.operand(bound) != scalar)
      AXCCL_RETURN_IF_ERROR(site.ExpectOperand(bound, type, bound == 0 ? "(C1)" : "(C2)"));
  }
  return site.ExpectResult(0, type, "(C4)");
}

Status CheckCompare(const Site& site) {
  AXCCL_RETURN_IF_ERROR(site.ExpectDataType(1, "(C1)"));
  AXCCL_RETURN_IF_ERROR(site.ExpectOperand(1, site.operand(0), "(C2)"));
  return site.ExpectResult(0, {DataType::kBool, site.operand(0).dims}, "(C2)");
}

Status CheckIsFinite(const Site& site) {
  if ((SetOf(site.operand(0).data_type) & kFloats) == 0) return site.FailOperand(0, "(I1)", WordsFor(kFloats));
  return site.ExpectResult(0, {DataType::kBool, site.operand(0).dims}, "(C1)");
}

Status CheckSelect(const Site& site) {
  const TensorType& type = site.operand(1);
  if (site.operand(0).data_type != DataType::kBool) return site.FailOperand(0, "(I1)", "elements of type i1");
  if (Rank(site.operand(0)) != 0) AXCCL_RETURN_IF_ERROR(site.ExpectOperand(0, {DataType::kBool, type.dims}, "(C1)"));
  AXCCL_RETURN_IF_ERROR(site.ExpectOperand(2, type, "(C2)"));
  return site.ExpectResult(0, type, "(C2)");
}

}  // namespace

bool IsElementwise(OpKind kind) { return kind <= OpKind::kXor; }

Status CheckElementwise(const Site& site) {
  switch (site.operation.kind) {
    case OpKind::kClamp:
      return CheckClamp(site);
    case OpKind::kCompare:
      return CheckCompare(site);
    case OpKind::kConvert:
      return site.ExpectResult(0, {site.result().data_type, site.operand(0).dims}, "(C1)");
    case OpKind::kIsFinite:
      return CheckIsFinite(site);
    case OpKind::kSelect:
      return CheckSelect(site);
    default:
      return CheckSame(site, *RowOf(site.operation.kind));
  }
}

}  // namespace axccl::program
