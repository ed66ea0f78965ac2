#include "tests/program/jax_programs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/harness/vectors.h"

namespace axccl::program {
namespace {

std::string Contents(const std::string& name) {
  const std::string path = std::string(std::getenv("AXCCL_VECTORS")) + "/stablehlo_programs/" + name;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A shard of each rank.
void Append(const harness::Json& value, const std::string& data, std::vector<std::vector<Tensor>>* by_rank) {
  static const std::map<std::string, DataType> kTypes = {
      {"float32", DataType::kFloat32}, {"int32", DataType::kInt32}, {"uint32", DataType::kUint32},
      {"bool", DataType::kBool},       {"int64", DataType::kInt64}, {"float64", DataType::kFloat64}};
  TensorType type{kTypes.at(value["dtype"]), value["shape"].get<Ints>()};
  for (size_t rank = 0; rank < by_rank->size(); ++rank) {
    Tensor shard = Tensor::Zeros(type);
    const auto at = value["offsets"][rank].get<size_t>();
    ASSERT_LE(at + shard.bytes.size(), data.size());
    shard.bytes.assign(data.begin() + static_cast<ptrdiff_t>(at),
                       data.begin() + static_cast<ptrdiff_t>(at + shard.bytes.size()));
    (*by_rank)[rank].push_back(std::move(shard));
  }
}

}  // namespace

std::vector<std::string> JaxProgramNames() {
  return {"mlp_data", "mlp_fsdp", "gpt_dt", "gpt_fsdp_tp", "gpt_scan", "gpipe_scan", "moe_a2a", "ring_permute"};
}

JaxProgram ReadJaxProgram(const std::string& name) {
  JaxProgram program;
  program.text = Contents(name + ".mlir");
  const harness::Json facts = harness::Json::parse(Contents(name + ".json"));
  const std::string data = Contents(name + ".bin");
  const auto ranks = facts["devices"].get<size_t>();
  program.inputs.resize(ranks);
  program.outputs.resize(ranks);
  for (const harness::Json& value : facts["inputs"]) Append(value, data, &program.inputs);
  for (const harness::Json& value : facts["outputs"]) Append(value, data, &program.outputs);
  return program;
}

}  // namespace axccl::program
