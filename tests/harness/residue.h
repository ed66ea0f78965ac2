// What a process holds, for tests that see to it that nothing is left of what has been.
#pragma once

#include <dirent.h>

namespace axccl::harness {

// Entries of a folder: of "/proc/self/fd" or "/proc/self/task", say.
inline int Entries(const char* folder) {
  int entries = 0;
  DIR* const directory = opendir(folder);
  while (directory != nullptr && readdir(directory) != nullptr) ++entries;
  if (directory != nullptr) closedir(directory);
  return entries;
}

}  // namespace axccl::harness
