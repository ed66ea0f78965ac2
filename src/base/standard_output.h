// What a program prints reaches its reader, or the program fails.
#pragma once

#include <string_view>

namespace axccl {

// At the end of the process, `program` prints a line on stderr and exits with `status` if standard output has not taken
// all that was printed: the disk is full, or it is closed. A reader that closed its pipe early, as head does, misses
// nothing. Call once, first in main.
void ExpectOutputAtExit(std::string_view program, int status);

// From now on, the log goes to stderr unless the environment names a file for it (NCCL_DEBUG_FILE): standard output
// then holds what the program prints, alone. Call before anything is logged.
void LogToStderr();

}  // namespace axccl
