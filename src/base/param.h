// The one table of parameters. Each has a name, a type, a default, a meaning and, once read, a value and its source.
//
// The environment has precedence over the file $NCCL_CONF_FILE (else ~/.nccl.conf), and that over /etc/nccl.conf. Files
// hold `NAME=value` lines; a line that starts with `#` is a comment. A value is read once, at its first use, and never
// changes afterwards. When a value does not parse, the default is used, and a warning reports the name, the value and
// what is accepted: of the library's own parameters and of NCCL_DEBUG on stderr, whatever the level is. There, too, are
// names that begin with AXCCL_ and are no parameter, and a $NCCL_CONF_FILE that cannot be read. In a process that has
// gained privileges when its program was started (AT_SECURE of getauxval(3)), the environment names no files, and the
// user's file is not read. Thread-safe; not for fast paths (a lock and a search).
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
  // What a text must satisfy besides the type. For strings: the accepted words, separated by `|`, compared without
  // regard to case; "" accepts any text. For numbers: the range, both ends included.
  const char* words = "";
  // Of numbers: names of 0, 1, 2, 4, 8 ..., separated by `|`, any of which may be set, with `|` between them, instead.
  const char* flags = "";
  int64_t least = 0;
  int64_t most = INT64_MAX;
  bool capped = false;  // a number above `most` counts as `most`
  bool secret = false;  // its value is never printed
  bool names_file = false;
};

// All parameters, in table order.
const std::vector<Info>& Table();
// Returns the row of `name`, or null when there is none.
const Info* Find(std::string_view name);
// Returns the value of a parameter as text, and where it came from. One of `words` is returned as the table spells it.
// An unknown name gives an empty text.
std::string Get(std::string_view name, Source* source = nullptr);
// As Get, for output: a secret that is set is returned as "<set>".
std::string GetShown(std::string_view name);
// What is wrong with the text that is set for the parameter, so that it is ignored; empty: nothing. For settings that
// must not be missed.
std::string Complaint(std::string_view name);
// "default", "environment", or the path of the file.
std::string SourceName(Source source);
// Returns the value as a number; "bytes" accept binary K, M, G, T suffixes. For a text that is no number, returns the
// table's default.
int64_t GetInt(std::string_view name);
double GetSeconds(std::string_view name);
// Reads `text` as a number of the row's type. Returns false when it is no number or out of range. Numbers of rows whose
// names begin with NCCL_ are read as NCCL does, by the rules of C: 0x10 is 16, 010 is 8, and blanks around do not
// count.
bool ParseInt(const Info& info, std::string_view text, int64_t* value);
bool ParseSeconds(const Info& info, std::string_view text, double* value);
// Forgets what was read: everything including the files (tests), or one parameter, in which case the files are not read
// again.
void Reset();
void Reset(std::string_view name);

}  // namespace axccl::param
