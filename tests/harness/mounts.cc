#include "tests/harness/mounts.h"

#include <sys/mount.h>

namespace axccl::harness {

bool MountOver(const char* type, const char* place) {
  const bool seen_here_only = mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ||
                              mount("", place, nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return seen_here_only && mount(type, place, type, 0, nullptr) == 0;
}

}  // namespace axccl::harness
