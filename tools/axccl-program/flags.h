// Options of a command, `--name value`, each read into its variable. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace axccl::tools {

class Flags {
 public:
  void Number(const char* name, int64_t* value, int64_t least = 1);
  void Text(const char* name, std::string* value);
  // `set` returns false if the value is none of `choices`, which are for the message.
  void Choice(const char* name, const char* choices, std::function<bool(const std::string&)> set);

  // What is no option is appended to `rest`. kInvalidArgument names the argument and what is expected.
  Status Parse(const std::vector<std::string>& arguments, std::vector<std::string>* rest) const;

 private:
  struct Flag {
    const char* name;
    std::function<Status(const std::string&)> set;
  };

  std::vector<Flag> flags_;
};

// "80G", "512M", "25000": bytes, with k, M, G, T for powers of 1000. False if it is something else.
bool ReadBytes(const std::string& text, uint64_t* bytes);
// "1,2,4"
bool ReadNumbers(const std::string& text, std::vector<int64_t>* numbers);

}  // namespace axccl::tools
