#include "src/cost/figures.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/base/files.h"
#include "src/base/log.h"

namespace axccl::cost {

namespace {

// FNV-1a.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace

FigureWriter& FigureWriter::Add(std::string_view name, double value) {
  // Not printf, because the decimal point of the file must not depend on the application's locale.
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return AddText(name, {digits, static_cast<size_t>(end - digits)});
}

FigureWriter& FigureWriter::AddText(std::string_view name, std::string_view value) {
  text_.append(name).append(" ").append(value).append("\n");
  return *this;
}

bool FigureReader::Next() {
  ++number_;
  line_ = {};
  if (text_.empty()) return false;
  const size_t end = text_.find('\n');
  line_ = text_.substr(0, end);
  text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
  return true;
}

Status FigureReader::Bad(std::string_view expected) const {
  return MakeStatus(Code::kInvalidArgument, "%.*s, line %d: found '%.*s', expected %.*s",
                    static_cast<int>(what_.size()), what_.data(), number_, static_cast<int>(line_.size()), line_.data(),
                    static_cast<int>(expected.size()), expected.data());
}

Status FigureReader::Expect(std::string_view line) { return Next() && line_ == line ? Status() : Bad(line); }

Result<std::string_view> FigureReader::Value(std::string_view name) {
  Next();
  const bool named = line_.size() > name.size() && line_.substr(0, name.size()) == name && line_[name.size()] == ' ';
  if (!named) return Bad(name);
  return line_.substr(name.size() + 1);
}

Result<std::string> FigureReader::Text(std::string_view name, size_t most) {
  AXCCL_ASSIGN_OR_RETURN(const std::string_view value, Value(name));
  const bool printable = std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (value.empty() || value.size() > most || !printable) return Bad("printable text that is not too long");
  return std::string(value);
}

Result<double> FigureReader::Number(std::string_view name, double least, double most) {
  AXCCL_ASSIGN_OR_RETURN(const std::string_view digits, Value(name));
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !(value >= least && value <= most))
    return Bad("a number in the range of the field");
  return value;
}

Status FigureReader::End() { return Next() ? Bad("the end") : Status(); }

std::string CachedFile(std::string_view kind, std::string_view key) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return "";
  char hash[20];
  std::snprintf(hash, sizeof(hash), "-%016" PRIx64, HashOf(key));
  return folder + "/" + std::string(kind) + hash;
}

std::vector<std::string> CachedFiles(std::string_view kind) {
  namespace fs = std::filesystem;
  const std::string folder = CacheFolder(), prefix = std::string(kind) + "-";
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code gone;
    const auto time = it->last_write_time(gone);
    // The name is "-" and 16 digits; files with other names are still being written.
    if (gone || !name.starts_with(prefix) || name.size() != prefix.size() + 16) continue;
    found.emplace_back(time, it->path().string());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> files;
  for (auto& [time, file] : found) files.push_back(std::move(file));
  return files;
}

void KeepFigures(const std::string& file, std::string_view text, const char* of_what) {
  const Status status = ReplaceFile(file, text);
  if (status.ok()) return;
  AXCCL_INFO(kTuning, "the measurement of %s is not kept: %s", of_what, std::string(status.message()).c_str());
}

}  // namespace axccl::cost
