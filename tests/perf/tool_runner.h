// Runs a perf tool as a user would and reads its output, with an independent parser of nccl-tests' format.
//
// Not thread-safe. The destructor kills a Tool that is still running.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace axccl::perf {

class Tool {
 public:
  using Environment = std::map<std::string, std::string>;

  // Starts `program` (a name under build/perf, or a path) with this process's variables and those of `environment`.
  Tool(const std::string& program, std::vector<std::string> arguments, const Environment& environment = {});
  ~Tool();
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  pid_t pid() const { return pid_; }
  // Reads standard output until a line contains `text`; returns the line, or "" if the output ended before.
  std::string ReadUntil(const std::string& text);
  // Reads the rest and waits; returns the exit status, or minus the signal.
  int Finish();
  // The output so far; complete after Finish.
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

// A whole output in nccl-tests' format; `error` is empty if every line is correct.
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
