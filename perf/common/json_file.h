// The JSON file of a perf run: complete in the end, or a failure of the run.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "src/base/json.h"
#include "src/base/status.h"

namespace axccl::perf {

// Takes over an open file; used by one thread.
class JsonFile {
 public:
  JsonFile(FILE* file, std::string path) : file_(file), path_(std::move(path)), json_(file) {}
  // Closes the file. The run fails (kExitFailed) if that does.
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  JsonWriter* json() { return &json_; }
  void Flush() { std::fflush(file_); }
  // Ends what is open, and closes the file. An error if the file does not hold all that was written.
  Status Close();

 private:
  FILE* file_;  // null: closed
  const std::string path_;
  JsonWriter json_;
};

// Creates the file that option -J names. The run fails (kExitUsage) if there is one already.
std::unique_ptr<JsonFile> CreateJsonFile(const std::string& path);

}  // namespace axccl::perf
