// How a perf tool stops: one message on stderr that names program and rank, then the process ends.
//
// A perf run is worthless once one call failed, and other threads may be stuck inside the library, so Fail ends the
// process at once (_exit after the hooks) instead of unwinding. Thread-safe; when several threads fail, the first one
// is reported and the others wait for the end.
#pragma once

#include <functional>
#include <string>

namespace axccl::perf {

// Exit statuses of every perf tool. Wrong data and missed bandwidth are kExitFailed.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTimeout = 3;
// Another rank failed first and has reported why; a launcher prefers any other status as the cause.
inline constexpr int kExitPeerFailed = 4;

// Remembers the base name of argv[0] for messages and reports. Ends the program if it was asked for its version. From
// here on, a program whose output is lost fails (src/base/standard_output.h). Call once, before threads exist.
void BeginProgram(int argc, char** argv);
const std::string& ProgramName();

// Sets the ranks ("rank 3" or "ranks 2-3") that messages name after the program. Call once, before threads exist.
void SetWho(const std::string& who);

// Runs `hook` when this process fails, the latest first (for example, to close the JSON file or to notify the other
// processes). Hooks must neither fail nor wait. Call before threads exist.
void OnFail(std::function<void(const std::string& message)> hook);

// Prints "<program>: <who>: <message>" to stderr (nothing for an empty message), runs the hooks, ends the process.
[[noreturn, gnu::format(printf, 2, 3)]] void Fail(int status, const char* format, ...);

}  // namespace axccl::perf
