// on_hosts: hosts made of network namespaces (test_hosts.h) for programs that are started from outside.
//
//   on_hosts make N [--nics 2] [--rate 1gbit] COMMAND...
//                                               N hosts for as long as the command takes; its exit status
//   on_hosts run K COMMAND...                   on host K; from within such a command
//   on_hosts agent ADDRESS WORDS...             the words as a shell's command line, on the host of that address:
//                                               what mpirun takes for ssh (--mca plm_rsh_agent "on_hosts agent")
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/harness/test_hosts.h"

namespace axccl::harness {
namespace {

constexpr const char* kVariable = "AXCCL_ON_HOSTS";  // "<process> <descriptor of host 0> <of host 1> .."

int Make(int argc, char** argv) {
  const int number = std::atoi(argv[0]);
  const char* nics = "1";
  const char* rate = nullptr;
  int used = 1;
  for (; argc > used + 2; used += 2) {
    const bool limits = std::strcmp(argv[used], "--rate") == 0;
    if (!limits && std::strcmp(argv[used], "--nics") != 0) break;
    (limits ? rate : nics) = argv[used + 1];
  }
  if (const int missing = TestHosts::CheckPresence(); missing != 0) return missing;
  const auto hosts = TestHosts::Create(number, std::atoi(nics));
  if (hosts == nullptr) return 1;
  std::string text = std::to_string(getpid());
  for (int host = 0; host < number; ++host) {
    if (rate != nullptr && !hosts->Limit(host, rate)) return 1;
    text += " " + std::to_string(hosts->descriptor(host));
  }
  setenv(kVariable, text.c_str(), 1);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[used], argv + used);
    _exit(127);
  }
  int status = 1;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

bool Enter(int host) {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr) return false;
  char* at = nullptr;
  const long process = std::strtol(text, &at, 10);
  long number = -1;
  for (int i = 0; i <= host; ++i) number = std::strtol(at, &at, 10);
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return descriptor >= 0 && TestHosts::EnterBy(descriptor, host);
}

int Run(char** argv) {
  if (!Enter(std::atoi(argv[0]))) return 126;
  setenv("NCCL_SOCKET_IFNAME", TestHosts::kInterface, 0);
  setenv("NCCL_NET", "Socket", 0);
  execvp(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}

int Agent(int argc, char** argv) {
  int host = 0;
  while (host < 250 && TestHosts::Address(host) != argv[0] && TestHosts::Name(host) != argv[0]) ++host;
  std::string line;
  for (int i = 1; i < argc; ++i) line += std::string(i > 1 ? " " : "") + argv[i];
  if (!Enter(host)) return 126;
  execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
  return 127;
}

}  // namespace
}  // namespace axccl::harness

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[1] : "";
  if (what == "make") return axccl::harness::Make(argc - 2, argv + 2);
  if (what == "run") return axccl::harness::Run(argv + 2);
  if (what == "agent") return axccl::harness::Agent(argc - 2, argv + 2);
  std::fprintf(stderr,
               "usage: on_hosts make N [--nics N] [--rate R] COMMAND.. | run K COMMAND.. | agent ADDRESS WORDS..\n");
  return 2;
}
