#include "tools/axccl-program/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/program/element.h"
#include "src/program/kinds.h"
#include "src/program/reference/scalar.h"
#include "src/program/text.h"

namespace axccl::tools {

using program::Ints;
using program::Tensor;
using program::Tensors;

namespace {

double NumberAt(const Tensor& tensor, int64_t at) {
  return program::VisitScalar(tensor.type.data_type,
                              [&](auto scalar) { return static_cast<double>(scalar.Load(tensor.at(at))); });
}

std::string Describe(const Tensor& actual, const Tensor& expected, const Ints& index, int64_t at) {
  std::string text = "element [";
  for (size_t d = 0; d < index.size(); ++d) text += (d == 0 ? "" : ",") + std::to_string(index[d]);
  return text + "] is " + program::ElementText(actual.type.data_type, actual.at(at)) + " instead of " +
         program::ElementText(expected.type.data_type, expected.at(at));
}

// Equal bits, two NaNs, or numbers that are close.
bool IsClose(const Tensor& actual, const Tensor& expected, int64_t at, double limit) {
  if (std::equal(actual.at(at), actual.at(at) + actual.element(), expected.at(at))) return true;
  const double a = NumberAt(actual, at), b = NumberAt(expected, at);
  return (std::isnan(a) && std::isnan(b)) || (limit >= 0 && std::fabs(a - b) <= limit);
}

}  // namespace

std::string Difference(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (actual.type != expected.type)
    return "it is " + program::Print(actual.type) + " instead of " + program::Print(expected.type);
  if (actual.bytes == expected.bytes) return "";
  double limit = -1;
  if (IsFloat(actual.type.data_type) && tolerance > 0) {
    double largest = 0;
    for (int64_t i = 0; i < Elements(expected.type); ++i) {
      const double size = std::fabs(NumberAt(expected, i));
      if (std::isfinite(size)) largest = std::max(largest, size);
    }
    limit = tolerance * largest;
  }
  std::string difference;
  int64_t at = 0;
  program::ForEachIndex(actual.type.dims, [&](const Ints& index) {
    if (difference.empty() && !IsClose(actual, expected, at, limit)) difference = Describe(actual, expected, index, at);
    ++at;
  });
  return difference;
}

std::string OutputDifference(int rank, const Tensors& actual, const std::vector<Tensors>& expected, double tolerance) {
  const std::string where = "rank " + std::to_string(rank) + ", ";
  const auto r = static_cast<size_t>(rank);
  const size_t wanted = r < expected.size() ? expected[r].size() : 0;
  if (r >= expected.size() || actual.size() != wanted)
    return where + std::to_string(actual.size()) + " outputs, and " + std::to_string(wanted) + " to compare with";
  for (size_t i = 0; i < actual.size(); ++i) {
    const std::string difference = Difference(actual[i], expected[r][i], tolerance);
    if (!difference.empty()) return where + "output " + std::to_string(i) + ": " + difference;
  }
  return "";
}

std::optional<size_t> FirstOf(const std::vector<std::optional<Place>>& of_ranks) {
  std::map<uint64_t, size_t> of_parts;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!of_ranks[rank].has_value()) continue;
    const auto [known, is_new] = of_parts.emplace(of_ranks[rank]->part, rank);
    if (!is_new && of_ranks[rank]->index < of_ranks[known->second]->index) known->second = rank;
  }
  std::optional<size_t> first;
  for (const auto& [part, rank] : of_parts) {
    if (!first.has_value() || of_ranks[rank]->order < of_ranks[*first]->order) first = rank;
  }
  return first;
}

Watch::Watch(const program::Program* program, const std::vector<Tensors>* inputs, double tolerance)
    : program_(*program), inputs_(*inputs), tolerance_(tolerance), ranks_(static_cast<size_t>(program->ranks)) {
  for (size_t part = 0; part < program_.parts.size(); ++part) {
    for (const int64_t rank : program_.parts[part].ranks) ranks_[static_cast<size_t>(rank)].part = part;
  }
}

Status Watch::Begin(int rank, RankRange here) {
  std::call_once(once_, [&] { status_ = RunReference(here); });
  ranks_[static_cast<size_t>(rank)].is_watched = true;
  return status_;
}

Status Watch::RunReference(RankRange here) {
  uint64_t order = 0;
  const program::Observer keep = [&](int rank, const program::Operation& operation, size_t result,
                                     const Tensor& value) {
    if (here.Has(rank)) ranks_[static_cast<size_t>(rank)].expected.push_back({&operation, result, value, order});
    ++order;
  };
  return program::RunReference(program_, inputs_, keep).status();
}

program::Observer Watch::observer() {
  return [this](int rank, const program::Operation& operation, size_t result, const Tensor& value) {
    See(rank, operation, result, value);
  };
}

void Watch::See(int rank, const program::Operation& operation, size_t result, const Tensor& value) {
  OfRank& own = ranks_[static_cast<size_t>(rank)];
  if (!own.is_watched || own.first.has_value() || own.next == own.expected.size()) return;
  Entry& expected = own.expected[own.next];
  const bool same_operation = &operation == expected.operation && result == expected.result;
  const std::string difference =
      same_operation ? Difference(value, expected.value, tolerance_) : "another operation comes before it";
  if (!difference.empty())
    own.first = {{own.part, own.next, expected.order},
                 "rank " + std::to_string(rank) + ", %" + std::to_string(operation.results[result].id) + " " +
                     std::string(program::InfoOf(operation.kind).name) + ": " + difference};
  expected.value = {};
  ++own.next;
}

}  // namespace axccl::tools
