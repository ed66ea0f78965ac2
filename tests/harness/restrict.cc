#include "tests/harness/restrict.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace axccl::harness {
namespace {

constexpr uid_t kNobody = 65534;

// Runs in a child, because the change cannot be undone.
template <class Fn>
bool ChildCan(Fn try_it) {
  const pid_t pid = fork();
  if (pid == 0) _exit(try_it() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid) << strerror(errno);
  return status == 0;
}

}  // namespace

bool Refuse(const std::vector<Refused>& calls) {
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const auto& [call, error] : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  const bool done = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
  EXPECT_TRUE(done) << "seccomp: " << strerror(errno);
  return done;
}

std::vector<Refused> RefusedInContainers() {
  std::vector<Refused> refused{{SYS_clone3, ENOSYS}};
  for (const int call : {SYS_add_key,
                         SYS_bpf,
                         SYS_get_mempolicy,
                         SYS_kcmp,
                         SYS_keyctl,
                         SYS_lookup_dcookie,
                         SYS_mbind,
                         SYS_migrate_pages,
                         SYS_mount,
                         SYS_move_pages,
                         SYS_open_by_handle_at,
                         SYS_perf_event_open,
                         SYS_pidfd_getfd,
                         SYS_process_madvise,
                         SYS_process_vm_readv,
                         SYS_process_vm_writev,
                         SYS_ptrace,
                         SYS_quotactl,
                         SYS_request_key,
                         SYS_set_mempolicy,
                         SYS_setns,
                         SYS_umount2,
                         SYS_unshare,
                         SYS_userfaultfd,
                         SYS_vhangup})
    refused.push_back({call, EPERM});
  return refused;
}

bool ReplaceDevShm(const char* options) {
  // With a mount namespace of its own, only this process sees what is mounted on it.
  return unshare(CLONE_NEWNS) == 0 &&
         (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ||
          mount(nullptr, "/dev/shm", nullptr, MS_PRIVATE, nullptr) == 0) &&
         mount("none", "/dev/shm", "tmpfs", 0, options) == 0;
}

bool Limit(decltype(RLIMIT_AS) resource, rlim_t value) {
  rlimit limit{};
  const bool done = getrlimit(resource, &limit) == 0 && (limit.rlim_cur = value, setrlimit(resource, &limit) == 0);
  EXPECT_TRUE(done) << "setrlimit: " << strerror(errno);
  return done;
}

bool MayActForOthers() {
  return geteuid() == 0 && ChildCan([] {
           const int file = memfd_create("a file to be given away", MFD_CLOEXEC);
           return fchown(file, kNobody, kNobody) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
                  setresuid(kNobody, kNobody, kNobody) == 0;
         });
}

bool LocksWithoutLimit() {
  return ChildCan([] { return Limit(RLIMIT_MEMLOCK, 0) && mlockall(MCL_FUTURE) == 0; });
}

bool MayLock(rlim_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_max >= bytes;
}

bool LimitLocking(rlim_t bytes) {
  // The limit applies only to users who may not exceed it.
  const bool limited = !LocksWithoutLimit() || setresuid(kNobody, kNobody, kNobody) == 0;
  EXPECT_TRUE(limited) << strerror(errno);
  return limited && Limit(RLIMIT_MEMLOCK, bytes);
}

}  // namespace axccl::harness
