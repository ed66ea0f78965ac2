#include "tests/program/random_program.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "src/program/element.h"
#include "src/program/kinds.h"

namespace axccl::program {
namespace {

class Maker {
 public:
  explicit Maker(harness::Random* random) : random_(random) {}

  Program Make() {
    program_.ranks = static_cast<int>(1 + random_->Below(random_->OneIn(10) ? kMaxRanks : 8));
    const auto parts = static_cast<int64_t>(1 + random_->Below(static_cast<uint64_t>(std::min(program_.ranks, 3))));
    for (int64_t i = 0; i < parts; ++i) {
      Part part;
      for (int64_t rank = i; rank < std::min(program_.ranks, 8); rank += parts) part.ranks.push_back(rank);
      next_id_ = 0;
      visible_.clear();
      part.function = MakeFunction("part-" + std::to_string(i), 1);
      program_.parts.push_back(std::move(part));
    }
    return std::move(program_);
  }

 private:
  Id NewId() { return next_id_ += static_cast<Id>(1 + random_->Below(3)); }

  TensorType MakeType() {
    TensorType type;
    do {
      type.data_type = static_cast<DataType>(random_->Below(kNumDataTypes));
    } while (NameOf(type.data_type).empty());
    for (uint64_t dims = random_->Below(5); dims != 0; --dims)
      type.dims.push_back(static_cast<int64_t>(random_->Below(random_->OneIn(20) ? 10000 : 4)));
    return type;
  }

  int64_t Number(bool is_signed) {
    const auto number = static_cast<int64_t>(random_->OneIn(20) ? random_->Next() >> 1 : random_->Below(9));
    return is_signed && random_->OneIn(3) ? -number : number;
  }

  Ints MakeInts(bool is_signed) {
    Ints ints(random_->Below(5));
    for (int64_t& number : ints) number = Number(is_signed);
    return ints;
  }

  Groups MakeGroups(uint64_t least, size_t size) {
    Groups groups(least + random_->Below(3));
    for (Ints& group : groups) {
      group.resize(size != 0 ? size : 1 + random_->Below(4));
      for (int64_t& rank : group) rank = static_cast<int64_t>(random_->Below(static_cast<uint64_t>(program_.ranks)));
    }
    return groups;
  }

  Literal MakeLiteral(const TensorType& type) {
    const int64_t elements = Elements(type);
    const bool splat = elements > 64 || random_->OneIn(2);
    Literal literal;
    literal.bytes.resize(ElementSize(type.data_type) * (splat ? 1 : static_cast<size_t>(elements)));
    for (uint8_t& byte : literal.bytes)
      byte = static_cast<uint8_t>(random_->Below(type.data_type == DataType::kBool ? 2 : 256));
    return literal;
  }

  Attribute MakeAttribute(Attr attr, const Operation& operation) {
    switch (InfoOf(attr).type) {
      case AttrType::kNumber:
        return {attr, Number(false)};
      case AttrType::kList:
        return {attr, MakeInts(false)};
      case AttrType::kSignedList:
        return {attr, MakeInts(true)};
      case AttrType::kGroups:
        return {attr, MakeGroups(1, 0)};
      case AttrType::kPairs:
        return {attr, MakeGroups(0, 2)};
      case AttrType::kFold:
        return {attr, static_cast<Combine>(random_->Below(static_cast<uint64_t>(Combine::kXor) + 1))};
      case AttrType::kDirection:
        return {attr, static_cast<Direction>(random_->Below(6))};
      case AttrType::kLiteral:
        return {attr, MakeLiteral(operation.results[0].type)};
    }
    return {};
  }

  Operation MakeOperation(int depth) {
    const KindInfo* info = nullptr;
    do {
      info = &Kinds()[random_->Below(Kinds().size())];
    } while ((info->least_operands > 0 && visible_.empty()) || (depth > 4 && !info->regions().empty()));
    Operation operation;
    operation.kind = info->kind;
    const int spare = std::min(info->most_operands, info->least_operands + 3) - info->least_operands;
    const uint64_t operands = visible_.empty() ? 0 : random_->Below(static_cast<uint64_t>(spare) + 1);
    operation.operands.resize(static_cast<size_t>(info->least_operands) + operands);
    for (Id& id : operation.operands) id = random_->Pick(visible_);
    const std::optional<size_t> results = info->ResultsOf(operation.operands.size());
    operation.results.resize(results ? *results : random_->Below(3));
    for (Value& result : operation.results) result = {NewId(), MakeType()};
    operation.id = operation.results.empty() ? NewId() : operation.results[0].id;
    for (const Attr attr : info->attributes()) operation.attributes.push_back(MakeAttribute(attr, operation));
    for (const std::string_view region : info->regions())
      operation.regions.push_back(MakeFunction(std::string(region), depth + 1));
    return operation;
  }

  Function MakeFunction(std::string name, int depth) {
    const size_t outer = visible_.size();
    Function function;
    function.name = std::move(name);
    for (uint64_t arguments = random_->Below(4); arguments != 0; --arguments) {
      function.arguments.push_back({NewId(), MakeType(), depth == 1 && random_->OneIn(2)});
      visible_.push_back(function.arguments.back().id);
    }
    for (uint64_t operations = random_->Below(depth == 1 ? 40 : 4); operations != 0; --operations) {
      function.operations.push_back(MakeOperation(depth));
      for (const Value& result : function.operations.back().results) visible_.push_back(result.id);
    }
    for (uint64_t results = visible_.empty() ? 0 : random_->Below(4); results != 0; --results)
      function.results.push_back(random_->Pick(visible_));
    visible_.resize(outer);
    return function;
  }

  harness::Random* const random_;
  Program program_;
  Id next_id_ = 0;
  std::vector<Id> visible_;
};

}  // namespace

Program RandomProgram(harness::Random* random) { return Maker(random).Make(); }

}  // namespace axccl::program
