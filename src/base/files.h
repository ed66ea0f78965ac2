// Small files of the library's own, read and written as a whole. Thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace axccl {

// Returns kSystemError when the file cannot be read, kInvalidArgument when it has more than `most_bytes`.
Result<std::string> ReadWholeFile(const std::string& path, size_t most_bytes);

// Returns the first line, or an empty string when the file is empty or cannot be read, as is so for some files of /sys.
std::string FirstLine(const std::string& path);

// Replaces the content of the file at `path`, for what a user names: it may be a link or no regular file (/dev/stdout),
// and its folder must exist.
Status WriteWholeFile(const std::string& path, std::string_view text);

// Replaces a cache completely or not at all, so processes may race and the last one's version stays. The text is first
// written to a file beside it under a unique name, which is then renamed; only its owner may read it. Creates missing
// parent folders.
Status ReplaceFile(const std::string& path, std::string_view text);

// Creates the folder and its missing parents with these permissions. Returns the last failure. A failure need not
// matter: some file systems refuse to create even folders that exist.
Status MakeFolders(const std::string& folder, mode_t mode);

// The folder for what the library keeps about this machine and user: $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else
// ~/.cache/axccl; empty when the environment names none of them, or the process has gained privileges (param.h).
std::string CacheFolder();

// Puts the path in front of an error about the content of the file.
Status InFile(const std::string& path, const Status& status);

}  // namespace axccl
