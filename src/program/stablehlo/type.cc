#include "src/program/stablehlo/type.h"

#include <charconv>
#include <string>

#include "src/program/kinds.h"

namespace axccl::program::stablehlo {
namespace {

constexpr const char* kSupported =
    "supported are tensors of f64, f32, bf16, f16, i1, i8 to i64 and ui8 to ui64 with static sizes";

bool FindElement(std::string_view word, bool is_dense, DataType* type) {
  if (is_dense && word == "index") {
    *type = DataType::kInt64;
    return true;
  }
  if (word.starts_with("ui")) return program::Find("u" + std::string(word.substr(2)), type);
  return !word.starts_with("u") && program::Find(word, type);
}

// Reads the sizes that `body` begins with, and removes them.
bool ReadDims(std::string_view* body, Ints* dims) {
  while (!body->empty() && (*body)[0] >= '0' && (*body)[0] <= '9') {
    int64_t size = 0;
    const char* const end = body->data() + body->size();
    const auto [behind, error] = std::from_chars(body->data(), end, size);
    if (error != std::errc() || behind == end || *behind != 'x') return false;
    dims->push_back(size);
    body->remove_prefix(static_cast<size_t>(behind - body->data()) + 1);
  }
  return true;
}

bool ReadTensor(Scanner* in, bool is_dense, TensorType* type, std::string_view* element) {
  const size_t mark = in->Mark();
  if (!in->TryWord("tensor")) {
    const std::string word = in->Peek() == '!' || in->Element().empty() ? "this type" : Quote(in->From(mark));
    return in->Fail(mark, word + " is not supported; " + kSupported);
  }
  if (!in->Expect("<")) return false;
  const size_t begin = in->Mark();
  if (!in->SkipBehind('>')) return false;
  std::string_view body = in->From(begin);
  body.remove_suffix(1);
  const std::string name = Quote("tensor<" + std::string(body) + ">");
  if (body.find_first_of("?*") != std::string_view::npos)
    return in->Fail(mark, name + " has a dynamic shape, which is not supported; " + kSupported);
  type->dims.clear();
  if (!ReadDims(&body, &type->dims)) return in->Fail(mark, "expected a type such as tensor<2x3xf32>, found " + name);
  *element = body;
  if (!FindElement(body, is_dense, &type->data_type))
    return in->Fail(mark, "elements of the type " + Quote(body) + " are not supported; " + kSupported);
  if (type->dims.size() > kMaxDims) return in->Fail(mark, "expected a type of at most 8 dimensions, found " + name);
  return IsSmall(*type) || in->Fail(mark, "expected a type of less than 2^63 bytes, found " + name);
}

}  // namespace

bool ReadType(Scanner* in, TensorType* type) {
  std::string_view element;
  return ReadTensor(in, false, type, &element);
}

bool ReadDenseType(Scanner* in, TensorType* type, std::string_view* element) {
  return ReadTensor(in, true, type, element);
}

bool ReadTypeList(Scanner* in, std::vector<TensorType>* types) {
  do {
    if (!ReadType(in, &types->emplace_back())) return false;
  } while (in->Try(","));
  return true;
}

bool ReadResultTypes(Scanner* in, std::vector<TensorType>* types) {
  if (!in->Try("(")) return ReadType(in, &types->emplace_back());
  if (in->Try(")")) return true;
  return ReadTypeList(in, types) && in->Expect(")");
}

bool ReadFunctionType(Scanner* in, std::vector<TensorType>* inputs, std::vector<TensorType>* outputs) {
  if (in->Peek() != '(') return in->Expected("the type of a function, such as (tensor<f32>) -> tensor<f32>");
  return ReadResultTypes(in, inputs) && in->Expect("->") && ReadResultTypes(in, outputs);
}

}  // namespace axccl::program::stablehlo
