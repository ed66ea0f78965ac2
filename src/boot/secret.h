// What ranks that meet at NCCL_COMM_ID prove to each other to know.
//
// Between machines it is made of a text that the user gives all of them, AXCCL_SECRET or the file AXCCL_SECRET_FILE. An
// address and the id sent to it are in clear and depend on it, so that whoever listens could try texts until one fits:
// it goes through Argon2id, which makes every try dear, and has kLeastSecretBytes at least. Ranks of one machine, on
// loopback, that are given none share one that the first of them makes: 32 random bytes in a file that only their user
// can read, as with
// ~/.Xauthority. Thread-safe.
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
// Argon2id as OWASP recommends it at the least (Password Storage Cheat Sheet: 19 MiB, two passes, one lane): 20 ms,
// once a process for each text.
inline constexpr size_t kArgonBytes = size_t{19} << 20;
inline constexpr uint64_t kArgonPasses = 2;

// Of the environment's text; none where there is none. kInvalidUsage where it is too short, or others may read its
// file: what ssh says of a private key goes for it (it is refused where it is this user's own and open to others).
Result<std::optional<Secret>> EnvironmentSecret();

// Of this user on this machine, made where there is none yet: `secret-<uid>` in the folder for measurements
// (CacheFolder), or, where that cannot be written, in /tmp/axccl-<uid>. kInvalidUsage where neither can be had; `what`
// is what needs it.
Result<Secret> UserSecret(const std::string& what);

// BLAKE2b of the text, keyed with the label.
Secret HashText(std::string_view label, std::string_view text);

}  // namespace axccl::boot
