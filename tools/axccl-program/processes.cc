// A process for each rank. The parent does not use the library: rank 0 says where ranks meet, the others are forked
// with it, and each sends one answer through a pipe whose other end only the parent has. So a pipe that ends without an
// answer is a process that has died, and the parent, which listens to all of them, hears that at once.
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "axccl/axccl.h"
#include "tools/axccl-program/ranks.h"

namespace axccl::tools {

using program::Tensor;

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
  kMeet,    // of rank 0, before its answer: the unique id
  kError,   // when it came, its size and text
  kResult,  // a ResultHead, and what follows it
};

struct ErrorHead {
  uint64_t nanoseconds;  // of the machine's monotonic clock
  uint64_t bytes;
};

// Of a result: behind it come the events, the seconds, then each output, its type first.
struct ResultHead {
  uint64_t peak_bytes, events, seconds, outputs;
};
struct TypeHead {
  DataType type;
  uint32_t num_dims;
  int64_t dims[program::kMaxDims];
};

// The side of a process.
class Answerer {
 public:
  explicit Answerer(int pipe) : pipe_(pipe) {}

  bool Meet(const ncclUniqueId& id) { return Say(Word::kMeet) && WriteBytes(pipe_, &id, sizeof id); }
  // The first one only.
  void Fail(std::string_view text) {
    if (failed_) return;
    failed_ = true;
    const ErrorHead head{MonotonicNanoseconds(), text.size()};
    (void)(Say(Word::kError) && WriteBytes(pipe_, &head, sizeof head) && WriteBytes(pipe_, text.data(), text.size()));
  }
  void Succeed(const RankResult& result) {
    const ResultHead head{result.peak_bytes, result.events.size(), result.seconds.size(), result.outputs.size()};
    bool is_open = Say(Word::kResult) && WriteBytes(pipe_, &head, sizeof head) &&
                   WriteBytes(pipe_, result.events.data(), result.events.size() * sizeof(RankEvent)) &&
                   WriteBytes(pipe_, result.seconds.data(), result.seconds.size() * sizeof(double));
    for (const Tensor& output : result.outputs) {
      TypeHead type{output.type.data_type, static_cast<uint32_t>(output.type.dims.size()), {}};
      std::copy(output.type.dims.begin(), output.type.dims.end(), type.dims);
      is_open = is_open && WriteBytes(pipe_, &type, sizeof type) &&
                WriteBytes(pipe_, output.bytes.data(), output.bytes.size());
    }
  }

 private:
  bool Say(Word word) { return WriteBytes(pipe_, &word, sizeof word); }

  const int pipe_;
  bool failed_ = false;
};

[[noreturn]] void BeRank(int ranks, int rank, const MakeTask& make, const ncclUniqueId* meeting, int pipe) {
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
    const auto failed = [&](const Status& error) { answer.Fail(error.message()); };
    const Result<RankResult> result = RunRank(ranks, rank, id, make, failed);
    if (result.ok()) answer.Succeed(result.value());
    return result.status();
  });
  if (!status.ok()) answer.Fail(status.message());
  close(pipe);
  _exit(status.ok() ? 0 : 1);
}

// The processes, from the parent's side. Those that still run at the end are killed.
class Processes {
 public:
  Processes(int ranks, const MakeTask& make) : ranks_(ranks), make_(make) {}
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
  Result<std::vector<RankResult>> Collect();

 private:
  struct Process {
    pid_t pid = -1;  // until it has been waited for
    int pipe = -1;   // from it
    int status = 0;
  };

  Status Fork(const ncclUniqueId* id);
  bool Wait(Process* process, int flags);
  Status Hear(size_t rank, RankResult* result);
  Status HearResult(size_t rank, RankResult* result);
  Status HearError(size_t rank, uint64_t* nanoseconds);
  Status FirstError(size_t rank, uint64_t nanoseconds, Status error);
  Status DescribeEnd(size_t rank);
  Status CauseOf(const Status& error);

  const int ranks_;
  const MakeTask& make_;
  std::vector<Process> processes_;
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
    BeRank(ranks_, static_cast<int>(rank), make_, id, ends[1]);
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

// Reads what a process sends next: the result, the unique id, or an error.
Status Processes::Hear(size_t rank, RankResult* result) {
  const int pipe = processes_[rank].pipe;
  Word word{};
  if (!ReadBytes(pipe, &word, sizeof word)) return DescribeEnd(rank);
  if (word == Word::kMeet) return ReadBytes(pipe, &id_, sizeof id_) ? Status() : DescribeEnd(rank);
  if (word == Word::kError) {
    uint64_t nanoseconds = 0;
    Status error = HearError(rank, &nanoseconds);
    return CauseOf(FirstError(rank, nanoseconds, std::move(error)));
  }
  return HearResult(rank, result);
}

Status Processes::HearResult(size_t rank, RankResult* result) {
  const int pipe = processes_[rank].pipe;
  ResultHead head{};
  if (!ReadBytes(pipe, &head, sizeof head)) return DescribeEnd(rank);
  result->peak_bytes = head.peak_bytes;
  result->events.resize(head.events);
  result->seconds.resize(head.seconds);
  if (!ReadBytes(pipe, result->events.data(), head.events * sizeof(RankEvent)) ||
      !ReadBytes(pipe, result->seconds.data(), head.seconds * sizeof(double)))
    return DescribeEnd(rank);
  for (uint64_t i = 0; i < head.outputs; ++i) {
    TypeHead type{};
    if (!ReadBytes(pipe, &type, sizeof type)) return DescribeEnd(rank);
    result->outputs.push_back(Tensor::Zeros({type.type, {type.dims, type.dims + type.num_dims}}));
    std::vector<uint8_t>& bytes = result->outputs.back().bytes;
    if (!ReadBytes(pipe, bytes.data(), bytes.size())) return DescribeEnd(rank);
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
  RankResult none;
  AXCCL_RETURN_IF_ERROR(Hear(0, &none));
  while (processes_.size() < static_cast<size_t>(ranks_)) AXCCL_RETURN_IF_ERROR(Fork(&id_));
  return Status();
}

// In the order in which they come.
Result<std::vector<RankResult>> Processes::Collect() {
  std::vector<RankResult> results(processes_.size());
  std::vector<pollfd> pipes;
  for (const Process& process : processes_) pipes.push_back({process.pipe, POLLIN, 0});
  for (size_t left = pipes.size(); left > 0;) {
    if (poll(pipes.data(), pipes.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "poll");
    }
    for (size_t rank = 0; rank < pipes.size(); ++rank) {
      if (pipes[rank].fd < 0 || pipes[rank].revents == 0) continue;
      AXCCL_RETURN_IF_ERROR(Hear(rank, &results[rank]));
      pipes[rank].fd = -1;  // poll passes over it
      --left;
    }
  }
  return results;
}

}  // namespace

Result<std::vector<RankResult>> RunRanksOnProcesses(int ranks, const MakeTask& make) {
  if (ranks > kMostRanks)
    return MakeStatus(Code::kInvalidUsage, "the program has %d ranks; at most %d can run", ranks, kMostRanks);
  const IgnoredPipeSignal ignored;
  Processes processes(ranks, make);
  AXCCL_RETURN_IF_ERROR(processes.Start());
  return processes.Collect();
}

}  // namespace axccl::tools
