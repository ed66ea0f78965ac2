// What a program prints reaches its reader, or the program fails.
#pragma once

#include <string_view>

namespace axccl {

// At the end of the process, `program` prints a line on stderr and exits with `status` if standard output has not taken
// all that was printed: the disk is full, or it is closed. A reader that closed its pipe early, as head does, misses
// nothing. Call once, first in main.
void ExpectOutputAtExit(std::string_view program, int status);

}  // namespace axccl
