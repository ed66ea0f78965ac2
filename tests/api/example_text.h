// Reads the examples that views.h and channels.h give as data. A failure of GoogleTest names what cannot be read.
//
// A tensor in braces, one level a dimension, is a Tensor. An example of a call:
//
//   Example, n = 2, ncclSum, root = 0, extents {1, 2}, out strides {1, 2}:
//     rank 0, send_extents {1, 2}: {1, 2, 3}, {4} -> {1, 4}, in memory {1, 4}
//     rank 1: -> {2, 3}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace axccl::test {

struct Tensor {
  std::vector<int64_t> sizes;
  std::vector<float> values;  // row-major
};

// The items between commas: `name = number`, `name {list}`, or a name alone.
struct Settings {
  std::map<std::string, int64_t> numbers;
  std::map<std::string, std::vector<int64_t>> lists;
  std::vector<std::string> words;

  std::vector<int64_t> List(const std::string& name) const;  // empty if there is none
  bool Has(const std::string& word) const;
};

struct Operands {
  std::vector<Tensor> tensors;
  std::vector<float> memory;  // "in memory"; empty if it is not shown
};

struct RankExample {
  Settings settings;
  Operands in, out;
};

struct CallExample {
  std::string call;  // the function below the comment
  Settings settings;
  std::vector<RankExample> ranks;
};

// The examples of every function whose comment has one of this form, in their order.
std::vector<CallExample> ReadCallExamples(const std::string& header);

// A line `what -> {0, 1}, {2, 3}`: the text of `what`, and the lists.
struct GroupsExample {
  std::string what;
  std::vector<std::vector<int64_t>> groups;
};

// The lines after the one that ends with `mark`.
std::vector<GroupsExample> ReadGroupsExamples(const std::string& header, const std::string& mark);

// Lists in braces, separated by commas.
std::vector<std::vector<int64_t>> ReadLists(const std::string& text);

}  // namespace axccl::test
