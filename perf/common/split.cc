#include "perf/common/split.h"

#include <strings.h>

#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace axccl::perf {
namespace {

bool ParseOperand(const char* text, long* value) {
  while (std::isspace(static_cast<unsigned char>(*text))) ++text;
  bool binary = strncasecmp(text, "0b", 2) == 0;
  char* end = nullptr;
  errno = 0;
  *value = binary ? std::strtol(text + 2, &end, 2) : std::strtol(text, &end, 0);
  return end != text && *end == '\0' && errno == 0 && *value >= 0 && *value <= INT_MAX;
}

struct Rule {
  const char* word;
  const char* sign;
};
const Rule kRules[] = {{"AND", "&"}, {"OR", "|"}, {"MOD", "%"}, {"DIV", "/"}};

}  // namespace

Result<int> SplitGroup(const char* mask, const char* rule, int process) {
  if (mask != nullptr) return process & static_cast<int>(std::strtoul(mask, nullptr, 16));
  if (rule == nullptr) return 0;
  for (const Rule& r : kRules) {
    const char* behind = nullptr;
    if (strncasecmp(rule, r.word, std::strlen(r.word)) == 0) behind = rule + std::strlen(r.word);
    if (*rule == *r.sign) behind = rule + 1;
    long value = 0;
    if (behind == nullptr || !ParseOperand(behind, &value)) continue;
    if ((*r.sign == '%' || *r.sign == '/') && value == 0) break;
    switch (*r.sign) {
      case '&':
        return process & static_cast<int>(value);
      case '|':
        return process | static_cast<int>(value);
      case '%':
        return process % static_cast<int>(value);
      default:
        return process / static_cast<int>(value);
    }
  }
  return MakeStatus(Code::kInvalidArgument,
                    "NCCL_TESTS_SPLIT '%s' is not AND, OR, MOD or DIV (or & | %% /) with a "
                    "number",
                    rule);
}

}  // namespace axccl::perf
