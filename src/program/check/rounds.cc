#include "src/program/check/rounds.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "src/program/check/rules.h"
#include "src/program/element.h"

namespace axccl::program {
namespace {

using Wide = __int128;

struct CounterRange {
  Wide least, most;
};

CounterRange RangeOf(DataType type) {
  const int bits = static_cast<int>(8 * ElementSize(type));
  if (IsUnsigned(type)) return {0, (Wide{1} << bits) - 1};
  return {-(Wide{1} << (bits - 1)), (Wide{1} << (bits - 1)) - 1};
}

// The rounds of a counter that goes from `first` in steps while `counter direction limit` holds.
std::optional<Wide> CountRounds(Wide first, Wide step, Direction direction, Wide limit) {
  if (direction == Direction::kGe || direction == Direction::kGt) {
    first = -first;
    step = -step;
    limit = -limit;
    direction = direction == Direction::kGe ? Direction::kLe : Direction::kLt;
  }
  if (direction == Direction::kLe) ++limit;
  const Wide way = limit - first;
  switch (direction) {
    case Direction::kLe:
    case Direction::kLt:
      if (way <= 0) return 0;
      if (step <= 0) return std::nullopt;
      return (way + step - 1) / step;
    case Direction::kNe:
      if (way == 0) return 0;
      if (step == 0 || way % step != 0 || way / step < 0) return std::nullopt;
      return way / step;
    default:
      return std::nullopt;
  }
}

}  // namespace

void Rounds::Learn(const Function& function) {
  for (const Operation& operation : function.operations) {
    for (const Value& result : operation.results) makers_[result.id] = &operation;
    for (const Function& region : operation.regions) Learn(region);
  }
}

std::optional<Wide> Rounds::ConstantOf(Id value) const {
  const Operation* const maker = makers_.Find(value);
  if (maker == nullptr || maker->kind != OpKind::kConstant) return std::nullopt;
  const TensorType& type = maker->results[0].type;
  if (!IsInteger(type.data_type) || !type.dims.empty()) return std::nullopt;
  const std::string text = ElementText(type.data_type, Get<Literal>(*maker, Attr::kValue).bytes.data());
  const bool is_negative = text[0] == '-';
  uint64_t size = 0;
  std::from_chars(text.data() + (is_negative ? 1 : 0), text.data() + text.size(), size);
  return is_negative ? -Wide{size} : Wide{size};
}

std::optional<Wide> Rounds::StepOf(Id argument, Id result) const {
  const Operation* const maker = makers_.Find(result);
  if (maker == nullptr) return std::nullopt;
  const Operation& operation = *maker;
  const bool is_add = operation.kind == OpKind::kAdd;
  if (!is_add && operation.kind != OpKind::kSubtract) return std::nullopt;
  if (operation.operands[0] == argument) {
    const std::optional<Wide> step = ConstantOf(operation.operands[1]);
    if (!step || is_add) return step;
    return -*step;
  }
  return is_add && operation.operands[1] == argument ? ConstantOf(operation.operands[0]) : std::nullopt;
}

std::optional<int64_t> Rounds::Of(const Operation& loop) const {
  const Function &cond = loop.regions[0], &body = loop.regions[1];
  const Operation* const maker = makers_.Find(cond.results[0]);
  if (maker == nullptr || maker->kind != OpKind::kCompare) return std::nullopt;
  const Operation& compare = *maker;
  for (size_t i = 0; i < cond.arguments.size(); ++i) {
    if (cond.arguments[i].id != compare.operands[0]) continue;
    const std::optional<Wide> first = ConstantOf(loop.operands[i]), limit = ConstantOf(compare.operands[1]);
    const std::optional<Wide> step = StepOf(body.arguments[i].id, body.results[i]);
    if (!first || !limit || !step) return std::nullopt;
    const std::optional<Wide> rounds = CountRounds(*first, *step, Get<Direction>(compare, Attr::kDirection), *limit);
    const CounterRange range = RangeOf(cond.arguments[i].type.data_type);
    if (!rounds || *rounds > std::numeric_limits<int64_t>::max()) return std::nullopt;
    // A counter that wraps around goes on.
    const Wide last = *first + *rounds * *step;
    if (last < range.least || last > range.most) return std::nullopt;
    return static_cast<int64_t>(*rounds);
  }
  return std::nullopt;
}

}  // namespace axccl::program
