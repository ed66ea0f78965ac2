// Acceptance vectors of other projects, schema axccl-vectors/1: JSON files in the folder that AXCCL_VECTORS names. They
// are not part of the source tree; tests that read them are skipped without.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace axccl::harness {

using Json = nlohmann::json;

// Why the files cannot be read; empty when they can.
std::string VectorsMissing();
// The cases of a file; none, and a test failure, when it cannot be parsed.
Json ReadVectors(const std::string& file);
// The same of text; `name` is for messages.
Json ParseVectors(const std::string& text, const std::string& name);

// A constraint of StableHLO's specification as messages write it: "all_gather_c4" -> "(C4)".
std::string ConstraintLabel(const std::string& constraint);
// What the refusal of a negative case of that category must say; empty, and a test failure, when it is none.
std::string WordOfCategory(const std::string& category);

}  // namespace axccl::harness
