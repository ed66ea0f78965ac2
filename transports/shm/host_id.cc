#include "transports/shm/host_id.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "src/base/param.h"
#include "src/base/service_fd.h"

namespace axccl::shm {
namespace {

struct Ingredients {
  char machine[64];
  uint64_t user;
  uint64_t net_device;
  uint64_t net_inode;
  char given[64];
};

}  // namespace

HostId CurrentHostId() {
  Ingredients from;
  std::memset(&from, 0, sizeof from);  // hashed whole
  const service::Fd boot(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!boot || read(boot.get(), from.machine, sizeof from.machine) <= 0)
    gethostname(from.machine, sizeof from.machine - 1);
  from.user = geteuid();
  struct stat net {};
  if (stat("/proc/self/ns/net", &net) == 0) {
    from.net_device = net.st_dev;
    from.net_inode = net.st_ino;
  }
  param::Get("NCCL_HOSTID").copy(from.given, sizeof from.given);
  HostId id;
  static_assert(sizeof(HostId) >= crypto_generichash_BYTES_MIN);
  crypto_generichash(id.data(), id.size(), reinterpret_cast<const unsigned char*>(&from), sizeof from, nullptr, 0);
  return id;
}

}  // namespace axccl::shm
