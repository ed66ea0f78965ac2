#include "tests/program/interpreter_vectors.h"

#include <map>
#include <utility>

#include "src/program/reference/scalar.h"
#include "tests/harness/vectors.h"

namespace axccl::program {
namespace {

using harness::Json;

std::string TypeText(const Json& tensor) {
  const auto name = tensor["dtype"].get<std::string>();
  std::string text = "tensor<";
  for (const Json& size : tensor["shape"]) text += size.dump() + "x";
  return text + (name[0] == 'u' ? "ui" + name.substr(1) : name) + ">";
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<std::string> TypesOf(const Json& tensors) {
  std::vector<std::string> types;
  for (const Json& tensor : tensors) types.push_back(TypeText(tensor));
  return types;
}

std::string Dense(const Json& rows) {
  return "dense<" + rows.dump() + "> : tensor<" + std::to_string(rows.size()) + "x" + std::to_string(rows[0].size()) +
         "xi64>";
}

// The attributes in MLIR's generic form.
std::string AttributesText(const Json& attributes) {
  std::vector<std::string> words;
  for (const char* number :
       {"all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension", "split_count"}) {
    if (attributes.contains(number))
      words.push_back(std::string(number) + " = " + attributes[number].dump() + " : i64");
  }
  for (const char* ids : {"replica_groups", "source_target_pairs"}) {
    if (attributes.contains(ids)) words.push_back(std::string(ids) + " = " + Dense(attributes[ids]));
  }
  words.push_back("channel_handle = #stablehlo.channel_handle<handle = " + attributes["channel_id"].dump() +
                  ", type = 0>");
  for (const char* unit : {"use_global_device_ids", "has_dynamic_root"}) {
    if (attributes.value(unit, false)) words.push_back(unit);
  }
  return "<{" + Join(words) + "}>";
}

std::string ModuleText(const Json& c) {
  const Json& attributes = c["attributes"];
  const std::vector<std::string> in = TypesOf(c["inputs"][0]), out = TypesOf(c["expected"][0]);
  std::vector<std::string> arguments, names, results;
  for (size_t i = 0; i < in.size(); ++i) {
    names.push_back("%arg" + std::to_string(i));
    arguments.push_back(names.back() + ": " + in[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) results.push_back(out.size() == 1 ? "%0" : "%0#" + std::to_string(i));
  std::string region;
  if (attributes.contains("computation")) {
    const std::string element = "tensor<" + c["inputs"][0][0]["dtype"].get<std::string>() + ">";
    region = " ({\n  ^bb0(%a: " + element + ", %b: " + element + "):\n    %r = stablehlo." +
             attributes["computation"].get<std::string>() + " %a, %b : " + element +
             "\n    stablehlo.return %r : " + element + "\n  })";
  }
  const bool id = c["inputs"][0].empty();
  const std::string operation = "\"stablehlo." + c["op"].get<std::string>() + "\"(" + Join(names) + ") " +
                                (id ? "" : AttributesText(attributes)) + region + " : (" + Join(in) + ") -> " +
                                (out.size() == 1 ? out[0] : "(" + Join(out) + ")");
  return "module attributes {mhlo.num_partitions = " + c["num_partitions"].dump() +
         " : i32, mhlo.num_replicas = " + c["num_replicas"].dump() + " : i32} {\nfunc.func @main(" + Join(arguments) +
         ") -> (" + Join(out) + ") {\n  %0" + (out.size() == 1 ? "" : ":" + std::to_string(out.size())) + " = " +
         operation + "\n  return " + Join(results) + " : " + Join(out) + "\n}\n}\n";
}

Tensor TensorOf(const Json& tensor) {
  static const std::map<std::string, DataType> kTypes = {
      {"i32", DataType::kInt32}, {"i64", DataType::kInt64}, {"u32", DataType::kUint32}};
  Tensor result = Tensor::Zeros({kTypes.at(tensor["dtype"]), tensor["shape"].get<Ints>()});
  VisitScalar(result.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(result.type); ++i)
      scalar.Store(tensor["data"][static_cast<size_t>(i)].get<typename decltype(scalar)::Number>(), result.at(i));
  });
  return result;
}

std::vector<Tensors> TensorsOf(const Json& by_rank) {
  std::vector<Tensors> tensors(by_rank.size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const Json& tensor : by_rank[rank]) tensors[rank].push_back(TensorOf(tensor));
  }
  return tensors;
}

}  // namespace

std::vector<InterpreterVector> InterpreterVectors() {
  std::vector<InterpreterVector> vectors;
  for (const Json& c : harness::ReadVectors("stablehlo_interpret.json")) {
    if (c["op"] == "send_recv") continue;  // programs that differ between ranks
    vectors.push_back({c["name"].get<std::string>(), ModuleText(c), TensorsOf(c["inputs"]), TensorsOf(c["expected"])});
  }
  return vectors;
}

}  // namespace axccl::program
