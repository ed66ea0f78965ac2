// The one table of parameters. Each has a name, a type, a default, a meaning and, once read, a value and its source.
//
// Precedence: environment, then the file $NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf (`NAME=value`, `#`
// comments). Values are read once, at first use, and never change afterwards. A value that does not parse keeps the default
// and is reported at WARN with name, value and what is accepted. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axccl::param {

enum class Source : uint8_t { kDefault, kEnvironment, kUserFile, kSystemFile };

struct Info {
  const char* name;         // "NCCL_ALGO"
  const char* type;         // "int", "bytes", "string", "seconds"
  const char* fallback;     // default as text
  const char* meaning;      // one sentence
};

// All parameters, in table order.
const std::vector<Info>& Table();
// The value of a parameter of the table as text, and where it came from. Unknown name: empty.
std::string Get(std::string_view name, Source* source = nullptr);
// As a number; "bytes" take binary K, M, G suffixes. Unknown name or text: the table's default.
int64_t GetInt(std::string_view name);
double GetSeconds(std::string_view name);
// Forgets what was read (tests).
void Reset();

}  // namespace axccl::param
