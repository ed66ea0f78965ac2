#include "src/base/standard_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace axccl {
namespace {

std::string* g_program = nullptr;  // never destroyed
int g_status = 0;

bool ReaderIsGone() {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

void CheckOutput() {
  int error = std::fflush(stdout) == 0 ? 0 : errno;
  if ((error == 0 && std::ferror(stdout) == 0) || ReaderIsGone()) return;
  // Of an earlier failure, stdio does not keep why. The next byte fails as well.
  if (error == 0 && write(STDOUT_FILENO, "\n", 1) < 0) error = errno;
  std::fprintf(stderr, "%s: cannot write to standard output%s%s\n", g_program->c_str(), error == 0 ? "" : ": ",
               error == 0 ? "" : std::strerror(error));
  _exit(g_status);
}

}  // namespace

void ExpectOutputAtExit(std::string_view program, int status) {
  // No file that is opened later takes the place of a closed standard stream. What is printed there fails.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
  g_program = new std::string(program);
  g_status = status;
  std::atexit(CheckOutput);
}

void LogToStderr() {
  const char* const file = std::getenv("NCCL_DEBUG_FILE");
  setenv("NCCL_DEBUG_FILE", "stderr", file == nullptr || *file == '\0');
}

}  // namespace axccl
