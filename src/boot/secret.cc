#include "src/boot/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "src/base/files.h"
#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/service_fd.h"

namespace axccl::boot {
namespace {

constexpr size_t kMostSecretBytes = 4096;
constexpr size_t kHexBytes = 2 * sizeof(Secret);

// ---- of the environment ----

Status CheckFileIsPrivate(const std::string& path, const struct stat& info) {
  if (info.st_uid == geteuid() && (info.st_mode & 077) != 0) {
    return MakeStatus(Code::kInvalidUsage,
                      "AXCCL_SECRET_FILE=%s: other users may read or write it (mode %03o); chmod 600 it", path.c_str(),
                      info.st_mode & 0777);
  }
  static std::atomic<bool> warned{false};
  if ((info.st_mode & 07) != 0 && !warned.exchange(true))
    log::WriteNotice("AXCCL_SECRET_FILE=%s: every user of this machine may read it (mode %03o), and so join",
                     path.c_str(), info.st_mode & 0777);
  return Status();
}

Result<std::string> ReadToTheEnd(const std::string& path, int fd) {
  std::string text(kMostSecretBytes + 1, '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = read(fd, text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(errno, "AXCCL_SECRET_FILE=%s: read", path.c_str());
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  if (have > kMostSecretBytes) {
    return MakeStatus(
        Code::kInvalidUsage,
        "AXCCL_SECRET_FILE=%s: more than %zu bytes; is it the file that was meant? A secret needs no more "
        "than head -c 32 /dev/urandom | base64 prints",
        path.c_str(), kMostSecretBytes);
  }
  text.resize(have);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// A process reads the file for every communicator, and a pipe has its text once.
Result<std::string> ReadSecretFile(const std::string& path) {
  static auto* const mutex = new std::mutex;
  static auto* const of_pipes = new std::map<std::string, std::string>;
  std::lock_guard lock(*mutex);
  if (const auto found = of_pipes->find(path); found != of_pipes->end()) return found->second;
  const service::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return service::OpenError(errno, "AXCCL_SECRET_FILE=" + path + ": open");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return SystemError(errno, "AXCCL_SECRET_FILE=%s: fstat", path.c_str());
  const bool regular = S_ISREG(info.st_mode);
  if (regular) AXCCL_RETURN_IF_ERROR(CheckFileIsPrivate(path, info));
  AXCCL_ASSIGN_OR_RETURN(std::string text, ReadToTheEnd(path, fd.get()));
  if (!regular) (*of_pipes)[path] = text;
  return text;
}

Result<Secret> Stretch(const std::string& text) {
  // All processes with the text must derive the same secret, and share nothing else, so the salt is fixed.
  const Secret salt = HashText("axccl argon2id salt", "");
  static_assert(sizeof salt >= crypto_pwhash_SALTBYTES);
  Secret secret;
  if (crypto_pwhash(secret.data(), secret.size(), text.data(), text.size(), salt.data(), kArgonPasses, kArgonBytes,
                    crypto_pwhash_ALG_ARGON2ID13) != 0) {
    return MakeStatus(Code::kSystemError, "AXCCL_SECRET: no memory for Argon2id (%zu MiB needed)", kArgonBytes >> 20);
  }
  return secret;
}

// A process calls this for every communicator.
Result<Secret> StretchOnce(const std::string& text) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<Secret, Secret>;
  // The map's keys are keyed hashes of the texts, which are useless without the process's memory.
  static const Secret key = [] {
    Secret random;
    randombytes_buf(random.data(), random.size());
    return random;
  }();
  const Secret name = HashText({reinterpret_cast<const char*>(key.data()), key.size()}, text);
  std::lock_guard lock(*mutex);
  if (const auto found = known->find(name); found != known->end()) return found->second;
  AXCCL_ASSIGN_OR_RETURN(const Secret secret, Stretch(text));
  return (*known)[name] = secret;
}

// ---- of the user ----

struct Place {
  std::string folder;
  bool shared;  // others may write to the folder that contains it
};

std::string UserText() { return std::to_string(geteuid()); }

Status CheckOwned(const struct stat& info, mode_t forbidden) {
  if (info.st_uid != geteuid())
    return MakeStatus(Code::kInvalidUsage, "it belongs to user %u, not %u", info.st_uid, geteuid());
  if ((info.st_mode & forbidden) == 0) return Status();
  return MakeStatus(Code::kInvalidUsage, "other users have access to it (mode %03o)", info.st_mode & 0777);
}

Result<service::Fd> OpenFolder(const Place& place) {
  const Status made = MakeFolders(place.folder, 0700);
  service::Fd folder(open(place.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (place.shared ? O_NOFOLLOW : 0)));
  if (!folder && errno == ENOENT && !made.ok()) return made;
  if (!folder) return SystemError(errno, "%s", place.folder.c_str());
  struct stat info {};
  if (place.shared && fstat(folder.get(), &info) == 0) {
    if (const Status status = CheckOwned(info, 022); !status.ok()) return InFile(place.folder, status);
  }
  return folder;
}

Result<Secret> ReadUserSecret(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return SystemError(errno, "fstat");
  if (!S_ISREG(info.st_mode)) return MakeStatus(Code::kInvalidUsage, "it is no file");
  AXCCL_RETURN_IF_ERROR(CheckOwned(info, 077));
  char text[kHexBytes];
  Secret secret;
  size_t bytes = 0;
  const bool whole = read(fd, text, sizeof text) == static_cast<ssize_t>(sizeof text) &&
                     sodium_hex2bin(secret.data(), secret.size(), text, sizeof text, nullptr, &bytes, nullptr) == 0;
  sodium_memzero(text, sizeof text);
  if (!whole || bytes != secret.size()) return MakeStatus(Code::kInvalidUsage, "it is damaged; remove it");
  return secret;
}

// Writes a temporary file and links it to its name, so that no process ever reads half of it, and one of several
// writers wins.
Status MakeUserSecret(int folder, const std::string& name) {
  Secret secret;
  randombytes_buf(secret.data(), secret.size());
  char text[kHexBytes + 1];
  sodium_bin2hex(text, sizeof text, secret.data(), secret.size());
  text[kHexBytes] = '\n';
  const std::string fresh = name + "." + std::to_string(getpid()) + "." + std::to_string(randombytes_random());
  const service::Fd fd(openat(folder, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return SystemError(errno, "open to write");
  Status status;
  if (write(fd.get(), text, sizeof text) != static_cast<ssize_t>(sizeof text)) status = SystemError(errno, "write");
  if (status.ok() && linkat(folder, fresh.c_str(), folder, name.c_str(), 0) != 0 && errno != EEXIST)
    status = SystemError(errno, "link");
  (void)unlinkat(folder, fresh.c_str(), 0);
  sodium_memzero(&secret, sizeof secret);
  sodium_memzero(text, sizeof text);
  return status;
}

Result<Secret> SecretIn(const Place& place) {
  const std::string name = "secret-" + UserText();
  const std::string path = place.folder + "/" + name;
  AXCCL_ASSIGN_OR_RETURN(const service::Fd folder, OpenFolder(place));
  const auto open_it = [&] {
    return service::Fd(openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  };
  service::Fd fd = open_it();
  if (!fd && errno == ENOENT) {
    if (const Status status = MakeUserSecret(folder.get(), name); !status.ok()) return InFile(path, status);
    fd = open_it();
  }
  if (!fd) return service::OpenError(errno, path + ": open");
  Result<Secret> secret = ReadUserSecret(fd.get());
  if (!secret.ok()) return InFile(path, secret.status());
  return secret;
}

}  // namespace

Secret HashText(std::string_view label, std::string_view text) {
  Secret secret;
  crypto_generichash(secret.data(), secret.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     reinterpret_cast<const unsigned char*>(label.data()), label.size());
  return secret;
}

Result<std::optional<Secret>> EnvironmentSecret() {
  std::string text = param::Get("AXCCL_SECRET"), from = "AXCCL_SECRET";
  const std::string path = param::Get("AXCCL_SECRET_FILE");
  if (text.empty() && path.empty()) return std::optional<Secret>();
  if (text.empty()) {
    AXCCL_ASSIGN_OR_RETURN(text, ReadSecretFile(path));
    from = "AXCCL_SECRET_FILE=" + path;
  }
  if (text.size() < kLeastSecretBytes) {
    return MakeStatus(Code::kInvalidUsage,
                      "%s: %zu bytes%s, and at least %zu are needed, of random text: a process that guesses it can "
                      "join (make some with head -c 32 /dev/urandom | base64)",
                      from.c_str(), text.size(), text.empty() ? " (the file is empty)" : "", kLeastSecretBytes);
  }
  AXCCL_ASSIGN_OR_RETURN(const Secret secret, StretchOnce(text));
  sodium_memzero(text.data(), text.size());
  return std::optional<Secret>(secret);
}

Result<Secret> UserSecret(const std::string& what) {
  std::vector<Place> places{{"/tmp/axccl-" + UserText(), true}};
  if (const std::string cache = CacheFolder(); !cache.empty()) places.insert(places.begin(), {cache, false});
  std::string why;
  for (const Place& place : places) {
    Result<Secret> secret = SecretIn(place);
    if (secret.ok()) return secret;
    why.append(why.empty() ? "" : "; ").append(secret.status().message());
  }
  return MakeStatus(
      Code::kInvalidUsage,
      "%s without AXCCL_SECRET or AXCCL_SECRET_FILE: ranks of this machine share a secret in a file that only "
      "their user can read, which cannot be made (%s); set AXCCL_CACHE_DIR to a folder of this user's, or "
      "AXCCL_SECRET_FILE",
      what.c_str(), why.c_str());
}

}  // namespace axccl::boot
