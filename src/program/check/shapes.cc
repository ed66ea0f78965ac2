#include <algorithm>
#include <utility>

#include "src/program/check/rules.h"

namespace axccl::program {
namespace {

Status CheckBroadcastInDim(const Site& site) {
  const TensorType &from = site.operand(0), &to = site.result();
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C1)"));
  AXCCL_RETURN_IF_ERROR(CheckLength(site, Attr::kDims, Rank(from), "(C2)"));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {Attr::kDims, Rank(to), "(C3)", "(C4)"}));
  TensorType wanted = to;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d] != 1) wanted.dims[static_cast<size_t>(site.list(Attr::kDims)[d])] = from.dims[d];
  }
  return site.ExpectResult(0, wanted, "(C5)");
}

Status CheckConcatenate(const Site& site) {
  TensorType sum = site.operand(0);
  AXCCL_RETURN_IF_ERROR(CheckDim(site, Attr::kDim, Rank(sum), "(C4)"));
  const auto dim = static_cast<size_t>(site.number(Attr::kDim));
  for (size_t i = 1; i < site.operands.size(); ++i) {
    AXCCL_RETURN_IF_ERROR(site.ExpectDataType(i, "(C1)"));
    TensorType like = site.operand(0);
    const TensorType& operand = site.operand(i);
    if (Rank(operand) == Rank(like)) like.dims[dim] = operand.dims[dim];
    AXCCL_RETURN_IF_ERROR(site.ExpectOperand(i, like, "(C2)"));
    sum.dims[dim] = Plus(sum.dims[dim], operand.dims[dim]);
  }
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C5)"));
  return site.ExpectResult(0, sum, "(C6)");
}

Status CheckConstant(const Site& site) {
  const size_t bytes = Get<Literal>(site.operation, Attr::kValue).bytes.size();
  const size_t size = ElementSize(site.result().data_type);
  const auto elements = static_cast<uint64_t>(Elements(site.result()));
  if (bytes % size == 0 && (bytes / size == 1 || bytes / size == elements)) return Status();
  return site.Fail("(C1)", "value has " + std::to_string(bytes) + " bytes, which are not one element, nor all " +
                               std::to_string(elements));
}

// The starts of a dynamic slice, from operand `first` on.
Status CheckStarts(const Site& site, size_t first, const char* number, const char* same) {
  const size_t wanted = first + site.operand(0).dims.size();
  if (site.operands.size() != wanted)
    return site.Fail(number, "has " + std::to_string(site.operands.size() - first) + " starts, expected " +
                                 std::to_string(wanted - first));
  for (size_t i = first; i < wanted; ++i) {
    if (!IsInteger(site.operand(i).data_type) || Rank(site.operand(i)) != 0)
      return site.FailOperand(i, first == 1 ? "(I2)" : "(I3)", "an integer without dimensions");
    AXCCL_RETURN_IF_ERROR(site.ExpectOperand(i, site.operand(first), same));
  }
  return Status();
}

Status CheckDynamicSlice(const Site& site) {
  const TensorType& operand = site.operand(0);
  const Ints& sizes = site.list(Attr::kSizes);
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C1)"));
  AXCCL_RETURN_IF_ERROR(CheckStarts(site, 1, "(C2)", "(C3)"));
  AXCCL_RETURN_IF_ERROR(CheckLength(site, Attr::kSizes, Rank(operand), "(C2)"));
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || sizes[d] > operand.dims[d])
      return site.FailOperand(0, "(C4)", "at least " + std::to_string(sizes[d]) + " in dimension " + std::to_string(d));
  }
  return site.ExpectResult(0, {operand.data_type, sizes}, "(C5)");
}

Status CheckDynamicUpdateSlice(const Site& site) {
  const TensorType &operand = site.operand(0), &update = site.operand(1);
  AXCCL_RETURN_IF_ERROR(site.ExpectDataType(1, "(C2)"));
  if (Rank(update) != Rank(operand)) return site.FailOperand(1, "(C3)", std::to_string(Rank(operand)) + " dimensions");
  AXCCL_RETURN_IF_ERROR(CheckStarts(site, 2, "(C4)", "(C5)"));
  for (size_t d = 0; d < update.dims.size(); ++d) {
    if (update.dims[d] > operand.dims[d])
      return site.FailOperand(1, "(C6)",
                              "at most " + std::to_string(operand.dims[d]) + " in dimension " + std::to_string(d));
  }
  return site.ExpectResult(0, operand, "(C1)");
}

Status CheckIota(const Site& site) {
  const TensorType& type = site.result();
  if (!IsInteger(type.data_type) && !IsFloat(type.data_type)) return site.FailResult(0, "", "integers or floats");
  return CheckDim(site, Attr::kDim, Rank(type), "(C1)");
}

Status CheckPad(const Site& site) {
  TensorType padded = site.operand(0);
  AXCCL_RETURN_IF_ERROR(site.ExpectOperand(1, {padded.data_type, {}}, "(C1)"));
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C1)"));
  for (const Attr attr : {Attr::kLow, Attr::kHigh, Attr::kInterior})
    AXCCL_RETURN_IF_ERROR(CheckLength(site, attr, Rank(padded), "(C2)"));
  for (size_t d = 0; d < padded.dims.size(); ++d) {
    const int64_t size = padded.dims[d], interior = site.list(Attr::kInterior)[d];
    if (interior < 0) return site.Fail("(C3)", "interior has " + std::to_string(interior));
    // Of 127 bits at most.
    const __int128 all = __int128{size} + site.list(Attr::kLow)[d] + site.list(Attr::kHigh)[d] +
                         __int128{std::max<int64_t>(size - 1, 0)} * interior;
    padded.dims[d] = all < 0 || all > INT64_MAX ? -1 : static_cast<int64_t>(all);
  }
  return site.ExpectResult(0, padded, "(C4)");
}

Status CheckReduce(const Site& site) {
  const TensorType& operand = site.operand(0);
  AXCCL_RETURN_IF_ERROR(site.ExpectOperand(1, {operand.data_type, {}}, "(C2)"));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {Attr::kDims, Rank(operand), "(C4)", "(C5)"}));
  AXCCL_RETURN_IF_ERROR(CheckFold(site, operand.data_type, "(C6)"));
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C8)"));
  const Ints& dims = site.list(Attr::kDims);
  TensorType reduced{operand.data_type, {}};
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end())
      reduced.dims.push_back(operand.dims[d]);
  }
  return site.ExpectResult(0, reduced, "(C7)");
}

Status CheckReshape(const Site& site) {
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C1)"));
  const int64_t elements = Elements(site.operand(0));
  return Elements(site.result()) == elements ? Status()
                                             : site.FailResult(0, "(C2)", std::to_string(elements) + " elements");
}

Status CheckReverse(const Site& site) {
  AXCCL_RETURN_IF_ERROR(CheckList(site, {Attr::kDims, Rank(site.operand(0)), "(C3)", "(C2)"}));
  return site.ExpectResult(0, site.operand(0), "(C1)");
}

Status CheckSlice(const Site& site) {
  TensorType part = site.operand(0);
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C1)"));
  for (const Attr attr : {Attr::kStarts, Attr::kLimits, Attr::kStrides})
    AXCCL_RETURN_IF_ERROR(CheckLength(site, attr, Rank(part), "(C2)"));
  for (size_t d = 0; d < part.dims.size(); ++d) {
    const int64_t start = site.list(Attr::kStarts)[d], limit = site.list(Attr::kLimits)[d];
    const int64_t stride = site.list(Attr::kStrides)[d];
    if (start < 0 || start > limit || limit > part.dims[d])
      return site.Fail("(C3)", "dimension " + std::to_string(d) + " of " + std::to_string(part.dims[d]) +
                                   " cannot start at " + std::to_string(start) + " and end at " +
                                   std::to_string(limit));
    if (stride <= 0) return site.Fail("(C4)", "strides has " + std::to_string(stride));
    part.dims[d] = (limit - start) / stride + ((limit - start) % stride != 0 ? 1 : 0);
  }
  return site.ExpectResult(0, part, "(C5)");
}

Status CheckTranspose(const Site& site) {
  const TensorType& operand = site.operand(0);
  AXCCL_RETURN_IF_ERROR(site.ExpectResultDataType("(C1)"));
  AXCCL_RETURN_IF_ERROR(CheckLength(site, Attr::kDims, Rank(operand), "(C2)"));
  AXCCL_RETURN_IF_ERROR(CheckList(site, {Attr::kDims, Rank(operand), "(C2)", "(C2)"}));
  TensorType permuted{operand.data_type, {}};
  for (const int64_t dim : site.list(Attr::kDims)) permuted.dims.push_back(operand.dims[static_cast<size_t>(dim)]);
  return site.ExpectResult(0, permuted, "(C3)");
}

Status CheckBarrier(const Site& site) {
  for (size_t i = 0; i < site.operands.size(); ++i)
    AXCCL_RETURN_IF_ERROR(site.ExpectResult(i, site.operand(i), "(C1)"));
  return Status();
}

constexpr std::pair<OpKind, Status (*)(const Site&)> kShapeRules[] = {
    {OpKind::kBroadcastInDim, CheckBroadcastInDim},
    {OpKind::kConcatenate, CheckConcatenate},
    {OpKind::kConstant, CheckConstant},
    {OpKind::kDot, CheckDot},
    {OpKind::kDotGeneral, CheckDot},
    {OpKind::kDynamicSlice, CheckDynamicSlice},
    {OpKind::kDynamicUpdateSlice, CheckDynamicUpdateSlice},
    {OpKind::kGather, CheckGather},
    {OpKind::kIota, CheckIota},
    {OpKind::kOptimizationBarrier, CheckBarrier},
    {OpKind::kPad, CheckPad},
    {OpKind::kReduce, CheckReduce},
    {OpKind::kReshape, CheckReshape},
    {OpKind::kReverse, CheckReverse},
    {OpKind::kScatter, CheckScatter},
    {OpKind::kSlice, CheckSlice},
    {OpKind::kTranspose, CheckTranspose},
};

}  // namespace

Status CheckShape(const Site& site) {
  for (const auto& [kind, check] : kShapeRules) {
    if (kind == site.operation.kind) return check(site);
  }
  return Status();
}

}  // namespace axccl::program
