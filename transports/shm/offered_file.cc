#include "transports/shm/offered_file.h"

#include <sodium.h>

#include <chrono>
#include <list>
#include <mutex>

#include "src/base/format.h"
#include "transports/shm/attach.h"
#include "transports/shm/handover_client.h"

namespace axccl::shm {
namespace {

constexpr std::chrono::seconds kPatience(5);

struct Offered {
  std::array<uint8_t, 16> token;
  int file;
};
struct Files {
  std::mutex mutex;
  std::list<Offered> all;
};

Files& Process() {
  static Files* const files = new Files;
  return *files;
}

}  // namespace

Result<OfferedFile> OfferedFile::Make(service::Fd file) {
  AXCCL_ASSIGN_OR_RETURN(const transport::ProcessAddress self, SelfAddress());
  OfferedFile offered;
  offered.address_.socket = self.socket;
  randombytes_buf(offered.address_.token.data(), offered.address_.token.size());
  std::lock_guard lock(Process().mutex);
  Process().all.push_back({offered.address_.token, file.get()});
  offered.file_ = std::move(file);
  return offered;
}

void OfferedFile::Close() {
  if (!file_) return;
  std::lock_guard lock(Process().mutex);
  Process().all.remove_if([this](const Offered& offered) { return offered.file == file_.get(); });
  file_.Close();
}

bool UseOfferedFile(const std::array<uint8_t, 16>& token, const std::function<void(int)>& use) {
  std::lock_guard lock(Process().mutex);
  for (const Offered& offered : Process().all) {
    if (sodium_memcmp(token.data(), offered.token.data(), token.size()) != 0) continue;
    use(offered.file);
    return true;
  }
  return false;
}

Result<service::Fd> TakeFile(const FileAddress& address, uint32_t pid) {
  Reply reply;
  const Patience patience{Clock::now() + kPatience, {}, Format("memory of process %u", pid)};
  return RequestFile(address.socket, address.token, patience, &reply);
}

}  // namespace axccl::shm
