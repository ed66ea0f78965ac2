// Counts what a process holds, for tests that check that nothing is left.
#pragma once

#include <dirent.h>
#include <malloc.h>

#include <fstream>
#include <string>

namespace axccl::harness {

// The number of entries of a folder, such as "/proc/self/fd" or "/proc/self/task".
inline int Entries(const char* folder) {
  int entries = 0;
  DIR* const directory = opendir(folder);
  while (directory != nullptr && readdir(directory) != nullptr) ++entries;
  if (directory != nullptr) closedir(directory);
  return entries;
}

// The number of mappings that this process may share with others. Private ones come and go with allocators.
inline int SharedMappings() {
  int mappings = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) mappings += line.compare(line.find(' ') + 4, 1, "s") == 0;
  return mappings;
}

// Bytes that malloc has given out. Resident memory says less: an allocator takes it by leaps, to what threads ever held
// at once.
inline size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace axccl::harness
