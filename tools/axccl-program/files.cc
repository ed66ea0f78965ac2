#include "tools/axccl-program/files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/files.h"

namespace axccl::tools {
namespace {

using nlohmann::json;
using program::Tensor;

constexpr size_t kMostBytes = size_t{1} << 40;

struct TypeName {
  const char* name;
  DataType type;
};
// Those of NumPy.
constexpr TypeName kTypes[] = {
    {"float64", DataType::kFloat64}, {"float32", DataType::kFloat32}, {"bfloat16", DataType::kBfloat16},
    {"float16", DataType::kFloat16}, {"bool", DataType::kBool},       {"int8", DataType::kInt8},
    {"int16", DataType::kInt16},     {"int32", DataType::kInt32},     {"int64", DataType::kInt64},
    {"uint8", DataType::kUint8},     {"uint16", DataType::kUint16},   {"uint32", DataType::kUint32},
    {"uint64", DataType::kUint64}};

std::string FolderOf(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

std::string WithoutEnding(const std::string& file) {
  return file.size() > 5 && file.substr(file.size() - 5) == ".json" ? file.substr(0, file.size() - 5) : file;
}

// Of a number, or of a list of them. get() would cut fractions off.
Status CheckWhole(const json& facts, const char* name) {
  const json& value = facts.at(name);
  const auto is_whole = [](const json& number) { return number.is_number_integer(); };
  if (value.is_array() ? std::all_of(value.begin(), value.end(), is_whole) : is_whole(value)) return Status();
  return MakeStatus(Code::kInvalidArgument, "%s is %s, and must be of whole numbers", name, value.dump().c_str());
}

// One value: a shard for each rank.
Status ReadValue(const json& value, const std::string& data, TensorFile::ByRank* by_rank) {
  const std::string name = value.at("dtype").get<std::string>();
  const auto* known = std::begin(kTypes);
  while (known != std::end(kTypes) && name != known->name) ++known;
  if (known == std::end(kTypes)) return MakeStatus(Code::kInvalidArgument, "unknown dtype '%s'", name.c_str());
  for (const char* numbers : {"shape", "offsets"}) AXCCL_RETURN_IF_ERROR(CheckWhole(value, numbers));
  const program::TensorType type{known->type, value.at("shape").get<program::Ints>()};
  const auto offsets = value.at("offsets").get<std::vector<uint64_t>>();
  if (type.dims.size() > program::kMaxDims || offsets.size() != by_rank->size())
    return MakeStatus(Code::kInvalidArgument, "a value has %zu dimensions and %zu offsets, where there are %zu devices",
                      type.dims.size(), offsets.size(), by_rank->size());
  const bool is_empty = std::find(type.dims.begin(), type.dims.end(), 0) != type.dims.end();
  uint64_t bytes = is_empty ? 0 : ElementSize(type.data_type);
  for (const int64_t size : type.dims) {
    if (size < 0 || (size > 0 && bytes > data.size() / static_cast<uint64_t>(size)))
      return MakeStatus(Code::kInvalidArgument, "a value is larger than the data");
    bytes *= static_cast<uint64_t>(size);
  }
  for (size_t rank = 0; rank < by_rank->size(); ++rank) {
    if (offsets[rank] > data.size() || bytes > data.size() - offsets[rank])
      return MakeStatus(Code::kInvalidArgument, "a value of %llu bytes at %llu is outside of the data, which has %zu",
                        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offsets[rank]),
                        data.size());
    const auto* const first = reinterpret_cast<const uint8_t*>(data.data()) + offsets[rank];
    (*by_rank)[rank].push_back({type, {first, first + bytes}});
  }
  return Status();
}

Result<TensorFile> ReadFacts(const json& facts, const std::string& folder) {
  AXCCL_ASSIGN_OR_RETURN(const std::string data,
                         ReadWholeFile(folder + facts.at("data").get<std::string>(), kMostBytes));
  if (facts.at("byte_order") != "little") return MakeStatus(Code::kInvalidArgument, "byte_order must be \"little\"");
  AXCCL_RETURN_IF_ERROR(CheckWhole(facts, "devices"));
  if (facts.contains("first_rank")) AXCCL_RETURN_IF_ERROR(CheckWhole(facts, "first_rank"));
  const auto ranks = facts.at("devices").get<uint64_t>();
  if (ranks == 0 || ranks > program::kMaxRanks)
    return MakeStatus(Code::kInvalidArgument, "devices must be 1 to %d", program::kMaxRanks);
  TensorFile file;
  file.inputs.resize(ranks);
  file.outputs.resize(ranks);
  file.first_rank = facts.value("first_rank", 0);
  if (file.first_rank < 0 || file.first_rank > program::kMaxRanks)
    return MakeStatus(Code::kInvalidArgument, "first_rank must be 0 to %d", program::kMaxRanks);
  for (const json& value : facts.at("inputs")) AXCCL_RETURN_IF_ERROR(ReadValue(value, data, &file.inputs));
  for (const json& value : facts.at("outputs")) AXCCL_RETURN_IF_ERROR(ReadValue(value, data, &file.outputs));
  return file;
}

bool IsUtf8(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::exception&) {
    return false;
  }
}

// Ranks whose parts differ cannot be written as shards of common values.
Status AppendValues(const TensorFile::ByRank& by_rank, const char* what, json* values, std::string* data) {
  *values = json::array();
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    const program::TensorType& type = by_rank[0][i].type;
    json offsets = json::array();
    for (const std::vector<Tensor>& of_rank : by_rank) {
      if (of_rank.size() != by_rank[0].size() || of_rank[i].type != type)
        return MakeStatus(Code::kInvalidArgument,
                          "%s of ranks differ in number or type; a file of tensors has them alike", what);
      offsets.push_back(data->size());
      data->append(of_rank[i].bytes.begin(), of_rank[i].bytes.end());
    }
    const auto* name = std::begin(kTypes);
    while (name->type != type.data_type) ++name;
    values->push_back({{"dtype", name->name}, {"shape", type.dims}, {"offsets", offsets}});
  }
  return Status();
}

}  // namespace

Result<TensorFile> ReadTensors(const std::string& file) {
  AXCCL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kMostBytes));
  const auto named = [&](const char* why) {
    return MakeStatus(Code::kInvalidArgument, "'%s' is no file of tensors: %s", file.c_str(), why);
  };
  try {
    Result<TensorFile> tensors = ReadFacts(json::parse(text), FolderOf(file));
    if (tensors.ok() || tensors.status().code() != Code::kInvalidArgument) return tensors;
    return named(std::string(tensors.status().message()).c_str());
  } catch (const json::exception& error) {
    return named(error.what());
  }
}

Status WriteTensors(const std::string& file, const TensorFile& tensors) {
  const std::string data_file = WithoutEnding(file) + ".bin";
  if (!IsUtf8(data_file.substr(FolderOf(file).size())))
    return MakeStatus(Code::kInvalidArgument,
                      "'%s' cannot be written: it would name '%s', which is not UTF-8; give another name", file.c_str(),
                      data_file.c_str());
  std::string data;
  json facts = {{"devices", tensors.inputs.size()}, {"byte_order", "little"}};
  if (tensors.first_rank > 0) facts["first_rank"] = tensors.first_rank;
  facts["data"] = data_file.substr(FolderOf(file).size());
  AXCCL_RETURN_IF_ERROR(AppendValues(tensors.inputs, "inputs", &facts["inputs"], &data));
  AXCCL_RETURN_IF_ERROR(AppendValues(tensors.outputs, "outputs", &facts["outputs"], &data));
  AXCCL_RETURN_IF_ERROR(WriteWholeFile(data_file, data));
  return WriteWholeFile(file, facts.dump(1) + "\n");
}

}  // namespace axccl::tools
