// Acceptance vectors of other projects, schema axccl-vectors/1: JSON files in the folder that AXCCL_VECTORS names. They
// are not part of the source tree; tests that read them are skipped without.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace axccl::harness {

using Json = nlohmann::json;

// The reason why the files cannot be read; empty if they can.
std::string VectorsMissing();
// The cases of a file; none, and a test failure, when it cannot be parsed.
Json ReadVectors(const std::string& file);
// The same for a text; `name` is for messages.
Json ParseVectors(const std::string& text, const std::string& name);

// The rows of a file of another schema that has a list of these; likewise.
Json ReadRows(const std::string& file);

// A constraint of StableHLO's specification in the form of messages: "all_gather_c4" -> "(C4)".
std::string ConstraintLabel(const std::string& constraint);
// A word that the refusal of a negative case of that category must contain; empty, with a test failure, if the category
// is unknown.
std::string WordOfCategory(const std::string& category);

}  // namespace axccl::harness
