#include "tests/perf/tool_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <regex>
#include <sstream>

extern char** environ;

namespace axccl::perf {
namespace {

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's variables without those of a launcher that may run the tests.
std::vector<std::string> Variables(const Tool::Environment& added) {
  std::vector<std::string> all;
  for (char** e = environ; *e != nullptr; ++e) {
    std::string text = *e;
    std::string name = text.substr(0, text.find('='));
    bool launcher = name == "RANK" || name == "WORLD_SIZE" || name.rfind("OMPI_", 0) == 0 ||
                    name.rfind("PMI", 0) == 0 || name.rfind("SLURM_", 0) == 0 || name.rfind("MASTER_", 0) == 0;
    if (!launcher && added.count(name) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

// Appends the available bytes; returns false at the end of the stream.
bool Drain(int fd, std::string* into) {
  char buffer[4096];
  ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) into->append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

Tool::Tool(const std::string& program, std::vector<std::string> arguments, const Environment& environment) {
  std::string path = program.find('/') == std::string::npos ? std::string(AXCCL_PERF_DIR) + "/" + program : program;
  arguments.insert(arguments.begin(), path);
  std::vector<std::string> variables = Variables(environment);
  std::vector<char*> argv = Pointers(&arguments);
  std::vector<char*> envp = Pointers(&variables);
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
  pid_ = fork();
  if (pid_ < 0) std::abort();  // kill(-1) would reach every process on the machine
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execve(path.c_str(), argv.data(), envp.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Tool::~Tool() {
  if (running_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

bool Tool::ReadSome() {
  pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  poll(fds, 2, -1);
  if (fds[0].revents != 0 && !Drain(out_fd_, &out_)) {
    close(out_fd_);
    out_fd_ = -1;
  }
  if (fds[1].revents != 0 && !Drain(err_fd_, &err_)) {
    close(err_fd_);
    err_fd_ = -1;
  }
  return true;
}

std::string Tool::ReadUntil(const std::string& text) {
  for (;;) {
    size_t at = out_.find(text);
    size_t end = at == std::string::npos ? at : out_.find('\n', at);
    if (end != std::string::npos) {
      size_t begin = out_.rfind('\n', at) + 1;
      return out_.substr(begin, end - begin);
    }
    if (!ReadSome()) return "";
  }
}

int Tool::Finish() {
  while (ReadSome()) {
  }
  if (running_) {
    waitpid(pid_, &status_, 0);
    running_ = false;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
}

// ---- the format ----

namespace {

// The lines above the table, in their order; `*` marks those that a run may repeat or omit.
bool ParseHead(std::istringstream* lines, Output* o) {
  std::string line;
  std::smatch m;
  std::getline(*lines, line);
  if (line.rfind("# Writing JSON output to ", 0) == 0) std::getline(*lines, line);
  auto fail = [&](const char* what) {
    o->error = std::string(what) + ": '" + line + "'";
    return false;
  };
  if (!std::regex_match(line, std::regex("# nccl-tests version \\S+ nccl-headers=\\d+ nccl-library=\\d+"))) {
    return fail("version line");
  }
  std::getline(*lines, line);
  if (!std::regex_match(line, m, std::regex("# Collective test starting: (\\S+)"))) return fail("starting line");
  o->name = m[1];
  std::getline(*lines, line);
  if (!std::regex_match(line, std::regex("# nThread \\d+ nGpus \\d+ minBytes \\d+ maxBytes \\d+ step: \\d+"
                                         "\\((bytes|factor)\\) warmup iters: \\d+ iters: \\d+ agg iters: \\d+ "
                                         "validation: \\d+ graph: \\d+ unalign: \\d+"))) {
    return fail("parameter line");
  }
  while (std::getline(*lines, line) && line != "# Using devices") {
    if (line != "#" && line.rfind("# Blocking", 0) != 0 && line.rfind("# Parallel", 0) != 0 &&
        line.rfind("# Views: ", 0) != 0 && line.rfind("# Per-Iteration", 0) != 0) {
      return fail("line before the devices");
    }
  }
  std::regex rank("#  Rank +\\d+ Group +\\d+ Pid +\\d+ on +\\S+ device +\\d+ \\[[0-9a-f:]+\\] .+");
  while (std::getline(*lines, line) && std::regex_match(line, rank)) o->ranks.push_back(line);
  if (line != "#") return fail("line behind the devices");
  return true;
}

bool ParseHeader(std::istringstream* lines, Output* o) {
  std::string titles;
  std::string names;
  std::string units;
  std::getline(*lines, titles);
  std::getline(*lines, names);
  std::getline(*lines, units);
  auto fields = [](const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> all;
    for (std::string field; in >> field;) all.push_back(field);
    return all;
  };
  std::vector<std::string> half = {"time", "algbw", "busbw", "#wrong"};
  std::vector<std::string> want = {"#", "size", "count", "type", "redop", "root"};
  want.insert(want.end(), half.begin(), half.end());
  want.insert(want.end(), half.begin(), half.end());
  if (fields(titles) != std::vector<std::string>{"#", "out-of-place", "in-place"}) o->error = "titles: " + titles;
  std::vector<std::string> with_cpu_time = want;  // -C
  with_cpu_time[6] = with_cpu_time[10] = "cputime";
  if (fields(names) != want && fields(names) != with_cpu_time) o->error = "columns: " + names;
  if (fields(units) !=
      std::vector<std::string>{"#", "(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)", "(us)", "(GB/s)", "(GB/s)"}) {
    o->error = "units: " + units;
  }
  return o->error.empty();
}

bool ParseRow(const std::string& line, Output* o) {
  std::istringstream in(line);
  Row r;
  in >> r.bytes >> r.count >> r.type >> r.op >> r.root;
  for (Half* h : {&r.out_of_place, &r.in_place}) in >> h->time >> h->alg_bw >> h->bus_bw >> h->wrong;
  std::string rest;
  // Column positions are part of the format.
  bool fits = line.size() >= 114 && line[12] == ' ' && line[26] == ' ';
  if (!in || in >> rest || !fits) {
    o->error = "row: '" + line + "'";
    return false;
  }
  o->rows.push_back(r);
  return true;
}

bool ParseFooterLine(const std::string& line, Output* o) {
  std::smatch m;
  if (std::regex_match(line, m, std::regex("# Out of bounds values +: (\\d+) (OK|FAILED)"))) {
    o->out_of_bounds = std::stoi(m[1]);
    o->bounds_verdict = m[2];
  } else if (std::regex_match(line, m, std::regex("# Avg bus bandwidth +: (\\S+) (OK|FAILED)?"))) {
    o->average = std::stod(m[1]);
    o->average_verdict = m[2];
  } else if (line == "# Collective test concluded: " + o->name) {
    o->concluded = true;
  } else if (!line.empty() && line != "#" && line.rfind("# Memory per rank", 0) != 0 &&
             line.rfind("# Initialization time", 0) != 0 && line.rfind("# error: ", 0) != 0) {
    o->error = "footer: '" + line + "'";
    return false;
  }
  return true;
}

}  // namespace

Output ParseOutput(const std::string& text) {
  Output o;
  std::istringstream lines(text);
  if (!ParseHead(&lines, &o) || !ParseHeader(&lines, &o)) return o;
  for (std::string line; std::getline(lines, line);) {
    bool row = !line.empty() && line[0] != '#';
    if (!(row ? ParseRow(line, &o) : ParseFooterLine(line, &o))) return o;
  }
  if (!o.concluded || o.out_of_bounds < 0 || o.average < 0) o.error = "the footer is not complete";
  return o;
}

}  // namespace axccl::perf
