// The vectors of StableHLO's reference interpreter (stablehlo_interpret.json of AXCCL_VECTORS) as programs: made into
// modules, imported, checked, and run by the reference executor.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/program/check.h"
#include "src/program/reference.h"
#include "src/program/reference/scalar.h"
#include "src/program/stablehlo.h"
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

// What programs do not have.
bool IsRefused(const Json& c) {
  return c["op"] == "collective_reduce" || c["attributes"].value("has_dynamic_root", false);
}

// Every rank of a grid returns its partition_id and replica_id.
TEST(Ids, OfAGrid) {
  for (const auto& [replicas, partitions] : {std::pair{1, 3}, {3, 1}, {2, 3}, {1, 1}}) {
    const std::string grid = "mhlo.num_partitions = " + std::to_string(partitions) +
                             " : i32, mhlo.num_replicas = " + std::to_string(replicas) + " : i32";
    const Result<Program> program = ImportStablehlo(
        "module attributes {" + grid +
        "} {\nfunc.func @main() -> (tensor<ui32>, tensor<ui32>) {\n  %0 = stablehlo.partition_id : tensor<ui32>\n"
        "  %1 = stablehlo.replica_id : tensor<ui32>\n  return %0, %1 : tensor<ui32>, tensor<ui32>\n}\n}\n");
    ASSERT_TRUE(program.ok()) << program.status().message();
    ASSERT_TRUE(Check(program.value()).ok());
    const auto ranks = static_cast<size_t>(replicas * partitions);
    const auto outputs = RunReference(program.value(), std::vector<Tensors>(ranks));
    ASSERT_TRUE(outputs.ok());
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto of = static_cast<uint32_t>(partitions);
      EXPECT_EQ(outputs.value()[rank], (Tensors{Tensor::Of(rank % of), Tensor::Of(rank / of)})) << grid;
    }
  }
}

TEST(InterpreterVectors, RunAsPrograms) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  int run = 0, refused = 0;
  for (const Json& c : harness::ReadVectors("stablehlo_interpret.json")) {
    if (c["op"] == "send_recv") continue;  // programs that differ between ranks
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string text = ModuleText(c);
    const Result<Program> program = ImportStablehlo(text);
    if (IsRefused(c)) {
      EXPECT_FALSE(program.ok());
      ++refused;
      continue;
    }
    ASSERT_TRUE(program.ok()) << program.status().message() << "\n" << text;
    ASSERT_TRUE(Check(program.value()).ok()) << Check(program.value()).message();
    const Result<std::vector<Tensors>> outputs = RunReference(program.value(), TensorsOf(c["inputs"]));
    ASSERT_TRUE(outputs.ok()) << outputs.status().message();
    EXPECT_EQ(outputs.value(), TensorsOf(c["expected"]));
    ++run;
  }
  EXPECT_EQ(run, 30);
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace axccl::program
