#include "src/base/param.h"

#include <pwd.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>

#include "src/base/command_line.h"
#include "src/base/log.h"

extern char** environ;

namespace axccl::param {
namespace {

constexpr char kSystemFile[] = "/etc/nccl.conf";

struct Value {
  std::string text;
  Source source = Source::kDefault;
  std::string complaint = {};  // Complaint()
};

using File = std::map<std::string, std::string, std::less<>>;

struct State {
  std::mutex mutex;
  std::vector<std::optional<Value>> values;  // one for each row of Table()
  bool files_read = false;
  std::string user_path;
  File user, system;
};

// Never destroyed, see Table().
State& TheState() {
  static auto* const state = new State;
  return *state;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string UserPath() {
  if (getauxval(AT_SECURE) != 0) return "";
  if (const char* path = std::getenv("NCCL_CONF_FILE"); path != nullptr && *path != '\0') return path;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.nccl.conf";
  char buffer[4096];
  passwd entry, *found = nullptr;
  if (getpwuid_r(getuid(), &entry, buffer, sizeof(buffer), &found) != 0 || found == nullptr) return "";
  return std::string(found->pw_dir) + "/.nccl.conf";
}

// What is wrong with the settings as a whole. Lists of lines.
struct Remarks {
  std::vector<std::string> mistakes;  // that must be seen
  std::vector<std::string> warnings, notes;
};

constexpr std::string_view kPrefix = "AXCCL_";  // of the library's own settings

// Names of the tests and of the scripts of tools/, beside those of the table.
constexpr std::string_view kOthers[] = {"AXCCL_TEST_",   "AXCCL_CLIENTS_", "AXCCL_PYTHON",    "AXCCL_TORCH_VERSION",
                                        "AXCCL_INCLUDE", "AXCCL_DROPIN",   "AXCCL_FAKE_GPUS", "AXCCL_ON_HOSTS",
                                        "AXCCL_WHEEL_",  "AXCCL_VECTORS"};

// What to do about a name that has our prefix and is none of ours; "" of all other names.
std::string Misspelled(std::string_view name) {
  const auto begins = [&](std::string_view other) { return name.starts_with(other); };
  if (!begins(kPrefix) || Find(name) != nullptr || std::any_of(std::begin(kOthers), std::end(kOthers), begins))
    return "";
  std::vector<std::string_view> ours;  // without the prefix
  for (const Info& info : Table()) {
    const std::string_view known = info.name;
    if (known.starts_with(kPrefix)) ours.push_back(known.substr(kPrefix.size()));
  }
  const std::string nearest(command_line::Nearest(name.substr(kPrefix.size()), ours));
  return std::string(name) + " is no setting and has no effect; " +
         (nearest.empty() ? "axccl-info lists all" : "did you mean AXCCL_" + nearest + "?");
}

File ReadFile(const std::string& path, Remarks* remarks) {
  File file;
  std::ifstream in(path);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string_view text = Trim(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      remarks->warnings.push_back(path + ":" + std::to_string(number) + ": expected NAME=value, line ignored");
      continue;
    }
    const std::string_view name = Trim(text.substr(0, equals));
    if (const std::string misspelled = Misspelled(name); !misspelled.empty())
      remarks->mistakes.push_back(path + ":" + std::to_string(number) + ": " + misspelled);
    file[std::string(name)] = std::string(Trim(text.substr(equals + 1)));
  }
  return file;
}

// As ReadFile. Settings are missed if a file that the user names cannot be read; a folder can be opened, but not read.
File ReadNamedFile(const std::string& path, Remarks* remarks) {
  const char* const named = secure_getenv("NCCL_CONF_FILE");
  if (named != nullptr && path == named) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) error = std::make_error_code(std::errc::is_a_directory);
    if (!error && access(path.c_str(), R_OK) != 0) error = std::error_code(errno, std::generic_category());
    if (error) remarks->mistakes.push_back("NCCL_CONF_FILE=" + path + " cannot be read: " + error.message());
  }
  return ReadFile(path, remarks);
}

// A misspelled name would have no effect, silently. A name with our prefix is certainly wrong. NCCL has many variables
// that mean nothing here, so one line at INFO lists those.
void ReportNamesWithoutEffect(Remarks* remarks) {
  std::string of_nccl;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    const Info* const info = Find(name);
    if (const std::string misspelled = Misspelled(name); !misspelled.empty())
      remarks->mistakes.push_back("environment variable " + misspelled);
    if (!name.starts_with("NCCL_") || name.starts_with("NCCL_TESTS_")) continue;
    const bool has_effect = info != nullptr && std::strstr(info->meaning, "(no effect") == nullptr;
    if (!has_effect) of_nccl += (of_nccl.empty() ? "" : ", ") + name;
  }
  if (!of_nccl.empty()) remarks->notes.push_back("these variables of NCCL are set and have no effect here: " + of_nccl);
}

// Takes the first word off a list whose words stand between `|`.
std::string_view TakeWord(std::string_view* list) {
  const std::string_view word = list->substr(0, list->find('|'));
  list->remove_prefix(std::min(list->size(), word.size() + 1));
  return word;
}

bool SameWord(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool ParseWord(const Info& info, std::string_view text, std::string* canonical) {
  for (std::string_view rest = info.words; !rest.empty();) {
    const std::string_view word = TakeWord(&rest);
    if (!SameWord(word, text)) continue;
    *canonical = std::string(word);
    return true;
  }
  return false;
}

// The number that a flag's name stands for; -1 if there is none of that name.
int64_t FlagOf(const Info& info, std::string_view name) {
  int64_t flag = 0;
  for (std::string_view rest = info.flags; !rest.empty(); flag = std::max<int64_t>(1, 2 * flag)) {
    if (SameWord(TakeWord(&rest), name)) return flag;
  }
  return -1;
}

bool ParseFlags(const Info& info, std::string_view text, int64_t* number) {
  *number = 0;
  bool good = !text.empty();
  while (good && !text.empty()) {
    const int64_t flag = FlagOf(info, TakeWord(&text));
    good = flag >= 0;
    *number |= flag;
  }
  return good;
}

bool ParseDecimal(std::string_view text, int64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseBytes(std::string_view text, int64_t* number) {
  int shift = 0;
  const size_t unit = text.empty() ? std::string_view::npos : std::string_view("KMGTkmgt").find(text.back());
  if (unit != std::string_view::npos) {
    shift = 10 * static_cast<int>(unit % 4 + 1);
    text.remove_suffix(1);
  }
  return ParseDecimal(text, number) && !__builtin_mul_overflow(*number, int64_t{1} << shift, number);
}

// As NCCL reads its variables.
bool ParseByRulesOfC(std::string_view text, int64_t* number) {
  const std::string trimmed(Trim(text));
  char* end = nullptr;
  errno = 0;
  *number = std::strtoll(trimmed.c_str(), &end, 0);
  return errno == 0 && end == trimmed.c_str() + trimmed.size() && !trimmed.empty();
}

bool IsType(const Info& info, const char* type) { return std::strcmp(info.type, type) == 0; }

std::string Accepted(const Info& info) {
  if (IsType(info, "string")) return "one of " + std::string(info.words);
  const std::string range = " from " + std::to_string(info.least) + " to " + std::to_string(info.most);
  if (IsType(info, "bytes")) return "a number of bytes, with K, M, G or T behind it if need be," + range;
  if (*info.flags != '\0') return "a number" + range + ", or " + info.flags + ", of which | joins several";
  return (IsType(info, "seconds") ? "a number of seconds" : "a number") + range;
}

// Returns the text to keep, or nothing when it is not acceptable. An empty text always means "not set".
std::optional<std::string> Check(const Info& info, const std::string& text) {
  std::string canonical = text;
  int64_t number;
  double seconds;
  bool good;
  if (IsType(info, "string")) {
    good = *info.words == '\0' || ParseWord(info, text, &canonical);
  } else if (IsType(info, "seconds")) {
    good = ParseSeconds(info, text, &seconds);
  } else {
    good = ParseInt(info, text, &number);
  }
  if (!good) return std::nullopt;
  return canonical;
}

// Uses the first source that has an acceptable text.
Value Read(const State& state, const Info& info) {
  std::string complaint;
  const auto in_file = [&info](const File& file) -> const char* {
    const auto found = file.find(info.name);
    return found == file.end() ? nullptr : found->second.c_str();
  };
  const char* const set = info.names_file ? secure_getenv(info.name) : std::getenv(info.name);
  const std::pair<const char*, Source> places[] = {{set, Source::kEnvironment},
                                                   {in_file(state.user), Source::kUserFile},
                                                   {in_file(state.system), Source::kSystemFile}};
  for (const auto& [text, source] : places) {
    if (text == nullptr || *text == '\0') continue;
    if (std::optional<std::string> good = Check(info, text)) return {std::move(*good), source, std::move(complaint)};
    const std::string shown = info.secret ? "<set>" : text;
    const std::string place = source == Source::kEnvironment ? "environment"
                              : source == Source::kUserFile  ? state.user_path
                                                             : kSystemFile;
    if (!complaint.empty()) complaint += "; ";
    complaint += std::string(info.name) + "=" + shown + " (" + place + ") is ignored: accepted is " + Accepted(info);
  }
  return {info.fallback, Source::kDefault, std::move(complaint)};
}

// A setting that is only for this library is meant for it, and is missed otherwise. So is the log's level.
bool MustBeSeen(std::string_view name) { return name.starts_with(kPrefix) || name == "NCCL_DEBUG"; }

void Complain(bool must_be_seen, const std::string& complaint) {
  if (!must_be_seen || log::Enabled(log::Level::kWarn, 0)) {
    AXCCL_WARN("%s", complaint.c_str());
  } else {
    log::WriteNotice("%s", complaint.c_str());
  }
}

Value GetValue(const Info& info) {
  State& state = TheState();
  Remarks remarks;
  Value value;
  bool first;
  {
    std::lock_guard lock(state.mutex);
    if (!state.files_read) {
      state.user_path = UserPath();
      state.user = ReadNamedFile(state.user_path, &remarks);
      state.system = ReadFile(kSystemFile, &remarks);
      ReportNamesWithoutEffect(&remarks);
      state.files_read = true;
    }
    state.values.resize(Table().size());
    std::optional<Value>& slot = state.values[static_cast<size_t>(&info - Table().data())];
    first = !slot;
    if (first) slot = Read(state, info);
    value = *slot;
  }
  // Called without the lock, because the log reads parameters of its own. That recursion ends: the value is in its slot
  // by now.
  for (const std::string& text : remarks.mistakes) Complain(true, text);
  for (const std::string& text : remarks.warnings) Complain(false, text);
  for (const std::string& text : remarks.notes) AXCCL_INFO(kEnv, "%s", text.c_str());
  if (first && !value.complaint.empty()) Complain(MustBeSeen(info.name), value.complaint);
  if (first && value.source != Source::kDefault)
    AXCCL_INFO(kEnv, "%s=%s (%s)", info.name, info.secret ? "<set>" : value.text.c_str(),
               SourceName(value.source).c_str());
  return value;
}

}  // namespace

const Info* Find(std::string_view name) {
  for (const Info& info : Table()) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

std::string Complaint(std::string_view name) {
  const Info* const info = Find(name);
  return info == nullptr ? std::string() : GetValue(*info).complaint;
}

std::string Get(std::string_view name, Source* source) {
  const Info* const info = Find(name);
  if (info == nullptr) return {};
  Value value = GetValue(*info);
  if (source != nullptr) *source = value.source;
  return std::move(value.text);
}

std::string GetShown(std::string_view name) {
  const Info* const info = Find(name);
  std::string text = Get(name);
  return info != nullptr && info->secret && !text.empty() ? "<set>" : text;
}

std::string SourceName(Source source) {
  switch (source) {
    case Source::kDefault:
      return "default";
    case Source::kEnvironment:
      return "environment";
    case Source::kUserFile: {
      std::lock_guard lock(TheState().mutex);
      return TheState().user_path;
    }
    case Source::kSystemFile:
      return kSystemFile;
  }
  return "";
}

int64_t GetInt(std::string_view name) {
  const Info* const info = Find(name);
  int64_t value = 0;
  if (info != nullptr) (void)ParseInt(*info, GetValue(*info).text, &value);
  return value;
}

double GetSeconds(std::string_view name) {
  const Info* const info = Find(name);
  double value = 0;
  if (info != nullptr) (void)ParseSeconds(*info, GetValue(*info).text, &value);
  return value;
}

bool ParseInt(const Info& info, std::string_view text, int64_t* value) {
  const bool bytes = IsType(info, "bytes");
  if (!bytes && !IsType(info, "int")) return false;
  const bool of_nccl = std::string_view(info.name).starts_with("NCCL_");
  int64_t number;
  const bool good = bytes     ? ParseBytes(text, &number)
                    : of_nccl ? ParseByRulesOfC(text, &number)
                              : ParseDecimal(text, &number);
  if (!good && !ParseFlags(info, text, &number)) return false;
  if (info.capped) number = std::min(number, info.most);
  if (number < info.least || number > info.most) return false;
  *value = number;
  return true;
}

bool ParseSeconds(const Info& info, std::string_view text, double* value) {
  if (!IsType(info, "seconds")) return false;
  double number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  // The condition is written so that a NaN fails it.
  if (!(number >= static_cast<double>(info.least) && number <= static_cast<double>(info.most))) return false;
  *value = number;
  return true;
}

void Reset() {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  state.values.clear();
  state.files_read = false;
}

void Reset(std::string_view name) {
  const Info* const info = Find(name);
  if (info == nullptr) return;
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  const auto index = static_cast<size_t>(info - Table().data());
  if (index < state.values.size()) state.values[index].reset();
}

}  // namespace axccl::param
