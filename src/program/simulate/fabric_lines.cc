#include "src/program/simulate/fabric_lines.h"

#include "src/base/format.h"

namespace axccl::program {

std::string_view FabricLines::Next() {
  while (!text_.empty()) {
    ++number_;
    const size_t end = text_.find('\n');
    std::string_view line = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    line = line.substr(0, line.find('#'));
    while (line.ends_with(' ')) line.remove_suffix(1);
    if (!line.empty()) return line;
  }
  ++number_;
  return {};
}

Status FabricLines::Fail(size_t column, std::string_view found, const std::string& expected) const {
  const std::string what = found.empty() ? "the end" : "'" + Printable(found.substr(0, 40)) + "'";
  return MakeStatus(Code::kInvalidArgument, "line %d column %zu: found %s, expected %s", number_, column + 1,
                    what.c_str(), expected.c_str());
}

}  // namespace axccl::program
