#include "tools/axccl-info/ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl_info {
namespace {

struct IdPipe {
  int read_end = -1;
  int write_end = -1;
};

// Keeps the first failure of a rank; returns false to stop it.
bool Check(RankReport* report, ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return true;
  snprintf(report->error, sizeof(report->error), "%s: %s: %s", call, ncclGetErrorString(result),
           ncclGetLastError(nullptr));
  return false;
}

#define INFO_TRY(call) \
  if (!Check(report, call, #call)) return false

// Rank 0 makes the id and sends it to the others.
bool GetId(int rank, const std::vector<IdPipe>& pipes, ncclUniqueId* id, RankReport* report) {
  if (rank != 0) {
    if (read(pipes[rank].read_end, id, sizeof(*id)) == static_cast<ssize_t>(sizeof(*id))) return true;
    snprintf(report->error, sizeof(report->error), "rank 0 ended without a unique id");
    return false;
  }
  INFO_TRY(ncclGetUniqueId(id));
  for (size_t peer = 1; peer < pipes.size(); ++peer) {
    if (write(pipes[peer].write_end, id, sizeof(*id)) == static_cast<ssize_t>(sizeof(*id))) continue;
    snprintf(report->error, sizeof(report->error), "rank %zu ended before it had the unique id", peer);
    return false;
  }
  return true;
}

bool ReadMemory(ncclComm_t comm, uint64_t* bytes, RankReport* report) {
  axcclCommInfo_t info = {};
  info.size = sizeof(info);
  INFO_TRY(axcclCommGetInfo(comm, &info));
  *bytes = info.memory_bytes;
  return true;
}

bool ReadLinks(ncclComm_t comm, int ranks, RankReport* report) {
  for (int peer = 0; peer < ranks; ++peer) {
    const char* link = "";
    INFO_TRY(axcclCommGetLink(comm, peer, &link));
    snprintf(report->links[peer], sizeof(report->links[peer]), "%s", link);
  }
  return true;
}

bool ReduceOnce(ncclComm_t comm, RankReport* report) {
  void* buffer = nullptr;
  axcclStream_t stream = nullptr;
  const char* algorithm = "";
  INFO_TRY(ncclMemAlloc(&buffer, kReduceBytes));
  INFO_TRY(axcclStreamCreate(&stream, axcclStreamNonBlocking));
  INFO_TRY(ncclAllReduce(buffer, buffer, kReduceBytes / sizeof(float), ncclFloat32, ncclSum, comm,
                         axcclStreamToCuda(stream)));
  INFO_TRY(axcclStreamSynchronize(stream));
  INFO_TRY(axcclCommGetLastAlgorithm(comm, &algorithm));
  snprintf(report->algorithm, sizeof(report->algorithm), "%s", algorithm);
  INFO_TRY(axcclStreamDestroy(stream));
  INFO_TRY(ncclMemFree(buffer));
  return true;
}

bool RunRank(int rank, int ranks, const std::vector<IdPipe>& pipes, RankReport* report) {
  report->pid = getpid();
  ncclUniqueId id;
  if (!GetId(rank, pipes, &id, report)) return false;
  ncclComm_t comm = nullptr;
  INFO_TRY(axcclHostSetDevice(0));  // on the host, unless AXCCL_DEVICE says otherwise
  const auto start = std::chrono::steady_clock::now();
  INFO_TRY(ncclCommInitRank(&comm, ranks, id, rank));
  report->init_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  INFO_TRY(ncclCommCuDevice(comm, &report->device));
  if (!ReadMemory(comm, &report->memory_before, report)) return false;
  if (!ReadLinks(comm, ranks, report)) return false;
  if (!ReduceOnce(comm, report)) return false;
  if (!ReadMemory(comm, &report->memory_after, report)) return false;
  INFO_TRY(ncclCommFinalize(comm));
  INFO_TRY(ncclCommDestroy(comm));
  return true;
}

// Waits for all children. The first that fails ends the others, because they would wait for it.
void Reap(std::vector<pid_t> children, RankReport* reports) {
  bool ended = false;  // whether the others were signalled to end
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    for (size_t rank = 0; rank < children.size(); ++rank) {
      if (children[rank] != pid) continue;
      children[rank] = -1;
      if (reports[rank].done || reports[rank].error[0] != '\0') continue;
      if (ended)
        snprintf(reports[rank].error, sizeof(reports[rank].error), "ended because another rank failed");
      else
        snprintf(reports[rank].error, sizeof(reports[rank].error), "process ended with %s %d",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ended = true;
    for (const pid_t child : children) {
      if (child > 0) kill(child, SIGTERM);
    }
  }
}

}  // namespace

std::vector<RankReport> RunRanks(int ranks) {
  const size_t bytes = sizeof(RankReport) * static_cast<size_t>(ranks);
  void* const shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return {};
  auto* const reports = static_cast<RankReport*>(shared);
  std::vector<IdPipe> pipes(ranks);
  std::vector<pid_t> children;
  for (IdPipe& ends : pipes) {
    int fds[2];
    if (pipe(fds) != 0) return {};
    ends = {fds[0], fds[1]};
  }
  fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      // Only rank 0 may hold the writing ends, so that the readers see when it ends.
      for (const IdPipe& ends : pipes) {
        if (rank != 0) close(ends.write_end);
      }
      reports[rank].done = RunRank(rank, ranks, pipes, &reports[rank]);
      _exit(reports[rank].done ? 0 : 1);
    }
    if (pid < 0) snprintf(reports[rank].error, sizeof(reports[rank].error), "fork failed");
    if (pid > 0) children.push_back(pid);
    if (pid < 0) break;
  }
  for (const IdPipe& ends : pipes) {
    close(ends.read_end);
    close(ends.write_end);
  }
  if (static_cast<int>(children.size()) < ranks) {
    for (const pid_t child : children) kill(child, SIGTERM);
  }
  Reap(children, reports);
  std::vector<RankReport> result(reports, reports + ranks);
  munmap(shared, bytes);
  return result;
}

}  // namespace axccl_info
