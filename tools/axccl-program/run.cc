#include "tools/axccl-program/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include "axccl/axccl.h"
#include "src/program/text.h"
#include "tools/axccl-program/rank_run.h"

namespace axccl::tools {

using program::Observer;
using program::Program;
using program::Tensor;
using program::Tensors;

namespace {

Status ErrorOf(int rank, const char* what, ncclComm_t comm) {
  return MakeStatus(Code::kRemoteError, "rank %d in %s: %s", rank, what, ncclGetLastError(comm));
}

Result<RankOutcome> RunWith(const Program& program, const program::Liveness& liveness, int rank, ncclComm_t comm,
                            const Tensors& inputs, const Observer& observer) {
  axcclStream_t stream = nullptr;
  if (axcclStreamCreate(&stream, axcclStreamNonBlocking) != ncclSuccess)
    return ErrorOf(rank, "axcclStreamCreate", comm);
  Result<RankOutcome> outcome = [&]() -> Result<RankOutcome> {
    RankRun run(program, liveness, rank, comm, stream, observer);
    AXCCL_ASSIGN_OR_RETURN(Tensors outputs, run.Run(inputs));
    return RankOutcome{std::move(outputs), run.peak_bytes()};
  }();
  (void)axcclStreamDestroy(stream);
  return outcome;
}

// The calling thread's rank, from its first call of the library to its last.
Result<RankOutcome> RunRank(const Program& program, const program::Liveness& liveness, int rank, const ncclUniqueId& id,
                            const Tensors& inputs, const Observer& observer) {
  ncclComm_t comm = nullptr;
  if (axcclHostSetDevice(rank % 1024) != ncclSuccess) return ErrorOf(rank, "axcclHostSetDevice", nullptr);
  if (ncclCommInitRank(&comm, program.ranks, id, rank) != ncclSuccess)
    return ErrorOf(rank, "ncclCommInitRank", nullptr);
  Result<RankOutcome> outcome = RunWith(program, liveness, rank, comm, inputs, observer);
  const ncclResult_t left = outcome.ok() ? ncclCommDestroy(comm) : ncclCommAbort(comm);
  if (outcome.ok() && left != ncclSuccess) return ErrorOf(rank, "ncclCommDestroy", nullptr);
  return outcome;
}

// ---- pipes between processes ----

class Pipe {
 public:
  Pipe() { open_ = pipe(ends_) == 0; }
  ~Pipe() { CloseReader(), CloseWriter(); }
  Pipe(const Pipe&) = delete;
  bool open() const { return open_; }
  void CloseReader() { Close(&ends_[0]); }
  void CloseWriter() { Close(&ends_[1]); }

  // They return false at the end, or when the other side has gone.
  bool Write(const void* data, size_t bytes) const {
    const char* from = static_cast<const char*>(data);
    for (ssize_t n = 0; bytes > 0; from += n, bytes -= static_cast<size_t>(n)) {
      n = write(ends_[1], from, bytes);
      if (n < 0 && errno == EINTR) n = 0;
      if (n < 0) return false;
    }
    return true;
  }
  bool Read(void* data, size_t bytes) const {
    char* to = static_cast<char*>(data);
    for (ssize_t n = 0; bytes > 0; to += n, bytes -= static_cast<size_t>(n)) {
      n = read(ends_[0], to, bytes);
      if (n < 0 && errno == EINTR) {
        n = 0;
        continue;
      }
      if (n <= 0) return false;
    }
    return true;
  }

 private:
  void Close(int* end) {
    if (open_ && *end >= 0) close(*end);
    *end = -1;
  }

  int ends_[2] = {-1, -1};
  bool open_ = false;
};

// What a process sends to its parent: an error's text, or outputs, whose types the program has.
struct Answer {
  uint64_t error_bytes = 0;  // 0: outputs follow
  uint64_t peak_bytes = 0;
};

void Send(const Pipe& to, const Result<RankOutcome>& outcome) {
  const std::string_view error = outcome.ok() ? std::string_view() : outcome.status().message();
  const Answer answer{error.size(), outcome.ok() ? outcome.value().peak_bytes : 0};
  bool sent = to.Write(&answer, sizeof answer) && to.Write(error.data(), error.size());
  if (!outcome.ok()) return;
  for (const Tensor& output : outcome.value().outputs)
    sent = sent && to.Write(output.bytes.data(), output.bytes.size());
}

// The types of the outputs of a rank.
std::vector<program::TensorType> OutputTypes(const Program& program, int rank) {
  std::vector<program::TensorType> types;
  for (const program::Part& part : program.parts) {
    if (std::find(part.ranks.begin(), part.ranks.end(), rank) == part.ranks.end()) continue;
    const auto add = [&](const program::Value& value, program::Id id) {
      if (value.id == id) types.push_back(value.type);
    };
    for (const program::Id id : part.function.results) {
      for (const program::Value& argument : part.function.arguments) add(argument, id);
      for (const program::Operation& operation : part.function.operations) {
        for (const program::Value& result : operation.results) add(result, id);
      }
    }
  }
  return types;
}

Result<RankOutcome> Receive(const Pipe& from, const Program& program, int rank) {
  const auto gone = [rank] { return MakeStatus(Code::kRemoteError, "the process of rank %d has ended", rank); };
  Answer answer;
  if (!from.Read(&answer, sizeof answer)) return gone();
  if (answer.error_bytes != 0) {
    std::string error(answer.error_bytes, ' ');
    if (!from.Read(error.data(), error.size())) return gone();
    return Status(Code::kRemoteError, error);
  }
  RankOutcome outcome;
  outcome.peak_bytes = answer.peak_bytes;
  for (const program::TensorType& type : OutputTypes(program, rank)) {
    Tensor& output = outcome.outputs.emplace_back(Tensor::Zeros(type));
    if (!from.Read(output.bytes.data(), output.bytes.size())) return gone();
  }
  return outcome;
}

struct Child {
  pid_t pid = -1;
  Pipe id;       // to it: where ranks meet
  Pipe answers;  // from it; from rank 0, first where ranks meet
};

[[noreturn]] void RunChild(const Program& program, int rank, const Tensors& inputs, Child* child) {
  child->id.CloseWriter();
  child->answers.CloseReader();
  ncclUniqueId id{};
  bool met = true;
  if (rank == 0) {
    met = ncclGetUniqueId(&id) == ncclSuccess && child->answers.Write(&id, sizeof id);
  } else {
    met = child->id.Read(&id, sizeof id);
  }
  if (met) Send(child->answers, RunRank(program, program::Liveness(program), rank, id, inputs, {}));
  child->answers.CloseWriter();
  _exit(0);
}

Status StartChildren(const Program& program, const std::vector<Tensors>& inputs, std::vector<Child>* children) {
  for (size_t r = 0; r < children->size(); ++r) {
    Child& child = (*children)[r];
    if (!child.id.open() || !child.answers.open()) return SystemError(EMFILE, "pipes of rank %zu", r);
    child.pid = fork();
    if (child.pid < 0) return SystemError(errno, "fork of rank %zu", r);
    if (child.pid == 0) RunChild(program, static_cast<int>(r), inputs[r], &child);
    child.id.CloseReader();
    child.answers.CloseWriter();
  }
  ncclUniqueId id;
  if (!(*children)[0].answers.Read(&id, sizeof id)) return MakeStatus(Code::kRemoteError, "rank 0 could not start");
  for (size_t r = 1; r < children->size(); ++r) (void)(*children)[r].id.Write(&id, sizeof id);
  return Status();
}

}  // namespace

Result<Outcomes> RunOnThreads(const Program& program, const std::vector<Tensors>& inputs, const Observer& observer) {
  const program::Liveness liveness(program);
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return ErrorOf(0, "ncclGetUniqueId", nullptr);
  Outcomes outcomes(inputs.size());
  std::mutex mutex;
  Status first;  // error
  std::vector<std::thread> threads;
  for (int rank = 0; rank < program.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<RankOutcome> result = RunRank(program, liveness, rank, id, inputs[static_cast<size_t>(rank)], observer);
      const std::lock_guard lock(mutex);
      if (result.ok()) {
        outcomes[static_cast<size_t>(rank)] = std::move(result.value());
      } else if (first.ok()) {
        first = result.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first.ok()) return first;
  return outcomes;
}

Result<Outcomes> RunOnProcesses(const Program& program, const std::vector<Tensors>& inputs) {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<Child> children(inputs.size());
  Status first = StartChildren(program, inputs, &children);
  Outcomes outcomes;
  for (size_t r = 0; r < children.size(); ++r) {
    if (!first.ok() && children[r].pid > 0) kill(children[r].pid, SIGTERM);
    if (children[r].pid <= 0) continue;
    Result<RankOutcome> result = Receive(children[r].answers, program, static_cast<int>(r));
    if (!result.ok() && first.ok()) first = result.status();
    if (result.ok()) outcomes.push_back(std::move(result.value()));
    children[r].answers.CloseReader();
    int status = 0;
    while (waitpid(children[r].pid, &status, 0) < 0 && errno == EINTR) continue;
  }
  if (!first.ok()) return first;
  return outcomes;
}

}  // namespace axccl::tools
