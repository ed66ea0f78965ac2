#include "tests/harness/containers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/harness/mounts.h"

namespace axccl::harness {
namespace {

// Enters the namespace for the thread's next children. -1: an error is in errno.
int EnterForChildren(pid_t of) {
  const std::string path = "/proc/" + (of == 0 ? "self" : std::to_string(of)) + "/ns/pid";
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int result = descriptor < 0 ? -1 : setns(descriptor, CLONE_NEWPID);
  if (descriptor >= 0) close(descriptor);
  return result;
}

// As fork(); afterwards, the caller's next children are in the caller's namespace again.
pid_t ForkAndReturn() {
  const pid_t pid = fork();
  if (pid != 0 && EnterForChildren(0) != 0) std::perror("leaving a container");
  return pid;
}

[[noreturn]] void BeInit() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) pause();
}

void MountProc() {
  if (unshare(CLONE_NEWNS) == 0 && MountOver("proc", "/proc")) return;
  std::perror("entering a container: mounting /proc");
  _exit(1);
}

}  // namespace

std::unique_ptr<Containers> Containers::Create(int containers) {
  std::unique_ptr<Containers> made(new Containers);
  for (int i = 0; i < containers; ++i) {
    const pid_t pid = unshare(CLONE_NEWPID) == 0 ? ForkAndReturn() : -1;
    if (pid == 0) BeInit();
    if (pid < 0) {
      ADD_FAILURE() << "could not make a container: " << std::strerror(errno);
      return nullptr;
    }
    made->inits_.push_back(pid);
  }
  return made;
}

Containers::~Containers() {
  for (const pid_t init : inits_) {
    kill(init, SIGKILL);
    while (waitpid(init, nullptr, 0) < 0 && errno == EINTR) continue;
  }
}

pid_t Containers::Fork(int container) const {
  if (EnterForChildren(inits_[static_cast<size_t>(container)]) != 0) return -1;
  const pid_t pid = ForkAndReturn();
  if (pid == 0) MountProc();
  return pid;
}

}  // namespace axccl::harness
