// ForkProcesses of launch.h: the supervising parent.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "perf/common/fail.h"
#include "perf/common/launch.h"

namespace axccl::perf {
namespace {

// How long the others may take after the first failure: after a crash just long enough to report what they saw, after
// an orderly failure (all ranks know about wrong data) long enough to finish by themselves.
constexpr double kGraceAfterCrash = 0.5;
constexpr double kGraceAfterFailure = 20;

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Child {
  pid_t pid = 0;
  bool running = true;
  int wait_status = 0;
  bool ended_by_us = false;
  bool Crashed() const { return !running && !ended_by_us && WIFSIGNALED(wait_status); }
  bool Failed() const { return !running && !ended_by_us && wait_status != 0; }
};

class Supervisor {
 public:
  Supervisor(std::vector<Child> children, int ranks_per_process, SharedPage* page)
      : children_(std::move(children)), ranks_per_process_(ranks_per_process), page_(page) {}

  // Waits until all children are gone; returns the exit status of the run.
  int Run(const sigset_t& signals) {
    double deadline = 0;  // of the grace period; 0 = no process has failed
    while (Running() > 0) {
      timespec tick{0, 100'000'000};
      int signal = sigtimedwait(&signals, nullptr, &tick);
      if (signal > 0 && signal != SIGCHLD) {
        KillAll();
        return 128 + signal;
      }
      Reap();
      bool crashed = Any(&Child::Crashed);
      if (crashed && !page_->aborted()) page_->Abort(Describe(*Cause()));
      if (crashed || page_->aborted() || Any(&Child::Failed)) {
        double grace = crashed || page_->aborted() ? kGraceAfterCrash : kGraceAfterFailure;
        deadline = deadline == 0 ? Now() + grace : std::min(deadline, Now() + grace);
        if (Now() >= deadline) KillAll();
      }
    }
    return Conclude();
  }

 private:
  int Running() const {
    return static_cast<int>(std::count_if(children_.begin(), children_.end(), [](auto& c) { return c.running; }));
  }

  bool Any(bool (Child::*what)() const) const {
    return std::any_of(children_.begin(), children_.end(), [&](auto& c) { return (c.*what)(); });
  }

  void Reap() {
    for (Child& child : children_) {
      if (child.running && waitpid(child.pid, &child.wait_status, WNOHANG) == child.pid) child.running = false;
    }
  }

  void KillAll() {
    Reap();
    for (Child& child : children_) {
      if (!child.running) continue;
      child.ended_by_us = true;
      kill(child.pid, SIGKILL);
      while (waitpid(child.pid, &child.wait_status, 0) < 0 && errno == EINTR) {
      }
      child.running = false;
    }
  }

  // A crash or a timeout explains the failures of the others; "a peer failed" explains nothing.
  const Child* Cause() const {
    const Child* cause = nullptr;
    auto weight = [](const Child& c) {
      if (c.Crashed()) return 4;
      if (WEXITSTATUS(c.wait_status) == kExitTimeout) return 3;
      return WEXITSTATUS(c.wait_status) == kExitPeerFailed ? 1 : 2;
    };
    for (const Child& child : children_) {
      if (child.Failed() && (cause == nullptr || weight(child) > weight(*cause))) cause = &child;
    }
    return cause;
  }

  std::string Describe(const Child& child) const {
    int process = static_cast<int>(&child - children_.data());
    int first = process * ranks_per_process_;
    std::string who = "rank " + std::to_string(first);
    if (ranks_per_process_ > 1) {
      who = "ranks " + std::to_string(first) + "-" + std::to_string(first + ranks_per_process_ - 1);
    }
    who += " (pid " + std::to_string(child.pid) + ")";
    if (child.Crashed()) {
      int signal = WTERMSIG(child.wait_status);
      return who + " was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
    }
    return who + " exited with status " + std::to_string(WEXITSTATUS(child.wait_status));
  }

  int Conclude() const {
    const Child* cause = Cause();
    if (cause == nullptr) return kExitOk;
    long stopped = std::count_if(children_.begin(), children_.end(), [](auto& c) { return c.ended_by_us; });
    // A process that failed by itself has printed why; this prints what it could not.
    if (cause->Crashed() || stopped > 0) {
      std::fprintf(stderr, "%s: %s; the run has ended", ProgramName().c_str(), Describe(*cause).c_str());
      if (stopped > 0) std::fprintf(stderr, " and the %ld processes still running were stopped", stopped);
      std::fputc('\n', stderr);
    }
    return cause->Crashed() ? 128 + WTERMSIG(cause->wait_status) : WEXITSTATUS(cause->wait_status);
  }

  std::vector<Child> children_;
  int ranks_per_process_;
  SharedPage* page_;
};

// Called in the child: makes it die with the parent, whatever kills that, and leaves the terminal's signals to the
// parent.
void BecomeChild(pid_t parent, const sigset_t& old_mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &old_mask, nullptr);
}

}  // namespace

Result<int> ForkProcesses(int count, int ranks_per_process, SharedPage* page) {
  sigset_t signals;
  sigset_t old_mask;
  sigemptyset(&signals);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &old_mask);
  std::fflush(nullptr);  // otherwise every child would print what is buffered
  std::vector<Child> children(static_cast<size_t>(count));
  pid_t parent = getpid();
  for (int i = 0; i < count; ++i) {
    pid_t pid = fork();
    if (pid == 0) {
      BecomeChild(parent, old_mask);
      return i;
    }
    if (pid < 0) {
      int error = errno;
      for (int k = 0; k < i; ++k) kill(children[static_cast<size_t>(k)].pid, SIGKILL);
      return SystemError(error, "fork of process %d of %d", i, count);
    }
    children[static_cast<size_t>(i)].pid = pid;
  }
  _exit(Supervisor(std::move(children), ranks_per_process, page).Run(signals));
}

}  // namespace axccl::perf
