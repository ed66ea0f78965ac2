// The one table of parameters. Each has a name, a type, a default, a meaning and, once read, a value and its source.
//
// Precedence: environment, then the file $NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf (`NAME=value` lines,
// a line that starts with `#` is a comment). A value is read once, at its first use, and never changes afterwards. A
// value that does not parse keeps the default and is reported at WARN with name, value and what is accepted.
// Thread-safe; not for fast paths (a lock and a search).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axccl::param {

enum class Source : uint8_t { kDefault, kEnvironment, kUserFile, kSystemFile };

struct Info {
  const char* name;      // "NCCL_ALGO"
  const char* type;      // "int", "bytes", "string", "seconds"
  const char* fallback;  // default as text
  const char* meaning;   // one sentence
  // What else than parsing as the type is asked. Strings: the accepted words, separated by `|`, compared without regard
  // to case, "" = any text. Numbers: the range, both ends included.
  const char* words = "";
  int64_t least = 0;
  int64_t most = INT64_MAX;
  bool secret = false;  // never shown
};

// All parameters, in table order.
const std::vector<Info>& Table();
// The row of `name`, null when there is none.
const Info* Find(std::string_view name);
// The value of a parameter of the table as text, and where it came from. One of `words` comes as the table spells it.
// Unknown name: empty.
std::string Get(std::string_view name, Source* source = nullptr);
// As Get, for human eyes: "<set>" for a secret that is set.
std::string GetShown(std::string_view name);
// "default", "environment", or the path of the file.
std::string SourceName(Source source);
// As a number; "bytes" take binary K, M, G, T suffixes. Unknown name or text: the table's default.
int64_t GetInt(std::string_view name);
double GetSeconds(std::string_view name);
// Reads `text` as a parameter of this type; false when it is none or out of range.
bool ParseInt(const Info& info, std::string_view text, int64_t* value);
bool ParseSeconds(const Info& info, std::string_view text, double* value);
// Forgets what was read: everything (tests), or one parameter. Files stay as they were read in the second case.
void Reset();
void Reset(std::string_view name);

}  // namespace axccl::param
