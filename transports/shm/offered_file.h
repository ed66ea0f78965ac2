// Files that a process gives to other processes of its user, beside its heap: by the socket and the messages of
// handover.h, because containers may forbid pidfd_getfd. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl::shm {

// Where others find a file: the name of a Unix socket, and what the file is called there. Whoever knows the address,
// and is of the same user, gets the file.
struct FileAddress {
  std::array<char, 48> socket{};
  std::array<uint8_t, 16> token{};
};
static_assert(sizeof(FileAddress) == 64);

// A file that others can take as long as this object has it.
class OfferedFile {
 public:
  OfferedFile() = default;
  // Starts to offer the file. An error says why this process can offer none.
  static Result<OfferedFile> Make(service::Fd file);
  ~OfferedFile() { Close(); }
  OfferedFile(OfferedFile&& other) noexcept
      : file_(std::move(other.file_)), address_(std::exchange(other.address_, {})) {}
  OfferedFile& operator=(OfferedFile&& other) noexcept {
    Close();
    file_ = std::move(other.file_);
    address_ = std::exchange(other.address_, {});
    return *this;
  }

  explicit operator bool() const { return static_cast<bool>(file_); }
  const FileAddress& address() const { return address_; }
  void Close();

 private:
  service::Fd file_;
  FileAddress address_;
};

// For whoever answers requests: calls use(descriptor) if the token is that of a file, which stays open meanwhile.
// Returns whether it is.
bool UseOfferedFile(const std::array<uint8_t, 16>& token, const std::function<void(int)>& use);

// Takes a file of process `pid`, whose service thread answers at once if the process runs. kRemoteError: it is gone.
// kInvalidUsage: it offers no such file. kTimeout: no answer within some seconds.
Result<service::Fd> TakeFile(const FileAddress& address, uint32_t pid);

}  // namespace axccl::shm
