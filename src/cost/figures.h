// Measured figures are kept in small text files in a folder of the user's.
//
// A file has a title with a version, then `name value` lines in a fixed order; numbers are written with all their
// digits. The reader accepts exactly the texts that the writer produces, so it rejects a damaged file. A file that is
// missing, damaged or not writable is never an error for the code that measures. Values; the functions are thread-safe.
// Processes may race: the last complete file stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace axccl::cost {

inline constexpr size_t kMostFigureBytes = 4096;  // limit on the size of such a file

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

// Reads the text line by line. A line that does not fit gives kInvalidArgument with line and reason. `text` must
// outlive the reader.
class FigureReader {
 public:
  // `what`: the name of the file in messages, such as "machine file".
  FigureReader(std::string_view what, std::string_view text) : what_(what), text_(text) {}
  // Reads a line that must equal `line`.
  Status Expect(std::string_view line);
  // Reads a line with `name` and a number from `least` to `most`.
  Result<double> Number(std::string_view name, double least, double most);
  // Reads a line with `name` and printable ASCII of 1 to `most` characters.
  Result<std::string> Text(std::string_view name, size_t most);
  // Fails if a line follows.
  Status End();

 private:
  bool Next();
  // The text after the name in the next line.
  Result<std::string_view> Value(std::string_view name);
  Status Bad(std::string_view expected) const;

  const std::string_view what_;
  std::string_view text_, line_;
  int number_ = 0;
};

// The file for figures of that kind and key: $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else ~/.cache/axccl,
// /<kind>-<hash of the key>. Empty when the environment names none of these folders.
std::string CachedFile(std::string_view kind, std::string_view key);
// All files of that kind in that folder, the newest first.
std::vector<std::string> CachedFiles(std::string_view kind);
// Replaces the file and makes missing folders. A failure is logged (INFO) with `of_what`, which names what was
// measured.
void KeepFigures(const std::string& file, std::string_view text, const char* of_what);

}  // namespace axccl::cost
