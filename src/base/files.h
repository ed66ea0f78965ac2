// Small files of the library's own, read and written as a whole. Thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace axccl {

// kSystemError when it cannot be read, kInvalidArgument when it has more than `most_bytes`.
Result<std::string> ReadWholeFile(const std::string& path, size_t most_bytes);

// The first line; empty where there is none, or it cannot be read, as some files of /sys cannot.
std::string FirstLine(const std::string& path);

// Replaces what is there, or writes to it where it is no file (/dev/stdout).
Status WriteWholeFile(const std::string& path, std::string_view text);

// Replaces a file whole or not at all, so that processes may race and the last one's stays: written beside it under a
// name of its own, then renamed. Makes the folders it is in where they are missing.
Status ReplaceFile(const std::string& path, std::string_view text);

// Makes the folder and those it is in where they are missing and can be made, with these permissions.
// Else what refuses one, which need not matter: some file systems refuse even folders that they have.
Status MakeFolders(const std::string& folder, mode_t mode);

// Where what the library knows of this machine and user is kept: $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else
// ~/.cache/axccl; empty where the environment names no place.
std::string CacheFolder();

// What is wrong with the text of a file, said with the path in front.
Status InFile(const std::string& path, const Status& status);

}  // namespace axccl
