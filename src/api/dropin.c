/* libnccl.so.2, for programs that were built for NCCL: a library of that SONAME whose functions jump into libaxccl.so.
 *
 * It has no code or state of its own, so the two names in one process are one set of communicators. Programs linked
 * against it need libnccl.so.2 and nothing else, and therefore run on NVIDIA's as well. ncclSend is weak and pncclSend
 * strong, as in libaxccl.so, so that a profiler can put itself between. A jump leaves registers and stack as they are,
 * so no signature is needed; its target is a symbol that no other library has (export.h), or it would find itself. */
#include "src/api/nccl_functions.h"

#if defined(__x86_64__)
#define JUMP(target) "  endbr64\n  jmp *" target "@GOTPCREL(%rip)\n"
#elif defined(__aarch64__)
/* x16 is the linker's to use between functions; hint 34 is a landing pad (bti c) where there are any. */
#define JUMP(target) "  hint #34\n  adrp x16, :got:" target "\n  ldr x16, [x16, :got_lo12:" target "]\n  br x16\n"
#else
#error "write the jump for this processor"
#endif

#define PASS_ON(name)                                                                   \
  ".globl pnccl" #name                                                                  \
  "\n"                                                                                  \
  ".weak nccl" #name                                                                    \
  "\n"                                                                                  \
  ".type pnccl" #name                                                                   \
  ", %function\n"                                                                       \
  ".type nccl" #name                                                                    \
  ", %function\n"                                                                       \
  ".balign 16\n"                                                                        \
  "nccl" #name                                                                          \
  ":\n"                                                                                 \
  "pnccl" #name ":\n" JUMP("axccl_pnccl" #name) ".size pnccl" #name ", . - pnccl" #name \
                                                "\n"                                    \
                                                ".size nccl" #name ", . - nccl" #name "\n"

__asm__(".text\n" AXCCL_NCCL_FUNCTIONS(PASS_ON));
