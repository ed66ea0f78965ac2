#include "tests/program/random_body.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/program/kinds.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

constexpr int64_t kMostElements = 600;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64, DataType::kBfloat16, DataType::kFloat16,
                               DataType::kBool,    DataType::kInt8,    DataType::kInt16,    DataType::kInt32,
                               DataType::kInt64,   DataType::kUint8,   DataType::kUint16,   DataType::kUint32,
                               DataType::kUint64};

bool IsBool(DataType type) { return type == DataType::kBool; }

Literal LiteralOf(DataType type, double value) {
  Literal literal;
  literal.bytes.resize(ElementSize(type));
  VisitScalar(type, [&](auto scalar) {
    scalar.Store(static_cast<typename decltype(scalar)::Number>(value), literal.bytes.data());
  });
  return literal;
}

Ints Range(size_t begin, size_t end) {
  Ints range(end - begin);
  std::iota(range.begin(), range.end(), static_cast<int64_t>(begin));
  return range;
}

}  // namespace

TensorType RandomType(harness::Random* random) {
  TensorType type;
  do {
    type.data_type = kTypes[random->Below(std::size(kTypes))];
    type.dims.clear();
    for (uint64_t dims = random->Below(5); dims != 0; --dims)
      type.dims.push_back(static_cast<int64_t>(random->OneIn(12) ? 0 : 1 + random->Below(7)));
  } while (Elements(type) > kMostElements);
  return type;
}

Combine RandomFold(DataType type, harness::Random* random) {
  return static_cast<Combine>(random->Below(IsFloat(type) ? 4 : 7));
}

PartMaker::PartMaker(std::string name, Ints ranks, harness::Random* random) : random_(random) {
  part_.ranks = std::move(ranks);
  next_id_ = static_cast<Id>(random_->Below(3));
  std::vector<TensorType> arguments = {{DataType::kInt32, {}}, {DataType::kBool, {}}};
  for (uint64_t more = 1 + random_->Below(3); more != 0; --more) arguments.push_back(RandomType(random_));
  Shuffle(&arguments, random_);
  Open(name, arguments, true);
}

std::vector<Value> PartMaker::Open(const std::string& name, const std::vector<TensorType>& arguments, bool may_donate) {
  Body body;
  if (!bodies_.empty()) body.visible = bodies_.back().visible;
  body.function.name = name;
  for (const TensorType& type : arguments) {
    body.function.arguments.push_back({NewId(), type, may_donate && random_->OneIn(2)});
    body.visible.push_back(body.function.arguments.back());
    if (body.visible.back().donated) body.own.push_back(body.visible.back().id);
  }
  bodies_.push_back(std::move(body));
  return bodies_.back().function.arguments;
}

Function PartMaker::Close(const std::vector<Id>& results) {
  Function function = std::move(bodies_.back().function);
  function.results = results;
  bodies_.pop_back();
  return function;
}

Part PartMaker::End() {
  std::vector<Id> results;
  for (uint64_t n = 1 + random_->Below(5); n != 0; --n) results.push_back(Pick().id);
  part_.function = Close(results);
  return std::move(part_);
}

std::vector<Value> PartMaker::Emit(OpKind kind, std::vector<Id> operands, const std::vector<TensorType>& results,
                                   std::vector<Attribute> attributes, std::vector<Function> regions) {
  Body& body = bodies_.back();
  Operation operation;
  operation.kind = kind;
  operation.operands = std::move(operands);
  for (const TensorType& type : results) operation.results.push_back({NewId(), type});
  operation.id = results.empty() ? NewId() : operation.results[0].id;
  operation.attributes = std::move(attributes);
  operation.regions = std::move(regions);
  for (const Value& result : operation.results) {
    body.visible.push_back(result);
    body.own.push_back(result.id);
  }
  body.function.operations.push_back(std::move(operation));
  return body.function.operations.back().results;
}

void PartMaker::Free() {
  Body& body = bodies_.back();
  std::vector<Id> freed;
  for (uint64_t n = 1 + random_->Below(3); n != 0 && !body.own.empty(); --n) {
    const size_t i = random_->Below(body.own.size());
    // Of a part, something must stay to be returned.
    if (body.visible.size() < 4) break;
    freed.push_back(body.own[i]);
    body.own.erase(body.own.begin() + static_cast<ptrdiff_t>(i));
    std::erase_if(body.visible, [&](const Value& value) { return value.id == freed.back(); });
  }
  if (!freed.empty()) Emit(OpKind::kFree, freed, {});
}

std::vector<Id> PartMaker::SharedArguments(DataType type) const {
  std::vector<Id> ids;
  for (const Value& value : bodies_[0].function.arguments) {
    const bool is_there = std::any_of(bodies_.back().visible.begin(), bodies_.back().visible.end(),
                                      [&](const Value& seen) { return seen.id == value.id; });
    if (is_there && value.type == TensorType{type, {}}) ids.push_back(value.id);
  }
  return ids;
}

// ---- values ----

Id PartMaker::Constant(DataType type, int64_t value) {
  return Emit(OpKind::kConstant, {}, {{type, {}}}, {{Attr::kValue, LiteralOf(type, static_cast<double>(value))}})[0].id;
}

Id PartMaker::Find(const TensorType& type) {
  std::vector<Id> found;
  for (const Value& value : bodies_.back().visible) {
    if (value.type == type) found.push_back(value.id);
  }
  // Mostly the latest, so that results are used.
  if (!found.empty() && !random_->OneIn(6)) return random_->OneIn(2) ? found.back() : random_->Pick(found);
  const auto same_size =
      std::find_if(bodies_.back().visible.begin(), bodies_.back().visible.end(), [&](const Value& value) {
        return Elements(value.type) == Elements(type) && value.type.data_type != type.data_type;
      });
  if (same_size == bodies_.back().visible.end() || random_->OneIn(2)) return Make(type);
  const Ints dims = same_size->type.dims;
  const Id converted = Emit(OpKind::kConvert, {same_size->id}, {{type.data_type, dims}})[0].id;
  return dims == type.dims ? converted : Emit(OpKind::kReshape, {converted}, {type})[0].id;
}

Id PartMaker::Make(const TensorType& type) {
  const size_t visible = bodies_.back().visible.size(), own = bodies_.back().own.size();
  const Id made = MakeByOperations(type);
  Body& body = bodies_.back();  // only what is made is for others
  body.visible.erase(body.visible.begin() + static_cast<ptrdiff_t>(visible), body.visible.end() - 1);
  body.own.erase(body.own.begin() + static_cast<ptrdiff_t>(own), body.own.end() - 1);
  return made;
}

// Numbers that depend on the rank, or a random constant.
Id PartMaker::MakeByOperations(const TensorType& type) {
  if (random_->OneIn(4)) {
    Literal literal;
    const bool splat = Elements(type) > kMostElements || random_->OneIn(2);
    for (int64_t i = splat ? 1 : Elements(type); i > 0; --i) {
      const auto value = static_cast<double>(random_->Below(IsBool(type.data_type) ? 2 : 9)) - 2;
      const Literal element = LiteralOf(type.data_type, IsUnsigned(type.data_type) ? std::max(value, 0.0)
                                                        : IsBool(type.data_type)   ? value + 2
                                                                                   : value / 2);
      literal.bytes.insert(literal.bytes.end(), element.bytes.begin(), element.bytes.end());
    }
    return Emit(OpKind::kConstant, {}, {type}, {{Attr::kValue, literal}})[0].id;
  }
  const DataType number = IsBool(type.data_type) ? DataType::kInt32 : type.data_type;
  const Id rank = Emit(OpKind::kPartitionId, {}, {{DataType::kUint32, {}}})[0].id;
  const Id same = Emit(OpKind::kConvert, {rank}, {{number, {}}})[0].id;
  const TensorType numbers{number, type.dims};
  Id made = Emit(OpKind::kBroadcastInDim, {same}, {numbers}, {{Attr::kDims, Ints()}})[0].id;
  if (!type.dims.empty()) {
    const auto dim = static_cast<int64_t>(random_->Below(type.dims.size()));
    const Id counts = Emit(OpKind::kIota, {}, {numbers}, {{Attr::kDim, dim}})[0].id;
    made = Emit(random_->OneIn(2) ? OpKind::kAdd : OpKind::kSubtract, {made, counts}, {numbers})[0].id;
  }
  if (!IsBool(type.data_type)) return made;
  const Id other = Emit(OpKind::kBroadcastInDim, {Constant(number, 2)}, {numbers}, {{Attr::kDims, Ints()}})[0].id;
  return Emit(OpKind::kCompare, {made, other}, {type}, {{Attr::kDirection, Direction::kLt}})[0].id;
}

// ---- local operations ----

void PartMaker::Compute() {
  if (random_->OneIn(8)) return Free();
  const Value x = Pick();
  switch (random_->Below(13)) {
    case 0:
    case 1:
      return ComputeUnary(x);
    case 2:
    case 3:
      return ComputeBinary(x);
    case 4:
      return ComputeOfThree(x);
    case 5:
      return Reshape(x);
    case 6:
      return Cut(x);
    case 7:
      return Extend(x);
    case 8:
      return Slide(x);
    case 9:
      return Index(x);
    case 10:
      return Multiply(x);
    case 11:
      return Reduce(x);
    default:
      return Generate();
  }
}

void PartMaker::ComputeUnary(const Value& x) {
  const DataType type = x.type.data_type;
  std::vector<OpKind> kinds = {OpKind::kCopy, OpKind::kConvert, OpKind::kOptimizationBarrier};
  if (!IsFloat(type)) kinds.push_back(OpKind::kNot);
  if (!IsBool(type)) kinds.push_back(OpKind::kNegate);
  if (IsFloat(type) || (IsInteger(type) && !IsUnsigned(type))) kinds.insert(kinds.end(), {OpKind::kAbs, OpKind::kSign});
  if (IsFloat(type))
    kinds.insert(kinds.end(), {OpKind::kCosine, OpKind::kExponential, OpKind::kFloor, OpKind::kLog, OpKind::kRsqrt,
                               OpKind::kSine, OpKind::kSqrt, OpKind::kTanh, OpKind::kIsFinite});
  const OpKind kind = random_->Pick(kinds);
  TensorType result = x.type;
  if (kind == OpKind::kConvert) result.data_type = kTypes[random_->Below(std::size(kTypes))];
  if (kind == OpKind::kIsFinite) result.data_type = DataType::kBool;
  if (kind == OpKind::kOptimizationBarrier && random_->OneIn(2)) {
    const Value y = Pick();
    Emit(kind, {x.id, y.id}, {x.type, y.type});
    return;
  }
  Emit(kind, {x.id}, {result});
}

void PartMaker::ComputeBinary(const Value& x) {
  const DataType type = x.type.data_type;
  std::vector<OpKind> kinds = {OpKind::kAdd, OpKind::kMaximum, OpKind::kMinimum, OpKind::kMultiply, OpKind::kCompare};
  if (!IsFloat(type)) kinds.insert(kinds.end(), {OpKind::kAnd, OpKind::kOr, OpKind::kXor});
  if (!IsBool(type))
    kinds.insert(kinds.end(), {OpKind::kSubtract, OpKind::kDivide, OpKind::kRemainder, OpKind::kPower});
  const OpKind kind = random_->Pick(kinds);
  std::vector<Id> operands = {x.id, Find(x.type)};
  if (random_->OneIn(2)) std::swap(operands[0], operands[1]);
  if (kind != OpKind::kCompare) {
    Emit(kind, operands, {x.type});
    return;
  }
  Emit(kind, operands, {{DataType::kBool, x.type.dims}},
       {{Attr::kDirection, static_cast<Direction>(random_->Below(6))}});
}

void PartMaker::ComputeOfThree(const Value& x) {
  const bool whole = random_->OneIn(2);
  if (random_->OneIn(2)) {
    const Id predicate = Find({DataType::kBool, whole ? x.type.dims : Ints()});
    Emit(OpKind::kSelect, {predicate, x.id, Find(x.type)}, {x.type});
    return;
  }
  const TensorType bound = whole ? x.type : TensorType{x.type.data_type, {}};
  const Id least = Find(bound), most = Find(bound);
  Emit(OpKind::kClamp, {least, x.id, most}, {x.type});
}

void PartMaker::Reshape(const Value& x) {
  TensorType to = x.type;
  Ints dims = Range(0, to.dims.size());
  switch (random_->Below(4)) {
    case 0:
      Shuffle(&dims, random_);
      for (size_t d = 0; d < dims.size(); ++d) to.dims[d] = x.type.dims[static_cast<size_t>(dims[d])];
      Emit(OpKind::kTranspose, {x.id}, {to}, {{Attr::kDims, dims}});
      return;
    case 1:
      Shuffle(&dims, random_);
      dims.resize(random_->Below(dims.size() + 1));
      Emit(OpKind::kReverse, {x.id}, {to}, {{Attr::kDims, dims}});
      return;
    case 2:
      to.dims = random_->OneIn(2) ? Ints{Elements(x.type)} : Ints{1, Elements(x.type)};
      Emit(OpKind::kReshape, {x.id}, {to});
      return;
    default:
      if (to.dims.size() >= 4 || Elements(to) > kMostElements / 4) return;
      const size_t at = random_->Below(to.dims.size() + 1);
      for (size_t d = at; d < dims.size(); ++d) ++dims[d];
      to.dims.insert(to.dims.begin() + static_cast<ptrdiff_t>(at), static_cast<int64_t>(random_->Below(4)));
      Emit(OpKind::kBroadcastInDim, {x.id}, {to}, {{Attr::kDims, dims}});
  }
}

void PartMaker::Cut(const Value& x) {
  TensorType to = x.type;
  Ints starts, limits, strides;
  for (int64_t& size : to.dims) {
    const auto start = static_cast<int64_t>(random_->Below(static_cast<uint64_t>(size) + 1));
    const auto limit = start + static_cast<int64_t>(random_->Below(static_cast<uint64_t>(size - start) + 1));
    starts.push_back(random_->OneIn(2) ? 0 : start);
    limits.push_back(random_->OneIn(2) ? size : limit);
    strides.push_back(static_cast<int64_t>(1 + random_->Below(3)));
    size = (limits.back() - starts.back() + strides.back() - 1) / strides.back();
  }
  Emit(OpKind::kSlice, {x.id}, {to}, {{Attr::kStarts, starts}, {Attr::kLimits, limits}, {Attr::kStrides, strides}});
}

void PartMaker::Extend(const Value& x) {
  TensorType to = x.type;
  if (Elements(to) > kMostElements / 8 || (!to.dims.empty() && random_->OneIn(2))) {
    if (to.dims.empty() || Elements(to) > kMostElements / 2) return;
    const size_t dim = random_->Below(to.dims.size());
    std::vector<Id> operands = {x.id, Find(x.type)};
    to.dims[dim] *= 2;
    Emit(OpKind::kConcatenate, operands, {to}, {{Attr::kDim, static_cast<int64_t>(dim)}});
    return;
  }
  Ints low, high, interior;
  for (int64_t& size : to.dims) {
    low.push_back(static_cast<int64_t>(random_->Below(3)) - 1);
    high.push_back(static_cast<int64_t>(random_->Below(2)));
    interior.push_back(static_cast<int64_t>(random_->Below(2)));
    const int64_t inner = size + std::max<int64_t>(size - 1, 0) * interior.back();
    if (inner + low.back() + high.back() < 0) low.back() = 0;
    size = inner + low.back() + high.back();
  }
  const Id padding = Find({x.type.data_type, {}});
  Emit(OpKind::kPad, {x.id, padding}, {to}, {{Attr::kLow, low}, {Attr::kHigh, high}, {Attr::kInterior, interior}});
}

// Slices that start where values say.
void PartMaker::Slide(const Value& x) {
  TensorType window = x.type;
  for (int64_t& size : window.dims) size = static_cast<int64_t>(random_->Below(static_cast<uint64_t>(size) + 1));
  const TensorType start{random_->OneIn(2) ? DataType::kInt32 : DataType::kUint8, {}};
  std::vector<Id> operands = {x.id};
  const bool updates = random_->OneIn(2);
  if (updates) operands.push_back(Find(window));
  for (size_t d = 0; d < window.dims.size(); ++d) operands.push_back(Find(start));
  if (updates) {
    Emit(OpKind::kDynamicUpdateSlice, operands, {x.type});
  } else {
    Emit(OpKind::kDynamicSlice, operands, {window}, {{Attr::kSizes, window.dims}});
  }
}

// Rows that indices name.
void PartMaker::Index(const Value& x) {
  if (x.type.dims.empty() || x.type.dims[0] == 0) return;
  const auto count = static_cast<int64_t>(random_->Below(4));
  const Id indices = Find({DataType::kInt32, {count}});
  TensorType rows = x.type;
  rows.dims[0] = count;
  const Ints window = Range(1, x.type.dims.size()), first = {0};
  Ints sizes = x.type.dims;
  sizes[0] = 1;
  if (random_->OneIn(2)) {
    Emit(OpKind::kGather, {x.id, indices}, {rows},
         {{Attr::kOffsetDims, window},
          {Attr::kCollapsedSliceDims, first},
          {Attr::kOperandBatchingDims, Ints()},
          {Attr::kStartIndicesBatchingDims, Ints()},
          {Attr::kStartIndexMap, first},
          {Attr::kIndexVectorDim, 1},
          {Attr::kSizes, sizes}});
    return;
  }
  const Id updates = Find(rows);
  Emit(OpKind::kScatter, {x.id, indices, updates}, {x.type},
       {{Attr::kFold, RandomFold(x.type.data_type, random_)},
        {Attr::kUpdateWindowDims, window},
        {Attr::kInsertedWindowDims, first},
        {Attr::kInputBatchingDims, Ints()},
        {Attr::kScatterIndicesBatchingDims, Ints()},
        {Attr::kScatterDimsToOperandDims, first},
        {Attr::kIndexVectorDim, 1}});
}

void PartMaker::Multiply(const Value& x) {
  if (x.type.dims.empty()) return;
  const auto columns = static_cast<int64_t>(random_->Below(5));
  const DataType type = x.type.data_type;
  if (x.type.dims.size() <= 2) {
    const Id y = Find({type, {x.type.dims.back(), columns}});
    TensorType product{type, {columns}};
    if (x.type.dims.size() == 2) product.dims.insert(product.dims.begin(), x.type.dims[0]);
    Emit(OpKind::kDot, {x.id, y}, {product});
    return;
  }
  const Id y = Find({type, {x.type.dims[0], columns, x.type.dims[1]}});
  TensorType product{type, {x.type.dims[0]}};
  product.dims.insert(product.dims.end(), x.type.dims.begin() + 2, x.type.dims.end());
  product.dims.push_back(columns);
  Emit(OpKind::kDotGeneral, {x.id, y}, {product},
       {{Attr::kLhsBatchingDims, Ints{0}},
        {Attr::kRhsBatchingDims, Ints{0}},
        {Attr::kLhsContractingDims, Ints{1}},
        {Attr::kRhsContractingDims, Ints{2}}});
}

void PartMaker::Reduce(const Value& x) {
  Ints dims;
  TensorType to{x.type.data_type, {}};
  for (size_t d = 0; d < x.type.dims.size(); ++d) {
    if (random_->OneIn(2)) {
      dims.push_back(static_cast<int64_t>(d));
    } else {
      to.dims.push_back(x.type.dims[d]);
    }
  }
  const Id first = Find({x.type.data_type, {}});
  Emit(OpKind::kReduce, {x.id, first}, {to},
       {{Attr::kFold, RandomFold(x.type.data_type, random_)}, {Attr::kDims, dims}});
}

void PartMaker::Generate() {
  if (random_->OneIn(3)) {
    Emit(random_->OneIn(2) ? OpKind::kReplicaId : OpKind::kPartitionId, {}, {{DataType::kUint32, {}}});
  } else {
    Make(RandomType(random_));
  }
}

}  // namespace axccl::program
