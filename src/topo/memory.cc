#include "src/topo/memory.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "src/topo/machine.h"

namespace axccl::topo {

// Calls the kernel directly, because one call is not worth a dependency on libnuma.
bool PreferNode(void* memory, size_t bytes, int node) {
  if (node == kNowhere) return syscall(SYS_mbind, memory, bytes, MPOL_DEFAULT, nullptr, 0, 0) == 0;
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  const auto index = static_cast<size_t>(node);
  std::vector<unsigned long> mask(index / kBits + 1);
  mask[index / kBits] = 1ul << index % kBits;
  // The kernel reads one bit less than the number that it gets.
  return syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1, 0) == 0;
}

}  // namespace axccl::topo
