// Runs a perf tool as a user would and reads what it printed, with a parser of nccl-tests' format of our own.
//
// Not thread-safe. A Tool that is still running when destroyed is killed.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace axccl::perf {

class Tool {
 public:
  using Environment = std::map<std::string, std::string>;

  // Starts `program` (a name under build/perf, or a path) with the variables added to this process' own.
  Tool(const std::string& program, std::vector<std::string> arguments, const Environment& environment = {});
  ~Tool();
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  pid_t pid() const { return pid_; }
  // Reads standard output until a line contains `text`; the line, or "" when output ended without.
  std::string ReadUntil(const std::string& text);
  // Reads everything and waits: exit status, or minus the signal.
  int Finish();
  // So far; complete after Finish.
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  bool ReadSome();

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  bool running_ = true;
  int status_ = 0;
  std::string out_;
  std::string err_;
};

// One half of a row.
struct Half {
  double time;
  double alg_bw;
  double bus_bw;
  std::string wrong;  // a number or N/A
};

struct Row {
  long bytes;
  long count;
  std::string type;
  std::string op;
  int root;
  Half out_of_place;
  Half in_place;
};

// A whole output in nccl-tests' format; `error` is empty when every line is what it should be.
struct Output {
  std::string error;
  std::string name;
  std::vector<std::string> ranks;  // the lines under "# Using devices"
  std::vector<Row> rows;
  int out_of_bounds = -1;
  std::string bounds_verdict;
  double average = -1;
  std::string average_verdict;
  bool concluded = false;
};
Output ParseOutput(const std::string& text);

}  // namespace axccl::perf
