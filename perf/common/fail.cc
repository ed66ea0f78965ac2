#include "perf/common/fail.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/base/command_line.h"
#include "src/base/format.h"
#include "src/base/standard_output.h"

namespace axccl::perf {
namespace {

std::string g_program = "perf";
std::string g_who;
std::vector<std::function<void(const std::string&)>> g_hooks;
std::atomic<bool> g_failing{false};

}  // namespace

void BeginProgram(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  g_program = slash ? slash + 1 : argv[0];
  ExpectOutputAtExit(g_program, kExitFailed);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--version") != 0) continue;
    std::fputs(command_line::VersionText(g_program).c_str(), stdout);
    std::exit(kExitOk);
  }
}

const std::string& ProgramName() { return g_program; }

void SetWho(const std::string& who) { g_who = who; }

void OnFail(std::function<void(const std::string&)> hook) { g_hooks.push_back(std::move(hook)); }

void Fail(int status, const char* format, ...) {
  // The first failure is the cause; failures of other threads of the process afterwards are consequences.
  if (g_failing.exchange(true)) {
    for (;;) pause();
  }
  va_list args;
  va_start(args, format);
  const std::string text = FormatV(format, args);
  va_end(args);
  std::fflush(stdout);
  if (!text.empty()) {
    std::fprintf(stderr, "%s:%s%s %s\n", g_program.c_str(), g_who.empty() ? "" : " ",
                 g_who.empty() ? "" : (g_who + ":").c_str(), text.c_str());
    std::fflush(stderr);
  }
  for (auto hook = g_hooks.rbegin(); hook != g_hooks.rend(); ++hook) (*hook)(text);
  _exit(status);
}

}  // namespace axccl::perf
