#include "tools/axccl-program/compare.h"

#include <algorithm>
#include <cmath>

#include "src/program/element.h"
#include "src/program/kinds.h"
#include "src/program/reference/scalar.h"
#include "src/program/text.h"

namespace axccl::tools {

using program::Ints;
using program::Tensor;

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

program::Observer Trace::observer() {
  return [this](int rank, const program::Operation& operation, size_t result, const Tensor& value) {
    of_rank_[static_cast<size_t>(rank)].push_back({&operation, result, value});
  };
}

std::string Trace::FirstDifference(const Trace& expected, double tolerance) const {
  std::string first;
  size_t least = SIZE_MAX;
  for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
    const auto &ours = of_rank_[rank], &theirs = expected.of_rank_[rank];
    for (size_t i = 0; i < std::min({ours.size(), theirs.size(), least}); ++i) {
      const bool same_operation = ours[i].operation == theirs[i].operation && ours[i].result == theirs[i].result;
      const std::string difference =
          same_operation ? Difference(ours[i].value, theirs[i].value, tolerance) : "another operation comes before it";
      if (difference.empty()) continue;
      least = i;
      first = "rank " + std::to_string(rank) + ", %" + std::to_string(ours[i].operation->results[ours[i].result].id) +
              " " + std::string(program::InfoOf(ours[i].operation->kind).name) + ": " + difference;
      break;
    }
  }
  return first;
}

}  // namespace axccl::tools
