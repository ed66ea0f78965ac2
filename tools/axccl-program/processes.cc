// A process for each rank. The parent does not use the library: rank 0 says where ranks meet, the others are forked
// with it, and each sends one answer through a pipe whose other end only the parent has. So a pipe that ends without an
// answer is a process that has died, and the parent, which listens to all of them, hears that at once.
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "axccl/axccl.h"
#include "src/program/facts.h"
#include "tools/axccl-program/rank_run.h"
#include "tools/axccl-program/run.h"

namespace axccl::tools {

using program::Program;
using program::Tensor;
using program::Tensors;

namespace {

// A process that writes to a parent that has gone gets an error instead.
class IgnoredPipeSignal {
 public:
  IgnoredPipeSignal() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before_);
  }
  ~IgnoredPipeSignal() { sigaction(SIGPIPE, &before_, nullptr); }
  IgnoredPipeSignal(const IgnoredPipeSignal&) = delete;

 private:
  struct sigaction before_ {};
};

// They return false at the end, or when the other side has gone.
bool WriteBytes(int pipe, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(pipe, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    from += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool ReadBytes(int pipe, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = read(pipe, to, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

// What a process sends begins with one of these.
enum class Word : uint8_t {
  kMeet,     // of rank 0, before its answer: the unique id
  kError,    // when it came, its size and text
  kOutputs,  // RankRun::peak_bytes and seconds, then of all outputs the bytes; the parent knows how many
};

struct ErrorHead {
  uint64_t nanoseconds;  // of the machine's monotonic clock
  uint64_t bytes;
};

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The side of a process.
class Answerer {
 public:
  explicit Answerer(int pipe) : pipe_(pipe) {}

  bool Meet(const ncclUniqueId& id) { return Say(Word::kMeet) && WriteBytes(pipe_, &id, sizeof id); }
  // The first one only.
  void Fail(std::string_view text) {
    if (failed_) return;
    failed_ = true;
    const ErrorHead head{Now(), text.size()};
    (void)(Say(Word::kError) && WriteBytes(pipe_, &head, sizeof head) && WriteBytes(pipe_, text.data(), text.size()));
  }
  void Succeed(const Tensors& outputs, const RankReport& report) {
    bool is_open = Say(Word::kOutputs) && WriteBytes(pipe_, &report.peak_bytes, sizeof report.peak_bytes) &&
                   WriteBytes(pipe_, report.seconds.data(), report.seconds.size() * sizeof(double));
    for (const Tensor& output : outputs)
      is_open = is_open && WriteBytes(pipe_, output.bytes.data(), output.bytes.size());
  }

 private:
  bool Say(Word word) { return WriteBytes(pipe_, &word, sizeof word); }

  const int pipe_;
  bool failed_ = false;
};

[[noreturn]] void BeRank(const Program& program, int rank, const Tensors& inputs, const RunOptions& options,
                         const ncclUniqueId* meeting, int pipe) {
  Answerer answer(pipe);
  const Status status = CatchAll(("rank " + std::to_string(rank)).c_str(), [&]() -> Status {
    ncclUniqueId id;
    if (meeting != nullptr) {
      id = *meeting;
    } else if (ncclGetUniqueId(&id) != ncclSuccess) {
      return MakeStatus(Code::kSystemError, "rank %d in ncclGetUniqueId: %s", rank, ncclGetLastError(nullptr));
    } else if (!answer.Meet(id)) {
      return MakeStatus(Code::kSystemError, "rank %d has no parent", rank);
    }
    RankReport report;
    const auto failed = [&](const Status& error) { answer.Fail(error.message()); };
    const Result<Tensors> outputs =
        RunRank(program, program::Liveness(program), rank, id, inputs, options, {}, failed, &report);
    if (outputs.ok()) answer.Succeed(outputs.value(), report);
    return outputs.status();
  });
  if (!status.ok()) answer.Fail(status.message());
  close(pipe);
  _exit(status.ok() ? 0 : 1);
}

// The types of the outputs of a rank.
std::vector<program::TensorType> OutputTypes(const Program& program, int rank) {
  std::vector<program::TensorType> types;
  for (const program::Part& part : program.parts) {
    if (!std::binary_search(part.ranks.begin(), part.ranks.end(), rank)) continue;
    const auto known = program::TypesOf(part.function);
    for (const program::Id id : part.function.results) types.push_back(*known.at(id));
  }
  return types;
}

// The processes, from the parent's side. Those that still run at the end are killed.
class Processes {
 public:
  Processes(const Program& program, const std::vector<Tensors>& inputs, const RunOptions& options)
      : program_(program), inputs_(inputs), options_(options), reports_(inputs.size()) {}
  ~Processes() {
    for (const Process& process : processes_) {
      if (process.pid > 0) kill(process.pid, SIGKILL);
    }
    for (Process& process : processes_) {
      if (process.pid > 0) (void)Wait(&process, 0);
      if (process.pipe >= 0) close(process.pipe);
    }
  }
  Processes(const Processes&) = delete;

  Status Start();
  Result<std::vector<Tensors>> Collect();
  const std::vector<RankReport>& reports() const { return reports_; }

 private:
  struct Process {
    pid_t pid = -1;  // until it has been waited for
    int pipe = -1;   // from it
    int status = 0;
  };

  Status Fork(const ncclUniqueId* id);
  bool Wait(Process* process, int flags);
  Status Hear(size_t rank, Tensors* outputs);
  Status HearError(size_t rank, uint64_t* nanoseconds);
  Status FirstError(size_t rank, uint64_t nanoseconds, Status error);
  Status DescribeEnd(size_t rank);
  Status CauseOf(const Status& error);

  const Program& program_;
  const std::vector<Tensors>& inputs_;
  const RunOptions& options_;
  std::vector<Process> processes_;
  std::vector<RankReport> reports_;
  ncclUniqueId id_{};
};

// Whether it has ended.
bool Processes::Wait(Process* process, int flags) {
  pid_t ended = -1;
  do {
    ended = waitpid(process->pid, &process->status, flags);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return false;
  process->pid = -1;
  return true;
}

Status Processes::Fork(const ncclUniqueId* id) {
  const size_t rank = processes_.size();
  int ends[2];
  if (pipe(ends) != 0) return SystemError(errno, "pipe of rank %zu", rank);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    for (const Process& other : processes_) close(other.pipe);
    close(ends[0]);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    BeRank(program_, static_cast<int>(rank), inputs_[rank], options_, id, ends[1]);
  }
  const int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return SystemError(error, "process of rank %zu", rank);
  }
  processes_.push_back({pid, ends[0]});
  return Status();
}

// Reads what a process sends next: the outputs, the unique id, or an error.
Status Processes::Hear(size_t rank, Tensors* outputs) {
  const int pipe = processes_[rank].pipe;
  Word word{};
  if (!ReadBytes(pipe, &word, sizeof word)) return DescribeEnd(rank);
  if (word == Word::kMeet) return ReadBytes(pipe, &id_, sizeof id_) ? Status() : DescribeEnd(rank);
  if (word == Word::kError) {
    uint64_t nanoseconds = 0;
    Status error = HearError(rank, &nanoseconds);
    return CauseOf(FirstError(rank, nanoseconds, std::move(error)));
  }
  RankReport& report = reports_[rank];
  report.seconds.resize(static_cast<size_t>(options_.repeat));
  if (!ReadBytes(pipe, &report.peak_bytes, sizeof report.peak_bytes) ||
      !ReadBytes(pipe, report.seconds.data(), report.seconds.size() * sizeof(double)))
    return DescribeEnd(rank);
  for (const program::TensorType& type : OutputTypes(program_, static_cast<int>(rank))) {
    outputs->push_back(Tensor::Zeros(type));
    if (!ReadBytes(pipe, outputs->back().bytes.data(), outputs->back().bytes.size())) return DescribeEnd(rank);
  }
  return Status();
}

Status Processes::HearError(size_t rank, uint64_t* nanoseconds) {
  const int pipe = processes_[rank].pipe;
  ErrorHead head{};
  if (!ReadBytes(pipe, &head, sizeof head)) return DescribeEnd(rank);
  std::string text(head.bytes, ' ');
  if (!ReadBytes(pipe, text.data(), text.size())) return DescribeEnd(rank);
  *nanoseconds = head.nanoseconds;
  return {Code::kRemoteError, text};
}

// A rank says that it has failed before others can notice it. So what came before an error has been sent, too.
Status Processes::FirstError(size_t rank, uint64_t nanoseconds, Status error) {
  for (size_t other = 0; other < processes_.size(); ++other) {
    pollfd ready{processes_[other].pipe, POLLIN, 0};
    Word word{};
    if (other == rank || poll(&ready, 1, 0) <= 0 || !ReadBytes(ready.fd, &word, sizeof word)) continue;
    uint64_t at = 0;
    if (word != Word::kError) continue;
    Status earlier = HearError(other, &at);
    if (at != 0 && at < nanoseconds) error = std::move(earlier), nanoseconds = at;
  }
  return error;
}

// Of a process that has not answered to the end.
Status Processes::DescribeEnd(size_t rank) {
  Process& process = processes_[rank];
  if (process.pid > 0) (void)Wait(&process, 0);
  if (WIFSIGNALED(process.status))
    return MakeStatus(Code::kRemoteError, "rank %zu: its process was killed by signal %d (%s)", rank,
                      WTERMSIG(process.status), strsignal(WTERMSIG(process.status)));
  return MakeStatus(Code::kRemoteError, "rank %zu: its process has ended with status %d", rank,
                    WEXITSTATUS(process.status));
}

// A rank may hear of another's death before the parent does: then that is the error.
Status Processes::CauseOf(const Status& error) {
  constexpr int kMilliseconds = 200;
  bool some_run = true;
  for (int waited = 0; some_run && waited < kMilliseconds; waited += 10) {
    some_run = false;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      Process& process = processes_[rank];
      if (process.pid > 0 && Wait(&process, WNOHANG) && WIFSIGNALED(process.status)) return DescribeEnd(rank);
      some_run = some_run || process.pid > 0;
    }
    if (some_run) poll(nullptr, 0, 10);
  }
  return error;
}

Status Processes::Start() {
  AXCCL_RETURN_IF_ERROR(Fork(nullptr));
  Tensors none;
  AXCCL_RETURN_IF_ERROR(Hear(0, &none));
  while (processes_.size() < inputs_.size()) AXCCL_RETURN_IF_ERROR(Fork(&id_));
  return Status();
}

// In the order in which they come.
Result<std::vector<Tensors>> Processes::Collect() {
  std::vector<Tensors> outputs(processes_.size());
  std::vector<pollfd> pipes;
  for (const Process& process : processes_) pipes.push_back({process.pipe, POLLIN, 0});
  for (size_t left = pipes.size(); left > 0;) {
    if (poll(pipes.data(), pipes.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "poll");
    }
    for (size_t rank = 0; rank < pipes.size(); ++rank) {
      if (pipes[rank].fd < 0 || pipes[rank].revents == 0) continue;
      AXCCL_RETURN_IF_ERROR(Hear(rank, &outputs[rank]));
      pipes[rank].fd = -1;  // poll passes over it
      --left;
    }
  }
  return outputs;
}

}  // namespace

Result<std::vector<Tensors>> RunOnProcesses(const Program& program, const std::vector<Tensors>& inputs,
                                            std::vector<uint64_t>* peaks, const RunOptions& options,
                                            std::vector<double>* steps) {
  if (program.ranks > kMostRanks)
    return MakeStatus(Code::kInvalidUsage, "the program has %d ranks; at most %d can run", program.ranks, kMostRanks);
  const IgnoredPipeSignal ignored;
  Processes processes(program, inputs, options);
  AXCCL_RETURN_IF_ERROR(processes.Start());
  AXCCL_ASSIGN_OR_RETURN(std::vector<Tensors> outputs, processes.Collect());
  PassOn(processes.reports(), peaks, steps);
  return outputs;
}

}  // namespace axccl::tools
