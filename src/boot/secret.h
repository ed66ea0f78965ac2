// The secret that ranks which meet at NCCL_COMM_ID prove to each other.
//
// Between machines, it is derived from a text that the user gives all ranks, AXCCL_SECRET or the file
// AXCCL_SECRET_FILE. The id on the wire depends on it and is not encrypted, so an eavesdropper could try texts until
// one matches. Therefore the text goes through Argon2id, which makes every try expensive, and must have at least
// kLeastSecretBytes. Ranks of one machine, on loopback, that have no such text share a secret that the first of them
// makes: 32 random bytes in a file that only their user can read, as with ~/.Xauthority. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"

namespace axccl::boot {

using Secret = std::array<uint8_t, 32>;

inline constexpr size_t kLeastSecretBytes = 16;
// Argon2id with OWASP's minimum settings (Password Storage Cheat Sheet: 19 MiB, two passes, one lane): 20 ms, once in a
// process for each text.
inline constexpr size_t kArgonBytes = size_t{19} << 20;
inline constexpr uint64_t kArgonPasses = 2;

// The secret of the environment's text; nothing if there is no text. kInvalidUsage if the text is too short, or if its
// file is this user's own and others may read it (the rule of ssh for private keys).
Result<std::optional<Secret>> EnvironmentSecret();

// The secret of this user on this machine, made if there is none yet: `secret-<uid>` in the folder for measurements
// (CacheFolder) or, if that cannot be written, in /tmp/axccl-<uid>. kInvalidUsage if neither works; `what` names what
// needs the secret.
Result<Secret> UserSecret(const std::string& what);

// BLAKE2b of the text, keyed with the label.
Secret HashText(std::string_view label, std::string_view text);

}  // namespace axccl::boot
