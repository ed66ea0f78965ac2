// How measured figures are written down and kept: small text files in a folder of the user's.
//
// A file has a title with a version, then `name value` lines in a fixed order; numbers have all their digits. Whoever
// reads one takes exactly what would have been written, so that a damaged file misleads nobody. A file that is missing,
// damaged or cannot be written is never an error to those who measure. Values; the functions are thread-safe, and
// processes may race: the last file stays, whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace axccl::cost {

inline constexpr size_t kMostFigureBytes = 4096;  // of such a file

class FigureWriter {
 public:
  explicit FigureWriter(std::string_view title) : text_(std::string(title) + "\n") {}
  FigureWriter& Add(std::string_view name, double value);
  FigureWriter& AddCount(std::string_view name, uint64_t value) { return AddText(name, std::to_string(value)); }
  FigureWriter& AddText(std::string_view name, std::string_view value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// What does not fit is kInvalidArgument with line and reason. `text` must outlive the reader.
class FigureReader {
 public:
  // `what`: as messages name it, "machine file".
  FigureReader(std::string_view what, std::string_view text) : what_(what), text_(text) {}
  // The next line is this one.
  Status Expect(std::string_view line);
  // The next line is `name` and a number from `least` to `most`.
  Result<double> Number(std::string_view name, double least, double most);
  // The next line is `name` and printable ASCII, of 1 to `most` characters.
  Result<std::string> Text(std::string_view name, size_t most);
  // No line follows.
  Status End();

 private:
  bool Next();
  // What follows the name in the next line.
  Result<std::string_view> Value(std::string_view name);
  Status Bad(std::string_view expected) const;

  const std::string_view what_;
  std::string_view text_, line_;
  int number_ = 0;
};

// Where figures of that kind and key are kept: $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else ~/.cache/axccl,
// /<kind>-<hash of the key>. Empty where the environment names no place.
std::string CachedFile(std::string_view kind, std::string_view key);
// All files of that kind in that place, the newest first.
std::vector<std::string> CachedFiles(std::string_view kind);
// Replaces the file, with its folders. Where that fails, the log (INFO) says so, and of what the figures are.
void KeepFigures(const std::string& file, std::string_view text, const char* of_what);

}  // namespace axccl::cost
