// Counts what a process holds, for tests that check that nothing is left.
#pragma once

#include <dirent.h>

namespace axccl::harness {

// The number of entries of a folder, such as "/proc/self/fd" or "/proc/self/task".
inline int Entries(const char* folder) {
  int entries = 0;
  DIR* const directory = opendir(folder);
  while (directory != nullptr && readdir(directory) != nullptr) ++entries;
  if (directory != nullptr) closedir(directory);
  return entries;
}

}  // namespace axccl::harness
