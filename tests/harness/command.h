// Runs a command line, as a user does.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace axccl::harness {

struct Outcome {
  int exit = -1;     // status; -1: it was killed, or could not be started
  std::string text;  // standard output and error
};

inline Outcome RunCommand(const std::string& command) {
  Outcome outcome;
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace axccl::harness
