#include "tests/harness/vectors.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace axccl::harness {

namespace {

const char* Folder() { return std::getenv("AXCCL_VECTORS"); }

}  // namespace

std::string VectorsMissing() {
  if (Folder() == nullptr || Folder()[0] == '\0')
    return "AXCCL_VECTORS is not set: it names the folder of the acceptance vectors (public_cases.json, "
           "stablehlo_interpret.json, stablehlo_negative.json)";
  for (const char* file : {"public_cases.json", "stablehlo_interpret.json", "stablehlo_negative.json"}) {
    const std::filesystem::path path = std::filesystem::path(Folder()) / file;
    if (!std::ifstream(path)) return "AXCCL_VECTORS: cannot read " + path.string();
  }
  return "";
}

Json ReadVectors(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(std::filesystem::path(Folder()) / file).rdbuf();
  return ParseVectors(text.str(), file);
}

Json ReadRows(const std::string& file) {
  std::ifstream in(std::filesystem::path(Folder()) / file);
  const Json json = Json::parse(in, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << file << " is no JSON";
  return json.is_discarded() ? Json::array() : json.value("rows", Json::array());
}

Json ParseVectors(const std::string& text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << name << " is no JSON";
  if (json.is_discarded()) return Json::array();
  EXPECT_EQ(json.value("schema", ""), "axccl-vectors/1") << name;
  return json.value("cases", Json::array());
}

std::string ConstraintLabel(const std::string& constraint) {
  const size_t at = constraint.find_last_not_of("0123456789");
  return std::string("(") + static_cast<char>(std::toupper(constraint.at(at))) + constraint.substr(at + 1) + ")";
}

std::string WordOfCategory(const std::string& category) {
  static const std::map<std::string, std::string> words = {
      {"duplicate_id", "and again in group"},
      {"missing_id", "id"},
      {"invalid_id", "out of range"},
      {"groups_empty", "replica_groups is empty"},
      {"groups_not_rank_2", "it must have 2, ("},
      {"group_size", "split_count 4"},
      {"channel_required", "channel_id must be positive"},
      {"dim_out_of_range", "it must be in"},
      {"not_divisible", "group size"},
      {"zero_extent", "expected"},
      {"rank_mismatch", "dimensions (sizes"},
      {"shape_mismatch", "expected"},
      {"split_count_not_positive", "split_count is 0"},
      {"pairs_shape", "a pair is a source and a target"},
      {"pairs_not_rank_2", "it must have 2, ("},
      {"duplicate_source", "duplicate source"},
      {"duplicate_target", "duplicate target"},
      {"negative_id", "out of range"},
      {"dtype_mismatch", "datatype"},
      {"not_promotable", "datatype"},
      {"no_operand", "operand"},
  };
  const auto word = words.find(category);
  if (word != words.end()) return word->second;
  ADD_FAILURE() << "unknown category " << category;
  return "";
}

}  // namespace axccl::harness
