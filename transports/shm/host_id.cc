#include "transports/shm/host_id.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "src/base/param.h"
#include "src/base/service_fd.h"

namespace axccl::shm {
namespace {

std::array<uint8_t, 16> Hash(std::string_view text) {
  std::array<uint8_t, 16> hash;
  static_assert(sizeof hash >= crypto_generichash_BYTES_MIN);
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     nullptr, 0);
  return hash;
}

Result<std::string> MachineName() {
  char text[256] = {};
  constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";
  const service::Fd boot(open(kBootId, O_RDONLY | O_CLOEXEC));
  if (!boot && (errno == EMFILE || errno == ENFILE))
    return service::OpenError(errno, std::string("telling machines apart: ") + kBootId);
  if (!boot || read(boot.get(), text, sizeof text - 1) <= 0) gethostname(text, sizeof text - 1);
  return std::string(text);
}

uint64_t Namespace(const char* link) {
  struct stat info {};
  return stat(link, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

Result<transport::HostId> CurrentHostId() {
  AXCCL_ASSIGN_OR_RETURN(const std::string machine, MachineName());
  transport::HostId id;
  id.machine = Hash(machine);
  id.given = Hash(param::Get("NCCL_HOSTID"));
  id.network = Namespace("/proc/self/ns/net");
  id.users = Namespace("/proc/self/ns/user");
  id.processes = Namespace("/proc/self/ns/pid");
  id.user = geteuid();
  return id;
}

const char* WhyApart(const transport::HostId& one, const transport::HostId& other) {
  if (one.machine != other.machine) return "another machine";
  if (one.given != other.given) return "another NCCL_HOSTID";
  if (one.network != other.network) return "another network namespace";
  if (one.users != other.users) return "another user namespace";
  if (one.user != other.user) return "another user";
  if (one.processes != other.processes) return "another PID namespace";
  return nullptr;
}

}  // namespace axccl::shm
